"""State `state-vgpu-device-manager`: creates the virtual GPUs of a node, by the layout that its label names."""

from typing import Any, Final

from api.kinds.nvidia.sandbox_operands import WorkloadType
from operands.asset_files import load_assets
from operands.nvidia.devices.vgpu_layouts import LAYOUTS_KEY, layouts_text
from operands.nvidia.policy_operands import PolicyOperands
from operands.nvidia.policy_transforms import finish_policy, set_block
from operands.nvidia.states import vgpu_manager
from operands.nvidia.switched_off import of_virtual_machines
from operands.operand_state import OperandState
from operands.transforms import container_of, object_of, pod_spec_of, set_env

NAME: Final = "state-vgpu-device-manager"
_MAIN: Final = "nvidia-vgpu-device-manager"
_DEFAULT_CONFIG: Final = "default-vgpu-devices-config"
_DEFAULT_LAYOUT: Final = "default"


def _build(settings: PolicyOperands) -> list[dict[str, Any]]:
    block, objects = settings.spec.vgpu_device_manager, load_assets(NAME)
    config = block.config
    if config.name and config.name != _DEFAULT_CONFIG:
        objects = [object_ for object_ in objects if object_["kind"] != "ConfigMap"]
    else:
        object_of(objects, "ConfigMap")["data"][LAYOUTS_KEY] = layouts_text()
    daemon_set = object_of(objects, "DaemonSet")
    for volume in pod_spec_of(daemon_set)["volumes"]:
        if "configMap" in volume:
            volume["configMap"]["name"] = config.name or _DEFAULT_CONFIG
    set_block(daemon_set, _MAIN, block, field="vgpuDeviceManager", settings=settings)
    layout = config.default or _DEFAULT_LAYOUT
    set_env(container_of(daemon_set, _MAIN), {"DEFAULT_VGPU_CONFIG": layout})
    return finish_policy(NAME, objects, settings)


STATE: Final[OperandState[PolicyOperands]] = OperandState(
    name=NAME,
    needs=(vgpu_manager.NAME,),
    why_off=of_virtual_machines("vgpu_device_manager"),
    deploy_label="vgpu-device-manager",
    workloads=(WorkloadType.VM_VGPU,),
    build=_build,
)
