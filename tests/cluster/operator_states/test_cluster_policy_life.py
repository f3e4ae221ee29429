"""A ClusterPolicy and NVIDIADrivers on the real control plane: objects, status, edits, groups of nodes, and the end.

kube-controller-manager makes the pods of the DaemonSets, kube-scheduler binds them, and kwok plays them. The tests go on
where the one before ended, and each begins with the same policy, Ready.
"""

import asyncio
import functools
import json
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from api.names import (
    DRIVER_OWNER_LABEL,
    NVIDIA_PRESENT_LABEL,
    OPERAND_LABEL,
    OPERANDS_LABEL,
    PRESENT_LABEL,
)
from operands.nvidia.policy_states import STATE_NAMES
from tests.cluster.environment import definitions, nodes, polling
from tests.cluster.environment.client import ApiClient
from tests.cluster.operator_states.conftest import (
    ALL,
    DAEMON_SETS,
    NOBLE,
    PLURALS,
    PODS,
    POOL_TAINT,
    RUNNING,
    TAINTS,
    NodeSoftware,
    join,
    until_idle,
    written,
)
from tests.cluster.operator_states.policies import (
    CONTAINER_STATES,
    DISABLED_IN_SAMPLE,
    EVERYWHERE,
    POLICY,
    POOL,
    REVISIONS,
    SPEC,
    Json,
    a_daemon_set,
    a_policy,
    a_pool,
    daemon_sets,
    driver_pods,
    driver_systems,
    objects,
    put,
    state,
    until_ready,
    until_state,
    version,
)
from tests.cluster.system.installation import (
    CLUSTER_POLICIES,
    NAMESPACE,
    NVIDIA_DRIVERS,
    SERVER_USER,
)
from tests.support.nvidia.operator_kinds import sample

EVENTS = "/apis/events.k8s.io/v1/events"
QUIET_S = 12
"""Longer than the time after which the controllers look at their objects again."""


@pytest.fixture
async def software(node_software: NodeSoftware, api: ApiClient) -> NodeSoftware:
    """The policy of these tests, Ready."""
    await put(api, SPEC)
    await until_ready(api)
    return node_software


async def test_many_nodes_cost_one_write_an_object_and_none_at_rest(
    node_software: NodeSoftware, api: ApiClient, kubectl: Any, progress: Callable[[str], None]
):
    """The figure is that of the objects of all twelve states of containers."""
    software = node_software
    mark, begun = await software.audit.mark(), time.monotonic()
    await kubectl.apply_yaml(a_policy())
    applied = time.monotonic()

    async def are_there() -> bool:
        found = await daemon_sets(api)
        assert found.keys() >= EVERYWHERE, f"missing: {EVERYWHERE - found.keys()}"
        assert driver_systems(found.values()) == {"ubuntu22.04": 1, "rhel9": 1}
        return True

    await polling.eventually(are_there, what="all DaemonSets")
    there = time.monotonic()
    progress(
        f"{ALL} nodes: all DaemonSets are there {there - begun:.1f} s after the start of kubectl"
        f" apply, {there - applied:.1f} s after its end"
    )
    status = await until_ready(api)
    progress(f"Ready {time.monotonic() - begun:.1f} s after the start of kubectl apply")
    found = await objects(api)
    assert sum(item.get("objects", 0) for item in status["states"]) == len(found)
    current = {item["metadata"]["labels"][OPERAND_LABEL] for item in found.values()}
    assert current == CONTAINER_STATES
    await until_idle(software)
    writes = await written(software, mark)
    failed = [write for write in writes if not write.succeeded]
    # Kubelets change nodes as well: a patch of what has changed since is made again.
    assert {(item.resource, item.status) for item in failed} <= {("nodes", 409)}, failed
    writes = [write for write in writes if write.succeeded]
    of_objects = Counter(
        (write.resource, write.name) for write in writes if write.resource in PLURALS
    )
    assert of_objects == Counter(found.keys()), of_objects - Counter(found.keys())
    of_nodes = Counter(write.name for write in writes if write.resource == "nodes")
    assert of_nodes == Counter(software.systems.keys()), of_nodes.most_common(3)
    remaining = Counter(
        write.resource for write in writes if write.resource not in {*PLURALS, "nodes"}
    )
    progress(
        f"{len(found)} objects, {len(of_nodes)} nodes: one write each; besides: {dict(remaining)}"
    )
    assert remaining.pop("clusterpolicies") == 1  # its finalizer

    quiet = await software.audit.mark()
    # A stretch of real time is what this is about.
    await asyncio.sleep(QUIET_S)
    assert await written(software, quiet) == []


