"""What a ClusterPolicy says about virtual machines, RuntimeClasses and the operator's metrics, in the objects."""

import os

import pytest

from manifests import constants
from manifests.monitoring.monitors import build_service_monitor
from manifests.yaml import render
from operands.nvidia.policy_operands import PolicyOperands, StateFault, StateSettingsError
from operands.nvidia.policy_states import POLICY_STATES
from operands.operand_state import ALL_KINDS_SERVED
from operands.transforms import container_of, object_of, pod_spec_of
from tests.unit.operands.nvidia.policy_cases import (
    CASES,
    METRICS,
    SANDBOX,
    a_full_policy,
    a_policy,
    objects_of,
)
from tests.unit.operands.nvidia.state_changes import GOLDEN

FULL_CASES = {
    "pre-requisites": "custom",
    "state-operator-metrics": "custom",
    "state-sandbox-validation": "custom-kata",
    "state-vfio-manager": "custom",
    "state-sandbox-device-plugin": "custom",
    "state-kata-device-plugin": "custom-kata",
    "state-cc-manager": "custom-kata",
}
"""State -> a case in which it runs, with whatever a policy may say."""
DEFAULTS = {
    "custom": "container-kubevirt-cdi-containerd",
    "custom-kata": "container-kata-cdi-containerd",
}
KATA = {"sandboxWorkloads": {"enabled": True, "mode": "kata"}}


def built(state: str, settings: PolicyOperands):
    (found,) = (item for item in POLICY_STATES if item.name == state)
    return found.objects(settings, ALL_KINDS_SERVED)


def daemon_set(state: str, settings: PolicyOperands):
    return object_of(built(state, settings), "DaemonSet")


def env(container) -> dict[str, str]:
    return {item["name"]: item.get("value", "") for item in container["env"]}


def init_names(one) -> list[str]:
    return [container["name"] for container in pod_spec_of(one)["initContainers"]]


@pytest.mark.parametrize("state", FULL_CASES)
@pytest.mark.parametrize("is_custom", [False, True], ids=["default", "custom"])
def test_objects_are_the_approved_ones(state: str, is_custom: bool):
    case = FULL_CASES[state] if is_custom else DEFAULTS[FULL_CASES[state]]
    text = render(objects_of(case)[state])
    file = GOLDEN / state / f"{'custom' if is_custom else 'default'}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), "run `make golden` and read the difference"


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("container-kubevirt-cdi-containerd", {"nvidia": "nvidia", "nvidia-cdi": "nvidia-cdi", "nvidia-legacy": "nvidia-legacy"}),
        ("container-kubevirt-no-cdi-containerd", {"nvidia": "nvidia"}),
        ("container-kubevirt-nri-containerd", {}),
        ("custom", {"gpus": "gpus", "nvidia-cdi": "nvidia-cdi", "nvidia-legacy": "nvidia-legacy"}),
        ("class-of-cdi", {"nvidia-cdi": "nvidia-cdi", "nvidia-legacy": "nvidia-legacy"}),
    ],
)  # fmt: skip
def test_runtime_classes_follow_from_cdi(case: str, expected: dict[str, str]):
    found = objects_of(case)["pre-requisites"]
    assert {item["metadata"]["name"]: item["handler"] for item in found} == expected


def test_metrics_of_the_servers_are_read_as_by_the_installation_s_own_monitor():
    service = object_of(objects_of("monitored")["state-operator-metrics"], "Service")
    monitor = object_of(objects_of("monitored")["state-operator-metrics"], "ServiceMonitor")
    own = build_service_monitor("gpu", "30s", {}, ca_secret=METRICS.ca_secret)
    (endpoint,), (of_installation,) = monitor["spec"]["endpoints"], own["spec"]["endpoints"]
    for key in ("path", "scheme", "tlsConfig"):
        assert endpoint[key] == of_installation[key]
    (port,) = service["spec"]["ports"]
    assert port["targetPort"] == of_installation["port"]
    assert endpoint["port"] == port["name"] == "gpu-operator-metrics"
    assert service["spec"]["selector"] == constants.component_labels(constants.SERVER_COMPONENT)
    selected = monitor["spec"]["selector"]["matchLabels"]
    assert selected.items() <= service["metadata"]["labels"].items()
    assert not selected.items() <= constants.component_labels(constants.METRICS_COMPONENT).items()


