"""State `state-kata-device-plugin`: the device plugin of virtual machines of Kata Containers."""

from typing import Any, Final

from api.kinds.nvidia.sandbox_operands import SandboxMode, WorkloadType
from operands.asset_files import load_assets
from operands.nvidia.policy_operands import PolicyOperands
from operands.nvidia.policy_transforms import finish_policy, set_block
from operands.nvidia.states import sandbox_validation
from operands.nvidia.switched_off import of_virtual_machines
from operands.operand_state import OperandState
from operands.transforms import object_of

NAME: Final = "state-kata-device-plugin"
_MAIN: Final = "nvidia-kata-sandbox-device-plugin-ctr"


def _build(settings: PolicyOperands) -> list[dict[str, Any]]:
    block, objects = settings.spec.kata_sandbox_device_plugin, load_assets(NAME)
    set_block(
        object_of(objects, "DaemonSet"),
        _MAIN,
        block,
        field="kataSandboxDevicePlugin",
        settings=settings,
    )
    return finish_policy(NAME, objects, settings)


STATE: Final = OperandState(
    name=NAME,
    needs=(sandbox_validation.NAME,),
    why_off=of_virtual_machines("kata_sandbox_device_plugin", mode=SandboxMode.KATA),
    deploy_label="kata-sandbox-device-plugin",
    workloads=(WorkloadType.VM_PASSTHROUGH,),
    build=_build,
)
