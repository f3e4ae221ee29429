"""A ClusterPolicy on the real control plane, from its first object to its last: status, edits, states that go and come.

kube-controller-manager makes the pods of the DaemonSets, kube-scheduler binds them, and kwok plays them. States of containers
and of virtual machines go the same way.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from api.names import NVIDIA_PRESENT_LABEL, OPERAND_LABEL, OPERANDS_LABEL, PRESENT_LABEL
from operands.nvidia.policy_states import STATE_NAMES
from tests.cluster.environment import definitions, nodes, polling
from tests.cluster.environment.client import ApiClient
from tests.cluster.operator_states.conftest import (
    ALL,
    DAEMON_SETS,
    MACHINES,
    PLURALS,
    PODS,
    RUNNING,
    NodeSoftware,
    until_idle,
    written,
)
from tests.cluster.operator_states.policies import (
    DISABLED_IN_SAMPLE,
    EVERYWHERE,
    OF_KATA,
    POLICY,
    SPEC,
    STATES,
    Json,
    a_daemon_set,
    a_policy,
    daemon_sets,
    driver_systems,
    objects,
    put,
    state,
    until_ready,
    until_state,
    version,
)
from tests.cluster.system.installation import CLUSTER_POLICIES, NAMESPACE, SERVER_USER
from tests.support.nvidia.operator_kinds import sample

EVENTS = "/apis/events.k8s.io/v1/events"
QUIET_S = 12
"""Longer than the time after which the controllers look at their objects again."""


async def test_many_nodes_cost_one_write_an_object_and_none_at_rest(
    node_software: NodeSoftware, api: ApiClient, kubectl: Any, progress: Callable[[str], None]
):
    software = node_software
    mark, begun = await software.audit.mark(), time.monotonic()
    await kubectl.apply_yaml(a_policy())
    applied = time.monotonic()

    async def are_there() -> bool:
        found = await daemon_sets(api)
        assert found.keys() >= EVERYWHERE, f"missing: {EVERYWHERE - found.keys()}"
        for name in ("state-driver", "state-vgpu-manager"):
            assert driver_systems(found.values(), name) == {"ubuntu22.04": 1, "rhel9": 1}
        return True

    await polling.eventually(are_there, what="all DaemonSets")
    there = time.monotonic()
    progress(
        f"{ALL} nodes: all DaemonSets are there {there - begun:.1f} s after the start of kubectl"
        f" apply, {there - applied:.1f} s after its end"
    )
    await until_ready(api)
    progress(f"Ready {time.monotonic() - begun:.1f} s after the start of kubectl apply")

    async def are_counted() -> dict[tuple[str, str], Json]:
        """Pods that run at once make a state Ready in the pass that still creates its objects."""
        states, found = (await until_ready(api))["states"], await objects(api)
        assert sum(item.get("objects", 0) for item in states) == len(found), f"{states}"
        return found

    found = await polling.eventually(are_counted, what="states that count their objects")
    current = {item["metadata"]["labels"][OPERAND_LABEL] for item in found.values()}
    assert current == STATES
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
    everywhere = RUNNING + MACHINES
    for name in ("state-driver", "state-container-toolkit", "state-operator-validation"):
        counts = current[name]["nodesReady"], current[name]["nodesTotal"]
        assert counts == (everywhere, everywhere), f"{current[name]}"
    listed = await api.get(PODS)
    pods = Counter(
        item["spec"]["nodeName"] for item in listed["items"] if item["status"]["phase"] == "Running"
    )
    assert pods.keys() == {*software.running, *software.machines}


@pytest.mark.parametrize(
    ("config_map", "key", "layout"),
    [
        ("default-mig-parted-config", "mig-configs", "all-7g.189gb"),
        ("default-vgpu-devices-config", "vgpu-configs", "DC-16Q"),
    ],
)
async def test_default_layouts_are_there_for_the_newest_products(
    software: NodeSoftware, api: ApiClient, config_map: str, key: str, layout: str
):
    del software
    found = await api.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{config_map}")
    assert layout in yaml.safe_load(found["data"]["config.yaml"])[key]


async def test_an_edit_is_put_back_and_told_once(
    software: NodeSoftware, api: ApiClient, kubectl: Any
):
    """Lesson 44."""
    name, mark = "nvidia-vfio-manager", await software.audit.mark()
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


@pytest.mark.parametrize(
    ("state_name", "daemon_set", "block"),
    [
        ("gpu-feature-discovery", "gpu-feature-discovery", "gfd"),
        ("state-vgpu-device-manager", "nvidia-vgpu-device-manager", "vgpuDeviceManager"),
    ],
)
async def test_a_state_that_is_off_leaves_nothing_and_takes_no_object_of_another(
    software: NodeSoftware,
    api: ApiClient,
    kubectl: Any,
    state_name: str,
    daemon_set: str,
    block: str,
):
    del software
    off = SPEC | {block: {"enabled": False}}
    before = await objects(api, state_name)
    assert {plural for plural, _ in before} >= {"daemonsets", "serviceaccounts"}
    await put(api, off)
    await until_state(api, state_name, "disabled", "Disabled")
    assert await objects(api, state_name) == {}
    listed = await api.get(PODS, labelSelector=f"app={daemon_set}")
    assert listed["items"] == []

    await kubectl.apply_yaml(a_daemon_set(daemon_set))
    foreign = await api.get(f"{DAEMON_SETS}/{daemon_set}")
    await put(api, SPEC)
    found = await until_state(api, state_name, "notReady", "ObjectOwnedByAnother")
    assert f"DaemonSet {daemon_set}" in found["message"]
    conditions = await api.conditions(f"{CLUSTER_POLICIES}/{POLICY}")
    assert (conditions["Error"]["status"], conditions["Error"]["reason"]) == (
        "True",
        "OperandNotReady",
    )
    assert version(await api.get(f"{DAEMON_SETS}/{daemon_set}")) == version(foreign)

    # And it stays where the state goes again.
    await put(api, off)
    await until_state(api, state_name, "disabled", "Disabled")
    assert version(await api.get(f"{DAEMON_SETS}/{daemon_set}")) == version(foreign)
    await put(api, SPEC)
    await kubectl("delete", "daemonset", daemon_set, "-n", NAMESPACE)
    await until_ready(api)
    assert (await objects(api, state_name)).keys() == before.keys()


async def test_virtual_machines_of_kata_containers_have_states_of_their_own(
    software: NodeSoftware, api: ApiClient
):
    before, replaced = await daemon_sets(api), "state-sandbox-device-plugin"
    await put(api, SPEC | {"sandboxWorkloads": {"enabled": True, "mode": "kata"}})

    async def have_pods() -> bool:
        """Only a node whose devices are passed through gets the plugin."""
        nodes_of = {name: await state(api, name) for name in OF_KATA}
        counts = {
            name: (item.get("nodesReady"), item.get("nodesTotal"))
            for name, item in nodes_of.items()
        }
        expected = {"state-kata-device-plugin": (1, 1), "state-cc-manager": (MACHINES, MACHINES)}
        assert counts == expected, f"{nodes_of}"
        return True

    await polling.eventually(have_pods, what="pods of Kata's states")
    await until_state(api, replaced, "disabled", "Disabled")
    await until_ready(api)
    assert await objects(api, replaced) == {}
    kept = before.keys() - {"nvidia-sandbox-device-plugin-daemonset"}
    assert (await daemon_sets(api)).keys() == kept | {*OF_KATA.values()}
    await put(api, SPEC)
    await until_ready(api)
    assert (await daemon_sets(api)).keys() == before.keys()


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
