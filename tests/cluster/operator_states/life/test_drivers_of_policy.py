"""Drivers of a ClusterPolicy and of NVIDIADrivers on the real control plane: closed nodes, nodes of another system, other drivers.

The pods are played as in `test_cluster_policy_life`, and each test begins with the same policy, Ready.
"""

import functools
from typing import Any

from api.names import DRIVER_OWNER_LABEL
from tests.cluster.environment import nodes, polling
from tests.cluster.environment.client import ApiClient
from tests.cluster.operator_states.conftest import (
    NOBLE,
    PODS,
    POOL_TAINT,
    RUNNING,
    TAINTS,
    NodeSoftware,
    join,
    until_idle,
)
from tests.cluster.operator_states.policies import (
    POLICY,
    POOL,
    REVISIONS,
    SPEC,
    Json,
    a_policy,
    a_pool,
    daemon_sets,
    driver_pods,
    driver_systems,
    put,
    state,
    until_ready,
    until_state,
    version,
)
from tests.cluster.system.installation import CLUSTER_POLICIES, NVIDIA_DRIVERS
from tests.support.nvidia.operator_kinds import sample

EVENTS = "/apis/events.k8s.io/v1/events"
QUIET_S = 12
"""Longer than the time after which the controllers look at their objects again."""


async def test_closed_nodes_have_their_software_and_no_pool_changes_a_daemon_set(
    software: NodeSoftware, api: ApiClient, kubectl: Any
):
    """A template that follows the taints of pools restarts node software everywhere, and outdates every driver."""

    async def templates() -> Json:
        listed = (await api.get(REVISIONS))["items"]
        revisions = {item["metadata"]["name"] for item in listed}
        return {name: version(item) for name, item in (await daemon_sets(api)).items()} | {
            "revisions": revisions
        }

    async def are_everywhere() -> bool:
        current = await state(api, "state-driver")
        assert (current["nodesReady"], current["nodesTotal"]) == (RUNNING, RUNNING), f"{current}"
        return True

    listed = (await api.get(nodes.NODES))["items"]
    tainted = {item["metadata"]["name"] for item in listed if item["spec"].get("taints") == TAINTS}
    assert tainted & set(software.running)
    await polling.eventually(are_everywhere, what="the driver on closed nodes")
    assert (await driver_pods(api)).keys() == set(software.running)
    before = await templates()
    for taints in ([POOL_TAINT], [POOL_TAINT | {"value": "another"}], []):
        await kubectl.apply_yaml(a_pool(taints))
        await until_idle(software)
    await kubectl("delete", "gpupool", POOL)
    await until_idle(software)
    assert await templates() == before


async def test_a_node_of_a_third_system_moves_no_other_daemon_set(
    software: NodeSoftware, api: ApiClient
):
    before = {name: version(item) for name, item in (await daemon_sets(api)).items()}
    (node,) = await join(api, "soft-noble", NOBLE, 1, with_operands=1)
    try:

        async def has_driver() -> str:
            listed = (await daemon_sets(api)).values()
            assert driver_systems(listed)["ubuntu24.04"] == 1
            listed_pods = await api.get(PODS, fieldSelector=f"spec.nodeName={node}")
            found = {
                item["metadata"]["ownerReferences"][0]["name"]
                for item in listed_pods["items"]
                if item["status"]["phase"] == "Running"
            } - before.keys()
            assert len(found) == 1, f"{found}"
            (name,) = found
            return str(name)

        driver = await polling.eventually(has_driver, what="the driver's pod")
        await until_ready(api)
        after = {name: version(item) for name, item in (await daemon_sets(api)).items()}
        assert after[driver][1] == 1
        assert {name: after[name] for name in before} == before
    finally:
        await nodes.delete_nodes(api, [node])
    # Nobody plays its pods any more, and the collector of such pods takes its time.
    at_once = {"gracePeriodSeconds": 0}
    for item in (await api.get(PODS, fieldSelector=f"spec.nodeName={node}"))["items"]:
        await api.delete(f"{PODS}/{item['metadata']['name']}", options=at_once)

    async def is_as_before() -> bool:
        found = await daemon_sets(api)
        assert {name: version(item) for name, item in found.items()} == before, f"{found.keys()}"
        return True

    await polling.eventually(is_as_before, what=f"{driver} is gone")


