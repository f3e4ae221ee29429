"""`clusterpolicy`: objects of every state, once each; edits are put back, and what is not ours stays as it is."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from api.names import DRIVER_OWNER_LABEL, NVIDIA_PRESENT_LABEL, OPERAND_LABEL, OPERANDS_LABEL
from api.vendor import NFD_PREFIX
from kube.errors import NotFound
from kube.resources import (
    CLUSTER_POLICIES,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DAEMON_SETS,
    NAMESPACES,
    PROMETHEUS_RULES,
    RUNTIME_CLASSES,
    SERVICE_MONITORS,
    Resource,
)
from operands.nvidia.node_software import OS_ID_FEATURE, OS_VERSION_FEATURE
from operands.nvidia.policy_states import STATE_NAMES
from operands.nvidia.states import driver
from reconciler.node_software.policy_controller import (
    KEY,
    NFD_MISSING_S,
    NOT_READY_S,
    RECHECK_S,
)
from tests.component.reconciler.operator_world import (
    NAMESPACE,
    UBUNTU,
    OperatorWorld,
    a_foreign,
    an_operator_world,
    conditions_in,
)
from tests.component.reconciler.test_node_operands import a_definition

pytestmark = pytest.mark.looptime

READY = {"Ready": ("True", "Reconciled"), "Error": ("False", "Ready")}
NOT_READY = {"Ready": ("False", "Error"), "Error": ("True", "OperandNotReady")}


@pytest.fixture
async def world() -> AsyncIterator[OperatorWorld]:
    async with an_operator_world() as opened:
        await opened.add_node()
        yield opened


def paths(world: OperatorWorld) -> list[str]:
    return [path for _, path in world.writes()]


async def test_every_object_is_written_once_and_the_policy_becomes_ready(world: OperatorWorld):
    await world.add_policy()
    world.writes()
    await world.step()
    written = [path for path in paths(world) if "clusterpolicies" not in path]
    assert len(written) == len(set(written)) == len(await world.names()) > 40
    assert await world.step() == NOT_READY_S
    assert await world.conditions_of() == NOT_READY
    driver = await world.state_of("state-driver")
    assert (driver["state"], driver["reason"]) == ("notReady", "PodsNotReady")
    await world.ready()
    status = await world.status_of()
    assert status["state"] == "ready"
    assert status["namespace"] == NAMESPACE
    assert conditions_in(status) == READY
    assert [state["name"] for state in status["states"]] == list(STATE_NAMES)
    assert await world.step() == RECHECK_S
    driver = await world.state_of("state-driver")
    assert (driver["nodesReady"], driver["nodesTotal"]) == (1, 1)


async def test_a_quiet_hour_has_no_write(world: OperatorWorld):
    await world.add_policy()
    await world.ready()
    for _ in range(20):
        await asyncio.sleep(180)
        assert await world.step() == RECHECK_S
    assert world.writes() == []
    world.begin_term()
    assert await world.until_stable() == 0


async def test_a_dead_node_holds_no_rollout_up(world: OperatorWorld):
    await world.add_node("n2")
    await world.add_policy()
    await world.ready()

    async def limit() -> Any:
        strategy = (await world.daemon_set("nvidia-dcgm-exporter"))["spec"]["updateStrategy"]
        return strategy["rollingUpdate"]["maxUnavailable"]

    await world.set_ready("n2", "Unknown")
    for updated, expected in ((2, 1), (1, 2), (2, 1)):
        await world.client.merge_patch(
            DAEMON_SETS,
            {"status": {"updatedNumberScheduled": updated}},
            name="nvidia-dcgm-exporter",
            namespace=NAMESPACE,
            subresource="status",
        )
        await world.until_stable()
        assert await limit() == expected
    assert world.recorder.taken() == []


async def test_the_status_names_a_dead_node(world: OperatorWorld):
    """Its pod is as kubelet reported it last; only the pod's condition is another."""
    await world.add_node("n2")
    await world.add_policy()
    await world.ready()
    for node, is_ready in (("n1", "True"), ("n2", "False")):
        status = {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": is_ready}],
            "containerStatuses": [{"name": "c", "ready": True}],
        }
        await world.add_daemon_pod(await world.daemon_set("nvidia-dcgm-exporter"), node, status)
    await world.roll_out(missing={"nvidia-dcgm-exporter": 1})
    await world.until_stable()
    message = (await world.state_of("state-dcgm-exporter"))["message"]
    assert "node n2: the node is not ready" in message


