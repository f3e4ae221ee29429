"""Drivers for the tests of their objects: of a ClusterPolicy and of an NVIDIADriver, and what one field changes in them."""

import os
from collections.abc import Mapping
from typing import Any

import msgspec

from api.kinds.nvidia.clusterpolicy import ClusterPolicySpec
from api.kinds.nvidia.nvidiadriver import NVIDIADriverSpec
from api.kinds.nvidia.operator_blocks import DaemonsetsSpec, HostPaths
from manifests.yaml import render
from operands.nvidia.driver_daemonsets import DRIVER_STATE, DriverOperands
from operands.nvidia.drivers.config_digest import DIGEST_VARIABLE
from operands.nvidia.node_software import HostSoftware
from operands.nvidia.policy_operands import PolicyOperands
from operands.nvidia.states import driver
from operands.operand_state import ALL_KINDS_SERVED
from tests.unit.operands.nvidia.state_changes import GOLDEN, _leaves

Json = dict[str, Any]

IMAGES = {
    f"{name}_IMAGE": f"registry.example.com/{name.lower()}:1"
    for name in (
        "DRIVER",
        "DRIVER_MANAGER",
        "GDRCOPY",
        "GDS",
        "VALIDATOR",
        "VGPU_DEVICE_MANAGER",
        "VGPU_MANAGER",
    )
}
UBUNTU = HostSoftware(os_tag="ubuntu24.04", kernel="6.8.0-60-generic", runtime="containerd")
NEWER_KERNEL = HostSoftware(os_tag="ubuntu24.04", kernel="6.8.0-71-generic", runtime="containerd")
RHEL = HostSoftware(os_tag="rhel9", kernel="5.14.0-570.el9.x86_64", runtime="containerd")
RHEL_CRI_O = HostSoftware(os_tag="rhel9", kernel="5.14.0-570.el9.x86_64", runtime="cri-o")
SLES = HostSoftware(os_tag="sles15.6", kernel="6.4.0-150600.23.47-default", runtime="containerd")
UNKNOWN = HostSoftware(os_tag="", kernel="", runtime="")
CONFIG_KEYS = {
    "certificates": ("ca.crt",),
    "nothing": (),
    "parameters": ("nvidia.conf", "nvidia-uvm.conf"),
    "repositories": ("custom.list",),
}
"""ConfigMaps of the namespace."""
OWN: Json = {"repository": "registry.example.com/own", "image": "driver", "version": "580"}


def a_policy(*software: HostSoftware, **spec: Any) -> PolicyOperands:
    """A ClusterPolicy, its spec in JSON, for nodes of this software: of one Ubuntu, if none is given."""
    return PolicyOperands(
        name="gpus",
        spec=msgspec.convert(spec, ClusterPolicySpec),
        namespace="gpu",
        environment=IMAGES,
        software=software or (UBUNTU,),
        config_keys=CONFIG_KEYS,
    )


def a_driver(
    *software: HostSoftware,
    name: str = "fast",
    daemonsets: Mapping[str, Any] | None = None,
    host_paths: Mapping[str, Any] | None = None,
    **spec: Any,
) -> DriverOperands:
    """An NVIDIADriver, its spec in JSON."""
    return DriverOperands(
        name=name,
        uid="7d0b",
        spec=msgspec.convert({**OWN, **spec}, NVIDIADriverSpec),
        namespace="gpu",
        environment=IMAGES,
        host_paths=msgspec.convert(host_paths or {}, HostPaths),
        software=software or (UBUNTU,),
        daemonsets=msgspec.convert(daemonsets or {}, DaemonsetsSpec),
        config_keys=CONFIG_KEYS,
    )


def objects_of(operands: PolicyOperands | DriverOperands) -> list[Json]:
    if isinstance(operands, DriverOperands):
        return DRIVER_STATE.objects(operands, ALL_KINDS_SERVED)
    return driver.STATE.objects(operands, ALL_KINDS_SERVED)


def daemon_sets(operands: PolicyOperands | DriverOperands) -> dict[str, Json]:
    """Return the DaemonSets by name."""
    return {
        object_["metadata"]["name"]: object_
        for object_ in objects_of(operands)
        if object_["kind"] == "DaemonSet"
    }


def pod_of(operands: PolicyOperands | DriverOperands) -> Json:
    """Return the pod's spec of the only DaemonSet."""
    (found,) = daemon_sets(operands).values()
    spec: Json = found["spec"]["template"]["spec"]
    return spec


def container(operands: PolicyOperands | DriverOperands, name: str) -> Json:
    pod = pod_of(operands)
    (found,) = (
        item for item in (*pod["initContainers"], *pod["containers"]) if item["name"] == name
    )
    result: Json = found
    return result


def env_of(one: Json) -> dict[str, str]:
    """Return the variables of a container but for those of a field of the pod."""
    return {item["name"]: item.get("value", "") for item in one["env"] if "valueFrom" not in item}


def digest_of(daemon_set: Json) -> str:
    """Return the digest that a DaemonSet tells its pods; nothing without one."""
    spec = daemon_set["spec"]["template"]["spec"]
    reported = (
        env_of(item) for item in (*spec["initContainers"], *spec["containers"]) if "env" in item
    )
    return next((item[DIGEST_VARIABLE] for item in reported if DIGEST_VARIABLE in item), "")


def mounts_of(one: Json) -> dict[str, str]:
    """Return the volumes of a container by their place."""
    return {mount["mountPath"]: mount["name"] for mount in one["volumeMounts"]}


def changed(
    before: PolicyOperands | DriverOperands, after: PolicyOperands | DriverOperands
) -> dict[str, Any]:
    """Return each field that differs by its path, with its new value; the digest aside."""
    old, new = (dict(_leaves(objects_of(item))) for item in (before, after))
    return {
        path: new.get(path)
        for path in sorted(old.keys() | new.keys())
        if old.get(path) != new.get(path) and DIGEST_VARIABLE not in path
    }


def check_golden(operands: PolicyOperands | DriverOperands, folder: str, case: str) -> None:
    """Compare the objects with those that were read and approved."""
    text = render(objects_of(operands))
    file = GOLDEN / folder / f"{case}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), "run `make golden` and read the difference"
