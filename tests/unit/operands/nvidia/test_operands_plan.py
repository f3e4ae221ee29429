"""A plan says what runs on each node with which image, and of everything else why it does not."""

from typing import Any

import msgspec
import pytest

from api.driver_upgrade import DEPLOY_LABEL_PREFIX
from api.kinds.nvidia.clusterpolicy import ClusterPolicy
from api.kinds.nvidia.nvidiadriver import NVIDIADriver
from api.kinds.nvidia.sandbox_operands import WorkloadType
from api.vendor import NFD_PREFIX
from operands.nvidia.label_change import LabelledNode
from operands.nvidia.node_software import OS_ID_FEATURE, OS_VERSION_FEATURE
from operands.nvidia.operands_plan import (
    NodePlan,
    OperandPlan,
    OperandSources,
    StateOnNode,
    plan_operands,
)
from operands.nvidia.policy_states import STATE_NAMES
from tests.unit.operands.nvidia.policy_cases import IMAGES, NAMESPACE, ON, REGISTRY, SANDBOX

Json = dict[str, Any]
UBUNTU = {
    f"{NFD_PREFIX}system-os_release.ID": "ubuntu",
    f"{NFD_PREFIX}system-os_release.VERSION_ID": "24.04",
}
RHEL = {
    f"{NFD_PREFIX}system-os_release.ID": "rhel",
    f"{NFD_PREFIX}system-os_release.VERSION_ID": "9.6",
}
GPU = {f"{NFD_PREFIX}pci-10de.present": "true"}
KERNEL = "6.8.0-60-generic"
ALL_ON = {**ON, "operator": {}, "daemonsets": {}}
DRIVER = "state-driver"
PLUGIN = "state-device-plugin"


def a_node(
    *, runtime: str = "containerd://2.1.4", is_in_pool: bool = False, **labels: dict[str, str]
) -> LabelledNode:
    """A node with a GPU and Ubuntu; `system` and `labels` are dictionaries of labels."""
    found = {**GPU, **labels.get("system", UBUNTU), **labels.get("labels", {})}
    return LabelledNode(
        labels=found, runtime_version=runtime, kernel_version=KERNEL, is_in_pool=is_in_pool
    )


def a_policy(
    name: str = "gpus", created: str = "2026-11-01T00:00:00Z", **spec: Any
) -> ClusterPolicy:
    metadata = {"name": name, "creationTimestamp": created}
    return msgspec.convert({"metadata": metadata, "spec": {**ALL_ON, **spec}}, ClusterPolicy)


def a_driver(name: str, **spec: Any) -> NVIDIADriver:
    image = {"repository": REGISTRY, "version": name}
    body = {"metadata": {"name": name, "uid": name}, "spec": {**image, "image": "driver", **spec}}
    return msgspec.convert(body, NVIDIADriver)


def planned(
    policy: ClusterPolicy | None = None, *drivers: NVIDIADriver, **nodes: LabelledNode
) -> OperandPlan:
    return plan_operands(
        OperandSources(
            policies=[policy or a_policy()],
            drivers=drivers,
            nodes=nodes or {"n1": a_node()},
            namespace=NAMESPACE,
            environment=IMAGES,
        )
    )


def node_of(plan: OperandPlan, name: str = "n1") -> NodePlan:
    return next(node for node in plan.nodes if node.name == name)


def state_of(plan: OperandPlan, state: str, node: str = "n1") -> StateOnNode:
    return next(item for item in node_of(plan, node).states if item.state == state)


def test_every_state_is_on_a_node_or_for_the_cluster_or_off():
    plan = planned()
    on_node = {item.state for item in node_of(plan).states}
    others = {"state-vgpu-manager"} & set(plan.off)
    assert others == {"state-vgpu-manager"}
    assert on_node | set(plan.cluster) | set(plan.off) == set(STATE_NAMES)
    assert all(plan.off.values())
    assert plan.faults == ()