async def test_a_changed_spec_reaches_an_object_that_was_written_before(world: OperatorWorld):
    await world.add_policy()
    await world.ready()
    for version in ("580.95", "590.12"):
        image = {"repository": "registry.example.com", "image": "driver", "version": version}
        await world.change_policy(driver=image)
        await world.until_stable()
        found = await world.daemon_set("nvidia-driver-daemonset-ubuntu24.04")
        (container,) = found["spec"]["template"]["spec"]["containers"]
        assert container["image"] == f"registry.example.com/driver:{version}-ubuntu24.04"
    assert world.recorder.taken() == []


async def test_an_object_without_our_label_any_more_is_ours_still(world: OperatorWorld):
    await world.add_policy()
    await world.ready()
    labels = {OPERAND_LABEL: None}
    await world.client.merge_patch(
        DAEMON_SETS,
        {"metadata": {"labels": labels}},
        name="nvidia-dcgm-exporter",
        namespace=NAMESPACE,
    )
    await world.until_stable()
    assert ("DaemonSet", "nvidia-dcgm-exporter") in await world.names()


@pytest.mark.parametrize(
    ("resource", "name", "state"),
    [
        (DAEMON_SETS, "nvidia-dcgm-exporter", "state-dcgm-exporter"),
        (RUNTIME_CLASSES, "nvidia", "pre-requisites"),
        (CLUSTER_ROLES, "nvidia-driver", "state-driver"),
    ],
)
async def test_a_foreign_object_is_neither_changed_nor_removed(
    world: OperatorWorld, resource: Resource, name: str, state: str
):
    """Lesson 50, gpu-operator#1391, gpu-operator#1301."""
    await world.client.create(resource, a_foreign(resource, name))
    where = {"namespace": NAMESPACE} if resource.namespaced else {}
    before = await world.client.get(resource, dict[str, Any], name, **where)
    await world.add_policy()
    await world.ready()
    found = await world.state_of(state)
    assert (found["state"], found["reason"]) == ("notReady", "ObjectOwnedByAnother")
    assert f"{resource.kind} {name}" in found["message"]
    assert "delete it" in found["message"]
    await world.client.delete(CLUSTER_POLICIES, "gpus")
    await world.until_stable()
    assert await world.names() == set()
    assert await world.client.get(resource, dict[str, Any], name, **where) == before


async def test_a_foreign_object_whose_list_fails_once_is_not_overwritten(world: OperatorWorld):
    await world.client.create(RUNTIME_CLASSES, a_foreign(RUNTIME_CLASSES, "nvidia"))
    before = await world.client.get(RUNTIME_CLASSES, dict[str, Any], "nvidia")
    await world.add_policy()
    # The first list of a pass is by label, the second one by name.
    world.api.faults.fail("GET", "/runtimeclasses$", 404, nth=2)
    with pytest.raises(NotFound):
        await world.until_stable()
    await world.until_stable()
    assert await world.client.get(RUNTIME_CLASSES, dict[str, Any], "nvidia") == before