async def test_the_published_sample_is_ready_with_every_state_listed(
    software: NodeSoftware, api: ApiClient
):
    await put(api, sample("ClusterPolicy")["spec"])
    status = await until_ready(api)
    assert status["namespace"] == NAMESPACE
    current = {item["name"]: item for item in status["states"]}
    assert list(current) == list(STATE_NAMES)
    disabled = {name for name, item in current.items() if item["state"] == "disabled"}
    assert disabled == DISABLED_IN_SAMPLE
    assert {item["state"] for item in current.values()} == {"ready", "disabled"}
    for name in ("state-driver", "state-container-toolkit", "state-operator-validation"):
        counts = current[name]["nodesReady"], current[name]["nodesTotal"]
        assert counts == (RUNNING, RUNNING), f"{current[name]}"
    listed = await api.get(PODS)
    pods = Counter(
        item["spec"]["nodeName"] for item in listed["items"] if item["status"]["phase"] == "Running"
    )
    assert pods.keys() == set(software.running)


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
        assert after.pop(driver)[1] == 1
        assert after == before
    finally:
        await nodes.delete_nodes(api, [node])
    # Nobody plays its pods any more, and the collector of such pods takes its time.
    at_once = {"gracePeriodSeconds": 0}
    for item in (await api.get(PODS, fieldSelector=f"spec.nodeName={node}"))["items"]:
        await api.delete(f"{PODS}/{item['metadata']['name']}", options=at_once)

    async def is_gone() -> bool:
        found = await daemon_sets(api)
        assert driver not in found, f"{found[driver]['status']}"
        return True

    await polling.eventually(is_gone, what=f"{driver} is gone")
    assert {name: version(item) for name, item in (await daemon_sets(api)).items()} == before


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


async def test_an_edit_is_put_back_and_told_once(
    software: NodeSoftware, api: ApiClient, kubectl: Any
):
    name, mark = "nvidia-dcgm-exporter", await software.audit.mark()
    before = await api.get(f"{DAEMON_SETS}/{name}")
    image = f"{name}=registry.test/other:1"
    await kubectl("set", "image", f"daemonset/{name}", image, "-n", NAMESPACE)

    async def is_put_back() -> bool:
        after = await api.get(f"{DAEMON_SETS}/{name}")
        assert after["metadata"]["generation"] > before["metadata"]["generation"] + 1
        assert after["spec"] == before["spec"]
        return True

    await polling.eventually(is_put_back, what="the DaemonSet of before")

    async def is_reported() -> list[Json]:
        listed = await api.get(EVENTS, fieldSelector="reason=GPUOperandRestored")
        found = [item for item in listed["items"] if item["regarding"]["name"] == name]
        assert found, "no Event"
        return found

    (event,) = await polling.eventually(is_reported, what="the Event")
    assert event["regarding"]["kind"] == "DaemonSet"
    assert "another client changed this object" in event["note"]
    assert "series" not in event or event["series"] is None
    await until_ready(api)
    await until_idle(software)
    writes = [item for item in await written(software, mark) if item.resource == "daemonsets"]
    assert [write.name for write in writes] == [name]


async def test_a_state_that_is_off_leaves_nothing_and_takes_no_object_of_another(
    software: NodeSoftware, api: ApiClient, kubectl: Any
):
    name = "gpu-feature-discovery"
    before = await objects(api, name)
    assert {plural for plural, _ in before} >= {"daemonsets", "serviceaccounts"}
    await put(api, SPEC | {"gfd": {"enabled": False}})
    await until_state(api, name, "disabled", "Disabled")
    assert await objects(api, name) == {}
    listed = await api.get(PODS, labelSelector=f"app={name}")
    assert listed["items"] == []

    await kubectl.apply_yaml(a_daemon_set(name))
    foreign = await api.get(f"{DAEMON_SETS}/{name}")
    await put(api, SPEC)
    found = await until_state(api, name, "notReady", "ObjectOwnedByAnother")
    assert f"DaemonSet {name}" in found["message"]
    conditions = await api.conditions(f"{CLUSTER_POLICIES}/{POLICY}")
    assert (conditions["Error"]["status"], conditions["Error"]["reason"]) == (
        "True",
        "OperandNotReady",
    )
    assert version(await api.get(f"{DAEMON_SETS}/{name}")) == version(foreign)

    # And it stays where the state goes again.
    await put(api, SPEC | {"gfd": {"enabled": False}})
    await until_state(api, name, "disabled", "Disabled")
    assert version(await api.get(f"{DAEMON_SETS}/{name}")) == version(foreign)
    await put(api, SPEC)
    await kubectl("delete", "daemonset", name, "-n", NAMESPACE)
    await until_ready(api)
    assert (await objects(api, name)).keys() == before.keys()