def test_a_node_gets_the_image_of_its_system():
    plan = planned(n1=a_node(), n2=a_node(system=RHEL, runtime="cri-o://1.33"))
    image = IMAGES["DRIVER_IMAGE"]
    assert state_of(plan, DRIVER).images[0][1] == f"{image}-ubuntu24.04"
    assert state_of(plan, DRIVER, "n2").images[0][1] == f"{image}-rhel9"
    assert state_of(plan, "state-container-toolkit", "n2").daemon_set.endswith("-cri-o")


def test_a_node_without_a_gpu_gets_nothing():
    plan = planned(n1=a_node(), cpu=LabelledNode(labels=UBUNTU))
    assert [node.name for node in plan.nodes] == ["n1"]
    assert plan.without_gpu == ("cpu",)


def test_a_node_in_a_pool_has_neither_plugin_nor_mig_manager():
    capable = {"nvidia.com/mig.capable": "true"}
    plan = planned(n1=a_node(is_in_pool=True, labels=capable))
    for state in (PLUGIN, "state-mps-control-daemon", "state-mig-manager"):
        found = state_of(plan, state)
        assert (found.runs, found.reason) == (False, "DeviceInPool")
        assert "GPUPool" in found.message
    assert state_of(plan, DRIVER).runs


@pytest.mark.parametrize(
    ("value", "reason"),
    [("paused-for-driver-upgrade", "Paused"), ("false", "SwitchedOffOnNode")],
)
def test_a_deploy_label_that_keeps_an_operand_away_is_named(value: str, reason: str):
    key = f"{DEPLOY_LABEL_PREFIX}dcgm"
    found = state_of(planned(n1=a_node(labels={key: value})), "state-dcgm")
    assert (found.runs, found.reason) == (False, reason)
    assert f"{key}={value}" in found.message


def test_a_node_with_all_operands_off_says_by_which_label():
    node = node_of(planned(n1=a_node(labels={"nvidia.com/gpu.deploy.operands": "false"})))
    assert node.workload is None
    assert [state for state in node.states if state.runs] == []
    assert "nvidia.com/gpu.deploy.operands=false" in " ".join(node.notes)


@pytest.mark.parametrize(
    "labels",
    [
        {OS_ID_FEATURE: "rhcos", OS_VERSION_FEATURE: "4.18"},
        {OS_ID_FEATURE: "rhel", OS_VERSION_FEATURE: "9.4", "node.openshift.io/os_id": "rhel"},
    ],
)
def test_a_node_of_openshift_gets_nothing_and_the_plan_says_that_it_is_not_supported(
    labels: dict[str, str],
):
    alone = planned(n1=a_node())
    plan = planned(n1=a_node(), n2=a_node(labels=labels))
    node = node_of(plan, "n2")
    assert (node.workload, node.states) == (None, ())
    assert "OpenShift is not supported" in " ".join(node.notes)
    (fault,) = plan.faults
    assert (fault.subject, fault.reason) == ("nodes n2", "OperatingSystemUnsupported")
    assert plan.nodes[0] == alone.nodes[0]
    off = {**labels, "nvidia.com/gpu.deploy.operands": "false"}
    assert planned(n2=a_node(labels=off)).faults == ()


def test_a_driver_for_an_unknown_system_is_missing_on_that_node_only():
    plan = planned(n1=a_node(), n2=a_node(system={}))
    found = state_of(plan, DRIVER, "n2")
    assert (found.runs, found.reason) == (False, "NodeSoftwareUnknown")
    assert "system-os_release" in found.message
    assert state_of(plan, DRIVER).runs


def test_an_image_in_half_is_a_fault_of_its_state_alone():
    plan = planned(a_policy(gfd={"enabled": True, "repository": REGISTRY, "version": "1"}))
    (fault,) = plan.faults
    assert (fault.subject, fault.reason) == ("gpu-feature-discovery", "ImageInvalid")
    assert "spec.gfd.image is empty" in fault.message
    assert not state_of(plan, "gpu-feature-discovery").runs
    assert state_of(plan, PLUGIN).runs