async def test_a_runtime_class_of_k3s_serves_as_it_is_and_stays(world: OperatorWorld):
    foreign = a_foreign(RUNTIME_CLASSES, "nvidia") | {"handler": "nvidia"}
    await world.client.create(RUNTIME_CLASSES, foreign)
    before = await world.client.get(RUNTIME_CLASSES, dict[str, Any], "nvidia")
    await world.add_policy()
    await world.ready()
    assert (await world.state_of("pre-requisites"))["state"] == "ready"
    await world.client.delete(RUNTIME_CLASSES, "nvidia")
    await world.until_stable()
    ours = await world.client.get(RUNTIME_CLASSES, dict[str, Any], "nvidia")
    assert ours["metadata"]["labels"][OPERAND_LABEL] == "pre-requisites"
    await world.client.delete(RUNTIME_CLASSES, "nvidia")
    await world.client.create(RUNTIME_CLASSES, foreign)
    await world.client.delete(CLUSTER_POLICIES, "gpus")
    await world.until_stable()
    left = await world.client.get(RUNTIME_CLASSES, dict[str, Any], "nvidia")
    assert left["handler"] == before["handler"]
    assert OPERAND_LABEL not in left["metadata"].get("labels", {})


async def test_an_object_that_another_controller_owns_is_left_alone(world: OperatorWorld):
    owner = {
        "apiVersion": "nvidia.com/v1",
        "kind": "ClusterPolicy",
        "name": "other",
        "uid": "u",
        "controller": True,
    }
    body = a_foreign(
        DAEMON_SETS,
        "nvidia-mig-manager",
        ownerReferences=[owner],
        labels={OPERAND_LABEL: "state-mig-manager"},
    )
    await world.client.create(DAEMON_SETS, body)
    await world.add_policy(migManager={"enabled": False})
    await world.until_stable()
    await world.daemon_set("nvidia-mig-manager")
    await world.change_policy(migManager={"enabled": True})
    await world.until_stable()
    found = await world.state_of("state-mig-manager")
    assert found["reason"] == "ObjectOwnedByAnother"


async def test_a_prometheus_rule_of_an_earlier_version_is_pruned(world: OperatorWorld):
    """Lesson 45."""
    for resource in (PROMETHEUS_RULES, SERVICE_MONITORS):
        await world.client.create(CUSTOM_RESOURCE_DEFINITIONS, a_definition(resource))
    labels = {OPERAND_LABEL: "state-node-status-exporter"}
    await world.client.create(PROMETHEUS_RULES, a_foreign(PROMETHEUS_RULES, "old", labels=labels))
    await world.client.create(PROMETHEUS_RULES, a_foreign(PROMETHEUS_RULES, "theirs"))
    await world.add_policy()
    await world.until_stable()
    listing = await world.client.list_(PROMETHEUS_RULES, dict[str, Any], namespace=NAMESPACE)
    assert [item["metadata"]["name"] for item in listing.items] == ["theirs"]


async def test_roles_are_not_written_again_while_nothing_changes(world: OperatorWorld):
    """Lesson 45."""
    await world.add_policy()
    await world.until_stable()
    roles = {item["metadata"]["name"]: item for item in await world.found(CLUSTER_ROLES)}
    for _ in range(10):
        assert await world.step() == NOT_READY_S
    assert world.writes() == []
    assert roles == {item["metadata"]["name"]: item for item in await world.found(CLUSTER_ROLES)}


async def test_an_image_in_half_stops_one_state_and_takes_nothing_away(
    world: OperatorWorld,
):
    """Lesson 42, gpu-operator#667. On every pass, not at the first one only; what the state had stays on the nodes."""
    await world.add_policy()
    await world.ready()
    before = await world.names()
    del world.environment["MIG_MANAGER_IMAGE"]
    world.begin_term()
    await world.change_policy(dcgmExporter={"enabled": False})
    await world.until_stable()
    found = await world.state_of("state-mig-manager")
    assert (found["state"], found["reason"]) == ("notReady", "ImageInvalid")
    assert "ClusterPolicy gpus: spec.migManager" in found["message"]
    assert ("DaemonSet", "nvidia-mig-manager") in await world.names()
    assert {state for kind, state in before - await world.names() if kind == "DaemonSet"} == {
        "nvidia-dcgm-exporter"
    }
    status = await world.status_of()
    (error,) = [condition for condition in status["conditions"] if condition["type"] == "Error"]
    assert error["message"].startswith("ClusterPolicy is not ready; states not ready: [state-mig")
    assert "MIG_MANAGER_IMAGE" in error["message"]


