"""State `state-vgpu-manager`: the driver of nodes that host virtual GPUs, by one DaemonSet for each system among the nodes."""

import copy
from typing import Any, Final

from api.kinds.nvidia.sandbox_operands import WorkloadType
from operands.asset_files import load_assets
from operands.nvidia.drivers import config_files
from operands.nvidia.drivers.containers import set_pod_fields, variables
from operands.nvidia.drivers.description import group_image
from operands.nvidia.drivers.groups import (
    DriverGroup,
    DriverGrouping,
    driver_groups,
    software_without_driver,
)
from operands.nvidia.drivers.manager import set_driver_manager
from operands.nvidia.drivers.objects import OS_VERSION
from operands.nvidia.node_software import HostSoftware
from operands.nvidia.object_names import object_name
from operands.nvidia.policy_operands import PolicyOperands
from operands.nvidia.policy_transforms import (
    add_pull_secrets,
    finish_policy,
    select_nodes,
    set_image,
)
from operands.nvidia.switched_off import of_virtual_machines
from operands.operand_state import OperandState
from operands.transforms import container_of, object_of, set_env

Json = dict[str, Any]

NAME: Final = "state-vgpu-manager"
_DAEMON_SET: Final = "nvidia-vgpu-manager-daemonset"
_MAIN: Final = "nvidia-vgpu-manager-ctr"
_why_off: Final = of_virtual_machines("vgpu_manager")


def config_maps_of_policy(settings: PolicyOperands) -> frozenset[str]:
    """Return the ConfigMaps whose keys the DaemonSets depend on."""
    name = settings.spec.vgpu_manager.kernel_module_config.name
    return frozenset() if _why_off(settings) else frozenset({name} - {""})


def nodes_without_manager(settings: PolicyOperands) -> dict[HostSoftware, str]:
    """Return which of the nodes' software gets no vGPU manager though the state is on, and why, with the cure."""
    if _why_off(settings):
        return {}
    return software_without_driver(settings.software, DriverGrouping.SYSTEM)


def _build(settings: PolicyOperands) -> list[Json]:
    objects = load_assets(NAME)
    manifest = object_of(objects, "DaemonSet")
    objects.remove(manifest)
    spec_path = settings.path("vgpuManager")
    groups = driver_groups(settings.software, DriverGrouping.SYSTEM, spec_path=spec_path)
    daemon_sets = [_daemon_set(manifest, group, settings) for group in groups]
    return finish_policy(NAME, [*objects, *daemon_sets], settings)


def _daemon_set(manifest: Json, group: DriverGroup, settings: PolicyOperands) -> Json:
    block, found = settings.spec.vgpu_manager, copy.deepcopy(manifest)
    spec_path, environment = settings.path("vgpuManager"), settings.environment
    found["metadata"]["name"] = object_name(_DAEMON_SET, group.os_tag)
    manager = "vgpuManager.driverManager"
    set_driver_manager(found, block.driver_manager, field=manager, settings=settings)
    container = container_of(found, _MAIN)
    set_image(
        container, group_image(block, group, spec_path=spec_path, environment=environment), block
    )
    add_pull_secrets(found, block)
    if block.args:
        container["args"] = list(block.args)
    set_env(container, variables(block.env))
    if block.kernel_module_config.name:
        config = config_files.NamedConfigMap(
            name=block.kernel_module_config.name,
            spec_path=f"{spec_path}.kernelModuleConfig",
            namespace=settings.namespace,
            keys=settings.config_keys,
        )
        config_files.add_config_files(found, [config_files.module_parameters(config, {_MAIN})])
    set_pod_fields(found, block)
    found["spec"]["selector"]["matchLabels"][OS_VERSION] = group.os_tag
    for metadata in (found["metadata"], found["spec"]["template"]["metadata"]):
        metadata["labels"][OS_VERSION] = group.os_tag
    select_nodes(found, group.node_labels())
    return found


STATE: Final[OperandState[PolicyOperands]] = OperandState(
    name=NAME,
    why_off=_why_off,
    deploy_label="vgpu-manager",
    workloads=(WorkloadType.VM_VGPU,),
    build=_build,
)