async def test_a_second_policy_is_ignored(software: NodeSoftware, api: ApiClient, kubectl: Any):
    mark = await software.audit.mark()
    second = "another-policy"  # by name it would be the first
    await kubectl.apply_yaml(a_policy(second, gfd={"enabled": False}))
    path = f"{CLUSTER_POLICIES}/{second}"

    async def is_ignored() -> Json:
        status = await api.status(path)
        assert status.get("state") == "ignored", f"{status}"
        return status

    status = await polling.eventually(is_ignored, what="it is ignored")
    (error,) = [condition for condition in status["conditions"] if condition["type"] == "Error"]
    assert error["status"] == "True"
    assert POLICY in error["message"]
    await kubectl("delete", "clusterpolicy", second)
    await until_idle(software)
    writes = Counter((item.resource, item.name) for item in await written(software, mark))
    assert writes.keys() == {("clusterpolicies/status", second)}


async def test_a_service_monitor_comes_with_its_kind(
    software: NodeSoftware, api: ApiClient, kubectl: Any, monitors: Json
):
    before = await objects(api)
    assert not [name for plural, name in before if plural == "servicemonitors"]
    await kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(monitors))
    await definitions.until_served(kubectl, [monitors])

    async def is_there() -> set[str]:
        found = {name for plural, name in await objects(api) if plural == "servicemonitors"}
        assert "nvidia-dcgm-exporter" in found, f"{found}"
        return found

    await polling.eventually(is_there, what="the ServiceMonitor")
    await until_ready(api)
    after = await objects(api)
    assert {name: version(item) for name, item in after.items() if name[0] == "daemonsets"} == {
        name: version(item) for name, item in before.items() if name[0] == "daemonsets"
    }


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


async def test_a_deleted_policy_leaves_in_order_and_takes_nothing_of_others(
    software: NodeSoftware, api: ApiClient, kubectl: Any, progress: Callable[[str], None]
):
    found = await objects(api)
    foreign, node = "nvidia-foreign", software.running[0]
    await kubectl.apply_yaml(a_daemon_set(foreign))
    others = {"nvidia.com/gpu.product": "NVIDIA-H200", "nvidia.com/gpu.deploy.foreign": "true"}
    await api.patch(f"{nodes.NODES}/{node}", {"metadata": {"labels": others}})
    before = {
        item["metadata"]["name"]: item["metadata"]["labels"]
        for item in (await api.get(nodes.NODES))["items"]
    }
    assert before[node][NVIDIA_PRESENT_LABEL] == "true"
    await until_idle(software)
    mark, begun = await software.audit.mark(), time.monotonic()
    # In the foreground the garbage collector would delete what has no other owner at once.
    how = "--cascade=foreground"
    await kubectl("delete", "clusterpolicy", POLICY, how, timeout_s=polling.PATIENCE_S)
    progress(f"deleted with {len(found)} objects after {time.monotonic() - begun:.1f} s")

    assert await api.find(f"{CLUSTER_POLICIES}/{POLICY}") == {}
    assert await objects(api) == {}
    assert (await api.get(PODS))["items"] == []
    await api.get(f"{DAEMON_SETS}/{foreign}")
    await kubectl("delete", "daemonset", foreign, "-n", NAMESPACE)
    for name, system in software.systems.items():
        labels = (await api.get(f"{nodes.NODES}/{name}"))["metadata"]["labels"]
        kept = {
            "kubernetes.io/hostname",
            "kubernetes.io/os",
            PRESENT_LABEL,
            *system.labels,
            *({OPERANDS_LABEL} & before[name].keys()),
            *(others if name == node else ()),
        }
        assert labels == {key: before[name][key] for key in kept}, f"{name}: {labels}"

    writes = await written(software, mark)
    assert all(write.succeeded for write in writes), [
        write for write in writes if not write.succeeded
    ]
    order = [write for write in writes if write.resource != "clusterpolicies/status"]
    assert (order[-1].resource, order[-1].verb) == ("clusterpolicies", "patch")
    stages = [item.resource for item in order[:-1]]
    assert [*dict.fromkeys(stages)][:2] == ["nodes", "daemonsets"]
    assert stages == sorted(stages, key=[*dict.fromkeys(stages)].index)
    deleted = Counter((item.resource, item.name) for item in order if item.verb == "delete")
    assert deleted == Counter(found.keys())
    # The pods ended while they had their accounts and roles.
    every = await software.audit.writes(mark)
    ended = max(
        n for n, item in enumerate(every) if (item.resource, item.verb) == ("pods", "delete")
    )
    roles = min(
        n
        for n, item in enumerate(every)
        if item.user == SERVER_USER
        and item.resource in {"serviceaccounts", "clusterroles", "roles"}
    )
    assert ended < roles