def test_the_oldest_policy_counts_and_the_others_are_named():
    older = a_policy("old", "2026-10-01T00:00:00Z")
    sources = OperandSources(
        policies=[a_policy(), older],
        nodes={"n1": a_node()},
        namespace=NAMESPACE,
        environment=IMAGES,
    )
    plan = plan_operands(sources)
    assert (plan.policy, plan.ignored) == ("old", ("gpus",))


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        (WorkloadType.CONTAINER, {DRIVER, PLUGIN}),
        (WorkloadType.VM_PASSTHROUGH, {"state-vfio-manager", "state-sandbox-device-plugin"}),
        (WorkloadType.VM_VGPU, {"state-vgpu-manager", "state-vgpu-device-manager"}),
    ],
)
def test_the_workload_of_a_node_decides_about_its_states(
    workload: WorkloadType, expected: set[str]
):
    label = {"nvidia.com/gpu.workload.config": workload.value}
    plan = planned(a_policy(**SANDBOX), n1=a_node(labels=label))
    running = {item.state for item in node_of(plan).states if item.runs}
    assert node_of(plan).workload is workload
    assert running >= expected
    others = {DRIVER, PLUGIN, "state-vfio-manager", "state-vgpu-manager"} - expected
    assert running.isdisjoint(others)


BY_OBJECTS = {"enabled": True, "useNvidiaDriverCRD": True}


def test_each_node_gets_the_driver_of_its_owner():
    plan = planned(
        a_policy(driver=BY_OBJECTS),
        a_driver("new", nodeSelector={"zone": "a"}),
        a_driver("rest", default=True),
        n1=a_node(labels={"zone": "a"}),
        n2=a_node(system=RHEL),
    )
    assert node_of(plan).driver == "NVIDIADriver new"
    assert node_of(plan, "n2").driver == "NVIDIADriver rest"
    assert state_of(plan, DRIVER).images[0][1] == f"{REGISTRY}/driver:new-ubuntu24.04"
    assert state_of(plan, DRIVER, "n2").images[0][1] == f"{REGISTRY}/driver:rest-rhel9"
    assert "useNvidiaDriverCRD" in plan.off[DRIVER]


def test_drivers_that_select_one_node_are_a_fault_with_both_names():
    plan = planned(a_policy(driver=BY_OBJECTS), a_driver("a"), a_driver("b"), n1=a_node())
    (fault,) = plan.faults
    assert fault.subject == "NVIDIADrivers a, b"
    found = state_of(plan, DRIVER)
    assert (found.runs, found.reason) == (False, "ConflictingNodeSelector")
    assert node_of(plan).driver == ""


def test_a_node_that_no_driver_selects_says_so():
    plan = planned(a_policy(driver=BY_OBJECTS), a_driver("a", nodeSelector={"zone": "a"}))
    assert state_of(plan, DRIVER).reason == "NoDriverOwner"
    (hint,) = plan.hints
    assert "zone=a" in hint


def test_a_driver_object_that_the_policy_does_not_ask_for_does_nothing():
    plan = planned(a_policy(), a_driver("a"))
    (hint,) = plan.hints
    assert "NVIDIADriver a does nothing" in hint
    assert node_of(plan).driver == "ClusterPolicy gpus"


@pytest.mark.parametrize("state", STATE_NAMES)
def test_a_state_that_is_off_names_the_field(state: str):
    names = [item for item in ALL_ON if item not in {"operator", "daemonsets"}]
    spec: Json = {name: {"enabled": False} for name in names}
    plan = planned(a_policy(**spec, cdi={"enabled": True, "nriPluginEnabled": True}))
    if state == "state-operator-validation":
        assert state not in plan.off
    elif state in {"state-kata-manager", "state-operator-metrics"}:
        assert plan.off[state]
    else:
        assert plan.off[state].startswith("spec.")
