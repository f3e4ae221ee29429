"""Drivers of a ClusterPolicy and of NVIDIADrivers on the real control plane: closed nodes, nodes of another system, other drivers.

The pods are played as in `test_cluster_policy_life`, and each test begins with the same policy, Ready.
"""

import functools
from dataclasses import replace
from typing import Any

from agent.inventory.node_devices import PublishedFeatures
from agent.inventory.node_feature import feature_body
from api.driver_upgrade import DEPLOY_LABEL_PREFIX
from api.foreign.nodefeature import AgentNode
from api.names import DRIVER_OWNER_LABEL, POLICY_DRIVER_LABEL, NodeName
from http_edge.system_clock import SystemClock
from simulator.node.node_agent import FakeDevice
from tests.cluster.environment import nodes, polling
from tests.cluster.environment.client import ApiClient
from tests.cluster.environment.driver_fleet import DRIVER
from tests.cluster.operator_states.conftest import (
    NOBLE,
    PODS,
    POOL_TAINT,
    RHEL,
    RUNNING,
    TAINTS,
    UBUNTU,
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
from tests.cluster.system.installation import CLUSTER_POLICIES, NAMESPACE, NVIDIA_DRIVERS
from tests.support.nvidia.operator_kinds import sample

EVENTS = "/apis/events.k8s.io/v1/events"
NODE_FEATURES = f"/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/{NAMESPACE}/nodefeatures"
QUIET_S = 12
"""Longer than the time after which the controllers look at their objects again."""


async def remove(api: ApiClient, node: str, before: Json) -> None:
    """Delete a node, and wait until the DaemonSets for it alone are gone.

    Nobody plays its pods any more, and the collector of such pods takes its time.
    """
    await nodes.delete_nodes(api, [node])
    at_once = {"gracePeriodSeconds": 0}
    for item in (await api.get(PODS, fieldSelector=f"spec.nodeName={node}"))["items"]:
        await api.delete(f"{PODS}/{item['metadata']['name']}", options=at_once)

    async def is_as_before() -> bool:
        found = await daemon_sets(api)
        assert {name: version(item) for name, item in found.items()} == before, f"{found.keys()}"
        return True

    await polling.eventually(is_as_before, what=f"the DaemonSets for {node} are gone")


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
        await remove(api, node, before)


async def test_without_node_feature_discovery_the_agent_names_the_system_that_a_driver_is_for(
    software: NodeSoftware, api: ApiClient
):
    before = {name: version(item) for name, item in (await daemon_sets(api)).items()}
    (node,) = await join(api, "soft-agent", replace(NOBLE, has_features=False), 1, with_operands=1)
    device = FakeDevice(
        uuid="GPU-5f0d3c1e-8a4b-4c55-9d0e-7b1f2a6c9e10",
        address="0000:17:00.0",
        product="NVIDIA H200",
        pci_device="2335",
        memory_mib=143771,
        compute_capability="9.0",
    )
    system = {AgentNode.OS: NOBLE.name, AgentNode.OS_VERSION: NOBLE.version}
    reported = feature_body(
        PublishedFeatures(node=system, devices=(device.attributes(),)),
        node=NodeName(node),
        namespace=NAMESPACE,
        owner_uid=(await api.get(f"{nodes.NODES}/{node}"))["metadata"]["uid"],
        now=SystemClock().utc_now(),
    )
    try:
        await api.create(NODE_FEATURES, reported)

        async def has_driver() -> bool:
            found = await driver_pods(api)
            assert node in found, f"{found}"
            return True

        await polling.eventually(has_driver, what=f"the driver's pod on {node}")
        assert driver_systems((await daemon_sets(api)).values())["ubuntu24.04"] == 1
    finally:
        await remove(api, node, before)


async def test_a_node_of_openshift_gets_nothing_and_the_policy_names_it(
    software: NodeSoftware, api: ApiClient
):
    before = {name: version(item) for name, item in (await daemon_sets(api)).items()}
    rhcos = replace(RHEL, name="rhcos", version="4.18")
    (node,) = await join(api, "soft-rhcos", rhcos, 1, with_operands=1)
    try:

        async def is_named() -> bool:
            error = (await api.conditions(f"{CLUSTER_POLICIES}/{POLICY}"))["Error"]
            assert (error["status"], error["reason"]) == ("True", "OperatingSystemUnsupported"), (
                f"{error}"
            )
            assert f"{node}: OpenShift is not supported" in error["message"]
            return True

        await polling.eventually(is_named, what=f"{node} is named")
        await until_idle(software)
        labels = (await api.get(f"{nodes.NODES}/{node}"))["metadata"]["labels"]
        assert not [key for key in labels if key.startswith(DEPLOY_LABEL_PREFIX)]
        after = {name: version(item) for name, item in (await daemon_sets(api)).items()}
        assert after == before
        assert (await api.get(PODS, fieldSelector=f"spec.nodeName={node}"))["items"] == []
    finally:
        await remove(api, node, before)
    await until_ready(api)


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


async def test_two_drivers_have_daemon_sets_of_their_own_for_the_nodes_of_each(
    software: NodeSoftware, api: ApiClient, kubectl: Any
):
    """With the labels and annotations that they have for them, and with themselves as the controller."""
    await put(api, SPEC | {"driver": SPEC["driver"] | {"enabled": False}})
    await until_state(api, "state-driver", "disabled", "Disabled")
    await put(api, SPEC | {"driver": SPEC["driver"] | {"useNvidiaDriverCRD": True}})
    key, spec = "feature.node.kubernetes.io/system-os_release.ID", sample("NVIDIADriver")["spec"]
    for system in (UBUNTU.name, RHEL.name):
        own = {
            "nodeSelector": {key: system},
            "labels": {"team": system},
            "annotations": {"of": system},
        }
        item = sample("NVIDIADriver") | {"metadata": {"name": system}, "spec": spec | own}
        await kubectl.apply_yaml(item)
    for system in (UBUNTU.name, RHEL.name):
        path = f"{NVIDIA_DRIVERS}/{system}"
        await until_ready(api, path)
        metadata = [
            item["metadata"]
            for item in (await daemon_sets(api)).values()
            if item["metadata"]["labels"].get(POLICY_DRIVER_LABEL) == system
        ]
        assert len(metadata) == 1
        assert metadata[0]["labels"]["team"] == system
        assert metadata[0]["annotations"]["of"] == system
        controllers = [
            item["uid"] for item in metadata[0]["ownerReferences"] if item.get("controller")
        ]
        assert controllers == [(await api.get(path))["metadata"]["uid"]]
    running = {name: software.systems[name].name for name in software.running}

    async def have_theirs() -> bool:
        listed = (await api.get(PODS, labelSelector=DRIVER))["items"]
        found = {item["spec"]["nodeName"]: item["metadata"]["labels"]["team"] for item in listed}
        assert found == running
        return True

    await polling.eventually(have_theirs, what="a driver of its own on each node")
    await kubectl("delete", "nvidiadriver", UBUNTU.name, RHEL.name)


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