async def test_without_labels_of_feature_discovery_the_policy_says_so():
    async with an_operator_world() as world:
        await world.add_node("n0", software=None, has_nfd=False)
        await world.add_policy()
        await world.until_stable()
        assert await world.step() == NFD_MISSING_S
        assert (await world.conditions_of())["Ready"] == ("True", "NFDLabelsMissing")
        assert await world.found(DAEMON_SETS) == []


async def test_without_a_node_with_a_gpu_there_is_no_daemon_set():
    async with an_operator_world() as world:
        await world.add_node("n0", software=None)
        await world.add_policy()
        await world.until_stable()
        assert await world.step() == RECHECK_S
        assert (await world.conditions_of())["Ready"] == ("True", "NoGPUNodes")
        assert await world.found(DAEMON_SETS) == []
        await world.add_node("n1")
        await world.until_stable()
        assert ("DaemonSet", "nvidia-driver-daemonset-ubuntu24.04") in await world.names()


async def test_the_policy_waits_for_the_labels_of_nodes_with_a_gpu(world: OperatorWorld):
    await world.add_policy()
    await world.ready()
    await world.add_node("n2", software=None)
    await world.label("n2", {f"{NFD_PREFIX}pci-10de.present": "true"})
    await world.until_stable()
    assert (await world.conditions_of())["Error"] == ("True", "OperandNotReady")
    status = await world.status_of()
    assert any(
        "no labels of it yet: n2" in condition["message"] for condition in status["conditions"]
    )
    await world.label("n2", {NVIDIA_PRESENT_LABEL: "true", **UBUNTU.labels()})
    await world.ready()
    assert (await world.conditions_of())["Ready"] == ("True", "Reconciled")


@pytest.mark.parametrize("use_drivers", [False, True])
async def test_a_node_that_gets_its_labels_during_a_pass_is_awaited(*, use_drivers: bool):
    """What the pass makes is not for it yet: nothing is ready before anything is there."""
    async with an_operator_world((driver.STATE,)) as world:
        await world.add_node("n1", owner="blue")
        await world.label("n1", {OPERANDS_LABEL: "false"})
        await world.add_node("n2", software=None)
        await world.label("n2", {f"{NFD_PREFIX}pci-10de.present": "true"})
        await world.add_policy(driver={"useNvidiaDriverCRD": use_drivers})
        await world.add_driver("blue")
        await world.until_stable()
        world.api.faults.delay("GET", "/serviceaccounts$", 1.0, times=2)
        async with asyncio.TaskGroup() as group:
            group.create_task(world.policy.reconcile(KEY))
            group.create_task(world.drivers.reconcile("blue"))
            await asyncio.sleep(0.5)
            labels = {NVIDIA_PRESENT_LABEL: "true", DRIVER_OWNER_LABEL: "blue", **UBUNTU.labels()}
            await world.label("n2", labels)
            await world.observe()
        status = await (world.driver_status("blue") if use_drivers else world.status_of())
        assert await world.found(DAEMON_SETS) == []
        assert conditions_in(status)["Error"] == ("True", "OperandNotReady")
        await world.ready()
        assert await world.found(DAEMON_SETS)


