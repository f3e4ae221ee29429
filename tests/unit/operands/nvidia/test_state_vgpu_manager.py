"""States `state-vgpu-manager` and `state-vgpu-device-manager`: the driver of hosts of virtual GPUs, and their layouts."""

import functools
import re
from typing import Any

import pytest
import yaml

from operands.nvidia.devices.vgpu_layouts import PRODUCTS, layouts_text
from operands.nvidia.node_software import HostSoftware
from operands.nvidia.policy_operands import StateFault, StateSettingsError
from operands.nvidia.states import vgpu_device_manager, vgpu_manager
from operands.operand_state import ALL_KINDS_SERVED
from tests.support.kubernetes_schemas import check_object
from tests.unit.operands.nvidia.driver_cases import (
    RHEL,
    RHEL_CRI_O,
    UBUNTU,
    UNKNOWN,
    a_policy,
    env_of,
)
from tests.unit.operands.nvidia.state_changes import State

ON: dict[str, Any] = {
    "sandboxWorkloads": {"enabled": True},
    "vgpuManager": {"enabled": True},
    "vgpuDeviceManager": {"enabled": True},
}
BOTH = (vgpu_manager.STATE, vgpu_device_manager.STATE)


def objects(state: State, *software: HostSoftware, **spec: Any) -> list[dict[str, Any]]:
    parts = {name: {**ON.get(name, {}), **part} for name, part in spec.items()}
    return state.objects(a_policy(*software, **{**ON, **parts}), ALL_KINDS_SERVED)


def daemon_sets(state: State, *software: HostSoftware, **spec: Any) -> dict[str, dict[str, Any]]:
    found = objects(state, *software, **spec)
    return {item["metadata"]["name"]: item for item in found if item["kind"] == "DaemonSet"}


@pytest.mark.parametrize("state", BOTH, ids=lambda state: state.name)
def test_the_state_is_on_with_virtual_machines_and_its_switch(state):
    assert objects(state)
    assert objects(state, sandboxWorkloads={"enabled": False}) == []
    for block in ("vgpuManager", "vgpuDeviceManager"):
        is_own = block.lower() in state.name.replace("-", "")
        assert bool(objects(state, **{block: {"enabled": False}})) is not is_own


@pytest.mark.parametrize("state", BOTH, ids=lambda state: state.name)
def test_kubernetes_takes_the_objects(state):
    for object_ in objects(state, RHEL, UBUNTU):
        check_object(object_, "1.30")
        check_object(object_, "1.37")


def test_each_system_has_its_manager_whatever_the_runtime():
    found = daemon_sets(vgpu_manager.STATE, RHEL, RHEL_CRI_O, UBUNTU)
    assert {
        name: item["spec"]["template"]["spec"]["containers"][0]["image"]
        for name, item in found.items()
    } == {
        f"nvidia-vgpu-manager-daemonset-{tag}": f"registry.example.com/vgpu_manager:1-{tag}"
        for tag in ("rhel9", "ubuntu24.04")
    }


def test_fields_of_the_manager_reach_its_container():
    block = {
        "args": ["init", "-x"],
        "env": [{"name": "LEVEL", "value": "debug"}],
        "imagePullSecrets": ["a"],
        "driverManager": {"env": [{"name": "ENABLE_GPU_POD_EVICTION", "value": "true"}]},
        "kernelModuleConfig": {"name": "parameters"},
        "hostNetwork": True,
        "resources": {"limits": {"memory": "1Gi"}},
    }
    ((_, found),) = daemon_sets(vgpu_manager.STATE, vgpuManager=block).items()
    pod = found["spec"]["template"]["spec"]
    (main,), (manager,) = pod["containers"], pod["initContainers"]
    assert main["args"] == ["init", "-x"]
    assert env_of(main) == {"LEVEL": "debug"}
    assert env_of(manager)["ENABLE_GPU_POD_EVICTION"] == "true"
    assert "/drivers/nvidia.conf" in [mount["mountPath"] for mount in main["volumeMounts"]]
    assert main["resources"] == manager["resources"] == {"limits": {"memory": "1Gi"}}
    assert pod["imagePullSecrets"] == [{"name": "a"}]
    assert pod["hostNetwork"] is True