async def test_a_changed_driver_is_not_ready_until_its_pods_are_replaced(
    software: NodeSoftware, api: ApiClient
):
    """By the ControllerRevisions that the real DaemonSet controller makes; nobody upgrades by himself here."""
    pods = await driver_pods(api)
    assert pods.keys() == set(software.running)
    driver = SPEC["driver"] | {
        "repository": "registry.test",
        "image": "driver",
        "version": "580.95.05",
    }
    await put(api, SPEC | {"driver": driver})
    first, *others = software.running

    async def names_all(kept: set[str]) -> bool:
        found = await state(api, "state-driver")
        message = found.get("message", "")
        named = {item for item in software.running if f"node {item}: its pod is of an" in message}
        assert (found["state"], found["reason"]) == ("notReady", "PodsNotReady"), f"{found}"
        assert named == kept, message
        return True

    async def until_named(*names: str) -> None:
        kept = set(names)
        every = functools.partial(names_all, kept)
        await polling.eventually(every, what=f"{kept} are named")
        now = await driver_pods(api)
        assert {item: now[item] for item in kept} == {item: pods[item] for item in kept}

    await until_named(first, *others)
    await api.delete(f"{PODS}/{pods[first]}")
    await until_named(*others)
    for node in others:
        await api.delete(f"{PODS}/{pods[node]}")
    await until_state(api, "state-driver", "ready", "Ready")
    await until_ready(api)
    after = await driver_pods(api)
    assert after.keys() == pods.keys()
    assert not set(after.values()) & set(pods.values())
    # Back to the driver of before.
    await put(api, SPEC)
    await until_state(api, "state-driver", "notReady", "PodsNotReady")
    for name in after.values():
        await api.delete(f"{PODS}/{name}")


async def test_two_drivers_that_select_one_node_change_nothing(
    software: NodeSoftware, api: ApiClient, kubectl: Any
):
    """The published sample, which selects every node, and one for the nodes of one system."""
    off = SPEC["driver"] | {"enabled": False}
    await put(api, SPEC | {"driver": off})
    await until_state(api, "state-driver", "disabled", "Disabled")
    await put(api, SPEC | {"driver": SPEC["driver"] | {"useNvidiaDriverCRD": True}})
    first = sample("NVIDIADriver")
    path = f"{NVIDIA_DRIVERS}/{first['metadata']['name']}"
    await kubectl.apply_yaml(first)
    await until_ready(api, path)

    async def is_everywhere() -> bool:
        """A DaemonSet's status follows the labels of its nodes a moment later."""
        (current,) = (await api.status(path))["states"]
        assert (current["nodesReady"], current["nodesTotal"]) == (RUNNING, RUNNING)
        return True

    await polling.eventually(is_everywhere, what="the driver on all nodes")
    before = await daemon_sets(api)
    assert driver_systems(before.values()) == {"ubuntu22.04": 1, "rhel9": 1}
    owners = {
        (await api.get(f"{nodes.NODES}/{name}"))["metadata"]["labels"].get(DRIVER_OWNER_LABEL)
        for name in software.running
    }
    assert owners == {first["metadata"]["name"]}

    second = first | {
        "metadata": {"name": "second"},
        "spec": first["spec"]
        | {"nodeSelector": {"feature.node.kubernetes.io/system-os_release.ID": "rhel"}},
    }
    await kubectl.apply_yaml(second)
    for item in (path, f"{NVIDIA_DRIVERS}/second"):

        async def conflicts(item: str = item) -> str:
            error = (await api.conditions(item)).get("Error", {})
            assert (error.get("status"), error.get("reason")) == (
                "True",
                "ConflictingNodeSelector",
            ), f"{error}"
            return str(error["message"])

        message = await polling.eventually(conflicts, what=f"{item} conflicts")
        assert "nvidiadriver-sample, second" in message
    after = await daemon_sets(api)
    assert {name: version(item) for name, item in after.items()} == {
        name: version(item) for name, item in before.items()
    }
    await kubectl("delete", "nvidiadriver", "second")
    await until_ready(api, path)
    await kubectl("delete", "nvidiadriver", first["metadata"]["name"])
    assert driver_systems((await daemon_sets(api)).values()) == {}


async def test_a_policy_that_vanishes_and_comes_back_costs_no_pod(
    software: NodeSoftware, api: ApiClient, kubectl: Any
):
    """The garbage collector finds its UID gone: the DaemonSets have another owner, and the new policy takes them over."""
    before, pods = await daemon_sets(api), await driver_pods(api)
    mark, path = await software.audit.mark(), f"{CLUSTER_POLICIES}/{POLICY}"
    old = (await api.get(path))["metadata"]["uid"]
    await software.server.terminate()
    await api.patch(path, {"metadata": {"finalizers": None}})
    await kubectl("delete", "clusterpolicy", POLICY)

    async def policies_of() -> set[str]:
        """Return the UIDs of policies that the DaemonSets name."""
        found = await daemon_sets(api)
        assert {name: version(item) for name, item in found.items()} == {
            name: version(item) for name, item in before.items()
        }
        owners = [owner for item in found.values() for owner in item["metadata"]["ownerReferences"]]
        return {owner["uid"] for owner in owners if owner["kind"] == "ClusterPolicy"}

    assert await policies_of() <= {old}

    async def is_forgotten() -> bool:
        assert await policies_of() == set()
        return True

    await polling.eventually(is_forgotten, what="no DaemonSet names the policy")
    await kubectl.apply_yaml(a_policy())
    await software.server.start()
    await until_ready(api)
    assert await policies_of() == {(await api.get(path))["metadata"]["uid"]}
    assert await driver_pods(api) == pods
    writes = await software.audit.writes(mark, resource="daemonsets")
    assert {item.verb for item in writes} == {"patch"}
