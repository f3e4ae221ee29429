"""Coming from NVIDIA's GPU Operator on the real control plane: what it made first, then our server, then `operands adopt`.

kube-controller-manager makes the pods of the operator's DaemonSets and of ours, kube-scheduler binds them, and kwok plays
them. The audit log says which pods came and went.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from api.driver_upgrade import UPGRADE_REQUESTED_ANNOTATION
from api.names import OPERAND_LABEL
from cli.main import run
from tests.cluster.environment import nodes, polling
from tests.cluster.environment.client import ApiClient
from tests.cluster.environment.driver_fleet import DriverFleet
from tests.cluster.operator_states.conftest import (
    DAEMON_SETS,
    PODS,
    POOL_TAINT,
    UBUNTU,
    Installation,
    NodeSoftware,
)
from tests.cluster.operator_states.policies import (
    POLICY,
    SPEC,
    Json,
    a_policy,
    daemon_sets,
    put,
    state,
    until_ready,
    until_state,
)
from tests.cluster.system.installation import CLUSTER_POLICIES, NAMESPACE
from tests.support.nvidia.operator_release import (
    DRIVER,
    GATES,
    PLUGIN,
    VALIDATOR,
    operators_account,
    operators_cluster_role,
    operators_daemon_set,
)

if TYPE_CHECKING:
    from tests.cluster.environment.components import Kwok
    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.environment.kubectl import Kubectl

COUNT = 50
TOOLKIT = "nvidia-container-toolkit-daemonset"
MADE = (DRIVER, TOOLKIT, VALIDATOR, PLUGIN)
IMAGE = "registry.test/driver:1-ubuntu22.04"
OFF = ("dcgm", "dcgmExporter", "nodeStatusExporter", "gfd", "migManager", "sandboxWorkloads")
WITHOUT_OTHERS = SPEC | {name: {"enabled": False} for name in OFF}
AUTOMATIC = SPEC["driver"] | {"upgradePolicy": {"autoUpgrade": True}}
REQUESTED = {"metadata": {"annotations": {UPGRADE_REQUESTED_ANNOTATION: "true"}}}
POLICY_PATH = f"{CLUSTER_POLICIES}/{POLICY}"


@pytest.fixture(scope="module")
def software(
    control_plane: "ControlPlane", kubectl: "Kubectl", kwok: "Kwok"
) -> Iterator[NodeSoftware]:
    """Nodes, and a server that does not run yet."""
    del kwok
    installation = Installation(control_plane, kubectl)

    async def install() -> NodeSoftware:
        found = await installation.prepare()
        await installation.add_nodes(found, UBUNTU, "adopt", COUNT, with_operands=COUNT, taints=())
        return found

    try:
        yield asyncio.run(install())
    finally:
        asyncio.run(installation.uninstall())


async def release(software: NodeSoftware, api: ApiClient) -> None:
    """Make what the operator makes, and wait until its pods run."""
    labels = {"nvidia.com/gpu.present": "true"}
    labels |= {f"nvidia.com/gpu.deploy.{gate}": "true" for gate, _ in GATES.values()}
    for name in software.systems:
        await api.patch(f"{nodes.NODES}/{name}", {"metadata": {"labels": labels}})
    await api.create(CLUSTER_POLICIES, a_policy() | {"spec": WITHOUT_OTHERS})
    policy = await api.get(POLICY_PATH)
    role = operators_cluster_role("nvidia-driver", policy)
    await api.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", role)
    for name in MADE:
        account = operators_account(GATES[name][1], policy, namespace=NAMESPACE)
        await api.create(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", account)
        body = operators_daemon_set(name, policy, namespace=NAMESPACE, driver_image=IMAGE)
        await api.create(DAEMON_SETS, body)

    async def run_all() -> bool:
        found = Counter(app for app, _ in (await running(api)).values())
        assert found == dict.fromkeys(MADE, COUNT), found
        return True

    await polling.eventually(run_all, what="the operator's pods")


async def running(api: ApiClient) -> dict[str, tuple[str, str]]:
    """Return `app` and node of each pod of the namespace that runs, by UID."""
    return {
        item["metadata"]["uid"]: (
            item["metadata"]["labels"].get("app", ""),
            item["spec"]["nodeName"],
        )
        for item in (await api.get(PODS))["items"]
        if item["status"].get("phase") == "Running" and "deletionTimestamp" not in item["metadata"]
    }


async def plugin_images(api: ApiClient) -> dict[str, str]:
    """Return the image of the device plugin by node; a pod that is not bound yet is on none."""
    listed = await api.get(PODS, labelSelector=f"app={PLUGIN}")
    return {
        item["spec"]["nodeName"]: item["spec"]["containers"][0]["image"]
        for item in listed["items"]
        if "nodeName" in item["spec"]
    }


async def test_fifty_nodes_are_handed_over_and_no_pod_restarts(
    software: NodeSoftware, api: ApiClient, progress: Callable[[str], None]
):
    await release(software, api)
    before = await running(api)
    driver = await api.get(f"{DAEMON_SETS}/{DRIVER}")
    mark = await software.audit.mark()
    await software.server.start()
    found = await until_state(api, "state-driver", "notReady", "AlreadyRuns")
    assert f"DaemonSet {NAMESPACE}/{DRIVER} of another client" in found["message"]
    assert (await daemon_sets(api)).keys() == {"nvidia-device-plugin-mps-control-daemon"}
    await check_taint_is_named(api, next(iter(software.systems)))

    kubeconfig = str(software.control_plane.kubeconfig())
    command = ["operands", "adopt", "--kubeconfig", kubeconfig, "--namespace", NAMESPACE]
    assert await asyncio.to_thread(run, [*command, "--dry-run"]) == 0
    assert (await daemon_sets(api)).keys() == {"nvidia-device-plugin-mps-control-daemon"}
    assert await asyncio.to_thread(run, command) == 0
    await until_ready(api)

    after = await running(api)
    assert before.items() <= after.items()
    # Nor did any come and go meanwhile.
    pods = await software.audit.writes(mark, resource="pods")
    assert Counter(write.verb for write in pods if write.verb != "patch") == {}
    kept = await api.get(f"{DAEMON_SETS}/{DRIVER}")
    assert kept["metadata"]["uid"] == driver["metadata"]["uid"]
    assert kept["spec"]["selector"] == driver["spec"]["selector"]
    driver["spec"]["template"]["spec"]["tolerations"].append({"operator": "Exists"})
    assert kept["spec"]["template"] == driver["spec"]["template"]
    progress(f"{COUNT} nodes: 0 driver pods replaced, 0 plugin pods away, {len(after)} pods run on")


async def check_taint_is_named(api: ApiClient, node: str) -> None:
    """Check that a node keeps the operator's driver, whose DaemonSet tolerates no taint of a pool, and that its taint is named."""
    path, fleet = f"{nodes.NODES}/{node}", DriverFleet(api=api, policy=POLICY_PATH)
    await api.patch(path, {"spec": {"taints": [POOL_TAINT]}} | REQUESTED)
    taint = f"taint {POOL_TAINT['key']}:NoSchedule"
    await put(api, WITHOUT_OTHERS | {"driver": AUTOMATIC})
    entry = await fleet.entry(node, "DriverKeptAway")
    assert f"DaemonSet {DRIVER} does not tolerate {taint}" in entry["message"], f"{entry}"

    async def is_told() -> bool:
        return any(taint in event["note"] for event in await fleet.events(node))

    await polling.eventually(is_told, what="an Event with the taint")
    await fleet.until([node], "upgrade-required")
    no_request = {"metadata": {"annotations": {UPGRADE_REQUESTED_ANNOTATION: None}}}
    await api.patch(path, {"spec": {"taints": None}} | no_request)
    await put(api, WITHOUT_OTHERS)