def test_hosts_of_an_unknown_system_are_told():
    policy = a_policy(UNKNOWN, UBUNTU, **ON)
    assert set(vgpu_manager.nodes_without_manager(policy)) == {UNKNOWN}
    assert vgpu_manager.nodes_without_manager(a_policy(UNKNOWN)) == {}
    assert len(daemon_sets(vgpu_manager.STATE, UNKNOWN, UBUNTU)) == 1
    with pytest.raises(StateSettingsError, match=r"spec\.vgpuManager") as caught:
        objects(vgpu_manager.STATE, UNKNOWN)
    assert caught.value.fault is StateFault.OS_UNKNOWN


def test_parameters_of_modules_must_be_there():
    spec = {"vgpuManager": {"enabled": True, "kernelModuleConfig": {"name": "absent"}}}
    assert vgpu_manager.config_maps_of_policy(a_policy(**{**ON, **spec})) == {"absent"}
    assert vgpu_manager.config_maps_of_policy(a_policy(**spec)) == frozenset()
    with pytest.raises(StateSettingsError, match=r"vgpuManager\.kernelModuleConfig"):
        objects(vgpu_manager.STATE, **spec)


def test_an_image_in_half_names_the_field():
    for spec in ({"version": "1"}, {"driverManager": {"version": "1"}}):
        with pytest.raises(StateSettingsError, match=r"spec\.vgpuManager") as caught:
            objects(vgpu_manager.STATE, vgpuManager=spec)
        assert caught.value.fault is StateFault.IMAGE_INVALID


def test_layouts_are_those_of_the_spec_or_the_default_ones():
    state = vgpu_device_manager.STATE
    default = objects(state)
    assert [item["metadata"]["name"] for item in default if item["kind"] == "ConfigMap"] == [
        "default-vgpu-devices-config"
    ]
    own = objects(state, vgpuDeviceManager={"config": {"name": "mine", "default": "A10-4Q"}})
    assert "ConfigMap" not in [item["kind"] for item in own]
    pod = own[-1]["spec"]["template"]["spec"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["vgpu-config"]["configMap"] == {"name": "mine"}
    assert env_of(pod["containers"][0])["DEFAULT_VGPU_CONFIG"] == "A10-4Q"
    assert env_of(default[-1]["spec"]["template"]["spec"]["containers"][0]) == {
        "CONFIG_FILE": "/vgpu-config/config.yaml",
        "DEFAULT_VGPU_CONFIG": "default",
    }


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        # Of NVIDIA's vGPU User Guide.
        ("DC-1-2Q", 48),
        ("DC-1-16Q", 2),
        ("DC-2-16CGFX", 6),
        ("DC-16Q", 6),
        ("6000D-1-42QGFX", 2),
        ("A10-1Q", 24),
        ("A10-12Q", 2),
        ("A40-1Q", 32),
        ("A30-1-6C", 4),
        ("A100D-4C", 20),
        ("H100-1-10C", 7),
        ("H100-7-80C", 1),
        ("H200-8C", 16),
        ("L40S-48Q", 1),
        ("RTX8000P-4C", 8),
        ("T4-16Q", 1),
    ],
)
def test_a_layout_has_as_many_virtual_gpus_as_a_device_holds(kind: str, number: int):
    layouts = read_layouts()
    assert layouts[kind] == [{"devices": "all", "vgpu-devices": {kind: number}}]


def test_there_are_as_many_layouts_as_in_the_gpu_operator():
    assert len(read_layouts()) == 711


@functools.cache
def read_layouts() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(layouts_text())["vgpu-configs"]
    return found


def test_the_default_layout_has_a_known_type_for_each_device():
    layouts = read_layouts()
    devices = []
    for item in layouts["default"]:
        ((kind, number),) = item["vgpu-devices"].items()
        ((_, most),) = layouts[kind][0]["vgpu-devices"].items()
        assert 1 <= number <= most
        assert re.fullmatch("0x[0-9A-F]{4}10DE", item["device-filter"])
        devices.append(item["device-filter"])
    assert len(devices) == sum(len(item.devices) for item in PRODUCTS.values())