@pytest.mark.parametrize("use_drivers", [False, True])
async def test_a_node_of_openshift_gets_nothing_and_the_status_says_so_until_it_is_left_out(
    world: OperatorWorld, *, use_drivers: bool
):
    await world.label_node("n1", **{DRIVER_OWNER_LABEL: "blue"})
    await world.add_policy(driver={"useNvidiaDriverCRD": use_drivers})
    await world.add_driver("blue")
    await world.ready()
    before = await world.names()
    await world.add_node("n2", software=None)
    system = {OS_ID_FEATURE: "rhcos", OS_VERSION_FEATURE: "4.18"}
    await world.label("n2", {**system, NVIDIA_PRESENT_LABEL: "true"})
    await world.until_stable()
    assert await world.names() == before

    async def statuses() -> list[dict[str, Any]]:
        drivers = [await world.driver_status("blue")] if use_drivers else []
        return [await world.status_of(), *drivers]

    for status in await statuses():
        assert conditions_in(status)["Error"] == ("True", "OperatingSystemUnsupported")
        (message,) = [item["message"] for item in status["conditions"] if item["message"]]
        assert "n2" in message
        assert "OpenShift is not supported" in message
    await world.label_node("n2", **{OPERANDS_LABEL: "false"})
    await world.until_stable()
    for status in await statuses():
        assert conditions_in(status)["Ready"] == ("True", "Reconciled")
    assert await world.names() == before


async def test_of_two_policies_the_older_one_counts_and_the_other_says_so(
    world: OperatorWorld,
):
    """Lesson 43."""
    await world.add_policy("gpus")
    await world.add_policy("later", dcgmExporter={"enabled": False})
    await world.ready()
    status = await world.status_of("later")
    assert status["state"] == "ignored"
    assert conditions_in(status) == {
        "Ready": ("False", "Error"),
        "Error": ("True", "ReconcileFailed"),
    }
    assert any(
        "ClusterPolicy gpus is older" in condition["message"] for condition in status["conditions"]
    )
    assert (await world.status_of("gpus"))["state"] == "ready"
    await world.client.delete(CLUSTER_POLICIES, "gpus")
    await world.ready()
    with pytest.raises(NotFound):
        await world.status_of("gpus")
    assert (await world.status_of("later"))["state"] == "ready"
    assert ("DaemonSet", "nvidia-dcgm-exporter") not in await world.names()


async def test_beside_a_gpu_cluster_nothing_is_touched(world: OperatorWorld):
    await world.add_policy()
    await world.ready()
    definition = a_definition(
        Resource("nvidia.com", "v1alpha1", "gpuclusters", "GPUCluster", False)
    )
    definition["spec"]["scope"] = "Cluster"
    await world.client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
    gpu_clusters = Resource("nvidia.com", "v1alpha1", "gpuclusters", "GPUCluster", False)
    body = {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "GPUCluster",
        "metadata": {"name": "gpu-cluster"},
    }
    await world.client.create(gpu_clusters, body)
    before = await world.names()
    await world.change_policy(dcgmExporter={"enabled": False})
    world.api.faults.fail("GET", "/gpuclusters$", 404)
    with pytest.raises(NotFound):
        await world.until_stable()
    await world.until_stable()
    assert await world.names() == before
    status = await world.status_of()
    assert status["state"] == "notReady"
    assert conditions_in(status)["Error"] == ("True", "ReconcileFailed")
    await world.client.delete(gpu_clusters, "gpu-cluster")
    await world.until_stable()
    assert await world.names() != before


async def test_privileged_pods_are_let_into_the_namespace_where_the_policy_asks_for_it(
    world: OperatorWorld,
):
    await world.add_policy(psa={"enabled": True})
    await world.until_stable()
    namespace = await world.client.get(NAMESPACES, dict[str, Any], NAMESPACE)
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"


async def test_a_config_map_of_a_user_is_no_object_of_ours(world: OperatorWorld):
    await world.client.create(CONFIG_MAPS, a_foreign(CONFIG_MAPS, "repositories"))
    await world.add_policy(driver={"repoConfig": {"configMapName": "repositories"}})
    await world.ready()
    assert (await world.state_of("state-driver"))["state"] == "ready"
    await world.change_policy(driver={"repoConfig": {"configMapName": "missing"}})
    await world.until_stable()
    found = await world.state_of("state-driver")
    assert found["reason"] == "ConfigMapMissing"