async def test_a_node_gets_pods_of_ours_when_its_driver_is_upgraded(
    software: NodeSoftware, api: ApiClient
):
    await put(api, WITHOUT_OTHERS | {"driver": AUTOMATIC})
    node, *others = software.systems
    before = await running(api)
    await api.patch(f"{nodes.NODES}/{node}", REQUESTED)

    async def is_upgraded() -> Any:
        found = await plugin_images(api)
        assert found.get(node) == "registry.test/device-plugin:1", found.get(node)
        return found

    images = await polling.eventually(is_upgraded, what="a plugin of ours")
    assert {images[name] for name in others} == {"nvcr.io/nvidia/device-plugin:1"}
    await until_ready(api)
    after = await running(api)
    away = {app_and_node for uid, app_and_node in before.items() if uid not in after}
    assert {name for _, name in away} == {node}
    assert Counter(after.values()).most_common(1)[0][1] == 1


async def test_the_driver_s_pods_stay_for_another_driver_until_their_nodes_are_upgraded(
    software: NodeSoftware, api: ApiClient
):
    other: Json = {"repository": "registry.test", "image": "driver", "version": "2"}
    before = {uid for uid, (app, _) in (await running(api)).items() if app == DRIVER}
    await put(api, WITHOUT_OTHERS | {"driver": SPEC["driver"] | other})

    async def is_outdated() -> bool:
        found = await state(api, "state-driver")
        assert "its pod is of an earlier version" in found.get("message", ""), f"{found}"
        return True

    await polling.eventually(is_outdated, what="the state of the driver")
    assert before <= (await running(api)).keys()
    item = await api.get(f"{DAEMON_SETS}/{DRIVER}")
    assert item["spec"]["template"]["spec"]["containers"][0]["image"] == (
        "registry.test/driver:2-ubuntu22.04"
    )


@pytest.mark.parametrize(
    ("state_name", "block", "name"),
    [
        ("state-device-plugin", "devicePlugin", PLUGIN),
        # Its `app` is another one than ours: it is told by its component.
        ("state-driver", "driver", DRIVER),
    ],
)
async def test_beside_a_daemon_set_of_another_namespace_nothing_starts(
    software: NodeSoftware, api: ApiClient, state_name: str, block: str, name: str
):
    """A state that is switched off leaves nothing of what it took over, either."""
    del software
    await put(api, WITHOUT_OTHERS | {block: WITHOUT_OTHERS[block] | {"enabled": False}})

    async def has_daemon_set(*, expected: bool) -> bool:
        found = await daemon_sets(api)
        states = {item["metadata"]["labels"][OPERAND_LABEL] for item in found.values()}
        assert (state_name in states) is expected, f"{states}"
        return True

    await polling.eventually(lambda: has_daemon_set(expected=False), what="no DaemonSet")
    policy = await api.get(POLICY_PATH)
    body = operators_daemon_set(name, policy, namespace="default")
    # No node has it, and software may label one.
    body["spec"]["template"]["spec"]["nodeSelector"] = {"nvidia.com/gpu.family": "hopper"}
    theirs = "/apis/apps/v1/namespaces/default/daemonsets"
    await api.create(theirs, body)
    await put(api, WITHOUT_OTHERS)
    found = await until_state(api, state_name, "notReady", "AlreadyRuns")
    assert f"DaemonSet default/{name} of another client" in found["message"]
    await has_daemon_set(expected=False)
    await api.delete(f"{theirs}/{name}")
    await polling.eventually(lambda: has_daemon_set(expected=True), what="a DaemonSet of ours")