@pytest.mark.parametrize(
    "settings",
    [
        a_policy(),
        a_policy(operator={"metrics": {"serviceMonitor": {"enabled": False}}}),
    ],
    ids=["not-asked-for", "off"],
)
def test_nothing_is_read_twice_or_against_the_policy(settings: PolicyOperands):
    assert [item["kind"] for item in built("state-operator-metrics", settings)] == ["Service"]


def test_the_validator_checks_confidential_computing_only_where_its_manager_runs():
    """The manager runs with Kata Containers only: otherwise the step would wait for ever."""
    steps = ["vfio-pci-validation", "vgpu-manager-validation", "vgpu-devices-validation"]
    state = "state-sandbox-validation"
    assert init_names(daemon_set(state, a_full_policy(**SANDBOX))) == steps
    without = a_full_policy(**KATA, ccManager={"enabled": False})
    assert init_names(daemon_set(state, without)) == steps
    assert init_names(daemon_set(state, a_full_policy(**KATA))) == ["cc-manager-validation", *steps]


def test_the_validator_knows_the_default_workload_and_the_variables_of_each_step():
    sandbox = {"enabled": True, "defaultWorkload": "vm-vgpu"}
    step = {"env": [{"name": "A", "value": "1"}]}
    settings = a_full_policy(sandboxWorkloads=sandbox, validator={"vgpuDevices": step})
    found = daemon_set("state-sandbox-validation", settings)
    for name in init_names(found):
        variables = env(container_of(found, name))
        assert variables["DEFAULT_GPU_WORKLOAD_CONFIG"] == "vm-vgpu"
        assert variables.get("A") == ("1" if name == "vgpu-devices-validation" else None)


def test_devices_are_free_before_they_are_bound_and_the_root_of_the_node_is_where_it_is_mounted():
    found = daemon_set("state-vfio-manager", CASES["custom"])
    manager = container_of(found, "k8s-driver-manager")
    assert manager["image"] == "registry.example.com/nvidia/k8s-driver-manager:2.0"
    assert env(manager)["LEVEL"] == "debug"
    main = container_of(found, "nvidia-vfio-manager")
    assert env(main)["HOST_ROOT"] == "/host"
    elsewhere = a_full_policy(**SANDBOX, hostPaths={"rootFS": "/node"})
    main = container_of(daemon_set("state-vfio-manager", elsewhere), "nvidia-vfio-manager")
    assert env(main)["HOST_ROOT"] == "/host"
    assert {"name": "host-root", "mountPath": "/host"} in main["volumeMounts"]


def test_the_default_mode_of_confidential_computing_is_the_policy_s():
    without = env(
        container_of(daemon_set("state-cc-manager", a_full_policy(**KATA)), "nvidia-cc-manager")
    )
    assert "DEFAULT_CC_MODE" not in without
    settings = a_full_policy(**KATA, ccManager={"defaultMode": "on"})
    main = container_of(daemon_set("state-cc-manager", settings), "nvidia-cc-manager")
    assert env(main)["DEFAULT_CC_MODE"] == "on"


@pytest.mark.parametrize(
    ("field", "state", "spec"),
    [
        ("vfioManager", "state-vfio-manager", SANDBOX),
        ("vfioManager.driverManager", "state-vfio-manager", SANDBOX),
        ("sandboxDevicePlugin", "state-sandbox-device-plugin", SANDBOX),
        ("kataSandboxDevicePlugin", "state-kata-device-plugin", KATA),
        ("ccManager", "state-cc-manager", KATA),
        ("validator", "state-sandbox-validation", SANDBOX),
        ("validator", "state-sandbox-device-plugin", SANDBOX),
    ],
)
def test_half_of_an_image_is_named_with_its_field(field: str, state: str, spec):
    name, _, part = field.partition(".")
    half = {"repository": "registry.example.com"}
    settings = a_full_policy(**spec, **{name: {part: half} if part else half})
    with pytest.raises(
        StateSettingsError, match=rf"ClusterPolicy gpus: spec\.{field}\.image is empty"
    ) as raised:
        built(state, settings)
    assert raised.value.fault is StateFault.IMAGE_INVALID
