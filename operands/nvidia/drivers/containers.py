"""Containers of a driver's pod, each with what the spec says about it.

In manifests the images of the containers beside the driver's are the words `gds` and `gdrcopy`.
"""

from typing import TYPE_CHECKING, Any, Final

import msgspec

from api.kinds.nvidia.driver_blocks import KernelModuleType
from api.kinds.nvidia.probe_defaults import further_probe, startup_probe
from operands.nvidia.policy_transforms import add_pull_secrets, containers_of, set_image
from operands.transforms import container_of, pod_spec_of, set_env, without_container

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from api.kinds.nvidia.driver_blocks import ContainerProbe
    from api.kinds.nvidia.operand_block import EnvVar, PodFields
    from operands.nvidia.drivers.description import DriverDescription
    from operands.nvidia.drivers.groups import DriverGroup

Json = dict[str, Any]

DRIVER: Final = "nvidia-driver-ctr"
PEERMEM: Final = "nvidia-peermem-ctr"
GDS: Final = "nvidia-fs-ctr"
GDRCOPY: Final = "nvidia-gdrcopy-ctr"
_ON: Final = "true"
_IS_LOADED: Final = {"exec": {"command": ["sh", "-c", "test -f /sys/module/nvidia/refcnt"]}}
"""Command of probes that the spec asks for: nvidia-smi hangs on a device that fell off the bus, and no restart
helps that."""


def variables(env: "Iterable[EnvVar] | None") -> dict[str, str]:
    return {item.name: item.value for item in env or ()}


def set_pod_fields(daemon_set: Json, block: "PodFields") -> None:
    """Set resources on every container, and the network."""
    resources = msgspec.to_builtins(block.resources)
    if resources:
        for container in containers_of(daemon_set):
            container["resources"] = resources
    if block.host_network:
        spec = pod_spec_of(daemon_set)
        spec["hostNetwork"] = True
        spec["dnsPolicy"] = "ClusterFirstWithHostNet"


def set_driver(daemon_set: Json, driver: "DriverDescription", group: "DriverGroup") -> None:
    """Set image, arguments, variables and probes of the driver's own container."""
    spec, container = driver.spec, container_of(daemon_set, DRIVER)
    set_image(container, driver.image(group), spec)
    add_pull_secrets(daemon_set, spec)
    container["args"] = list(driver.args)
    set_env(container, {**_features(driver), **variables(spec.env)})
    _set_secret(container, driver)
    if driver.hosts_virtual_gpus:
        del container["startupProbe"], container["lifecycle"]
    else:
        start = startup_probe(spec.startup_probe, is_precompiled=driver.is_precompiled)
        container["startupProbe"] |= _timing(start)
    for name, given in (
        ("livenessProbe", spec.liveness_probe),
        ("readinessProbe", spec.readiness_probe),
    ):
        probe = further_probe(given)
        if probe is not None:
            container[name] = {**_IS_LOADED, **_timing(probe)}


def _features(driver: "DriverDescription") -> dict[str, str]:
    modules = driver.spec.kernel_module_type
    return {
        "KERNEL_MODULE_TYPE": modules.value,
        # Images of before KERNEL_MODULE_TYPE know this one.
        **({"OPEN_KERNEL_MODULES_ENABLED": _ON} if modules is KernelModuleType.OPEN else {}),
        **({"GDS_ENABLED": _ON} if driver.gds.is_enabled else {}),
        **({"GDRCOPY_ENABLED": _ON} if driver.gdrcopy.is_enabled else {}),
        **rdma_variables(driver),
    }


def rdma_variables(driver: "DriverDescription") -> dict[str, str]:
    """Return the variables of GPUDirect RDMA for the driver and k8s-driver-manager."""
    rdma = driver.spec.rdma
    if not rdma.is_enabled:
        return {}
    host = {"USE_HOST_MOFED": _ON} if rdma.use_host_mofed else {}
    return {"GPU_DIRECT_RDMA_ENABLED": _ON, **host}


def set_peermem(daemon_set: Json, driver: "DriverDescription", group: "DriverGroup") -> None:
    """Set, or remove, the container of nvidia-peermem: the driver's image has it."""
    rdma = driver.spec.rdma
    if not rdma.is_enabled:
        without_container(daemon_set, PEERMEM)
        return
    container = container_of(daemon_set, PEERMEM)
    set_image(container, driver.image(group), driver.spec)
    if rdma.use_host_mofed:
        set_env(container, {"USE_HOST_MOFED": _ON})
        (source,) = (
            volume
            for volume in pod_spec_of(daemon_set)["volumes"]
            if volume["name"] == "mlnx-ofed-usr-src"
        )
        source["hostPath"]["path"] = "/usr/src"


def set_gds(daemon_set: Json, driver: "DriverDescription", group: "DriverGroup") -> None:
    """Set, or remove, the container of nvidia-fs."""
    if not driver.gds.is_enabled:
        without_container(daemon_set, GDS)
        return
    container = container_of(daemon_set, GDS)
    set_image(container, driver.gds_image(group), driver.gds)
    add_pull_secrets(daemon_set, driver.gds)
    set_env(container, variables(driver.gds.env))
    _set_secret(container, driver)


def set_gdrcopy(daemon_set: Json, driver: "DriverDescription", group: "DriverGroup") -> None:
    """Set, or remove, the container of gdrdrv."""
    if not driver.gdrcopy.is_enabled:
        without_container(daemon_set, GDRCOPY)
        return
    container = container_of(daemon_set, GDRCOPY)
    set_image(container, driver.gdrcopy_image(group), driver.gdrcopy)
    add_pull_secrets(daemon_set, driver.gdrcopy)
    set_env(container, variables(driver.gdrcopy.env))
    _set_secret(container, driver)


def _set_secret(container: Json, driver: "DriverDescription") -> None:
    if driver.spec.secret_env:
        container["envFrom"] = [{"secretRef": {"name": driver.spec.secret_env}}]


def _timing(probe: "ContainerProbe") -> "Mapping[str, int]":
    """Return the probe's times as the API server shows them: without a zero."""
    fields: dict[str, int] = msgspec.to_builtins(probe)
    return {name: value for name, value in fields.items() if value}
