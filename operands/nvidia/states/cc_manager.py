"""State `state-cc-manager`: confidential computing of devices, for Kata Containers."""

from typing import Any, Final

from api.kinds.nvidia.sandbox_operands import SandboxMode, WorkloadType
from operands.asset_files import load_assets
from operands.nvidia.policy_operands import PolicyOperands
from operands.nvidia.policy_transforms import finish_policy, set_block
from operands.nvidia.switched_off import of_virtual_machines
from operands.operand_state import OperandState
from operands.transforms import container_of, object_of, set_env

NAME: Final = "state-cc-manager"
_MAIN: Final = "nvidia-cc-manager"


def _build(settings: PolicyOperands) -> list[dict[str, Any]]:
    block, objects = settings.spec.cc_manager, load_assets(NAME)
    daemon_set = object_of(objects, "DaemonSet")
    if block.default_mode is not None:
        set_env(container_of(daemon_set, _MAIN), {"DEFAULT_CC_MODE": block.default_mode.value})
    set_block(daemon_set, _MAIN, block, field="ccManager", settings=settings)
    return finish_policy(NAME, objects, settings)


STATE: Final = OperandState(
    name=NAME,
    why_off=of_virtual_machines("cc_manager", mode=SandboxMode.KATA),
    deploy_label="cc-manager",
    workloads=(WorkloadType.VM_PASSTHROUGH, WorkloadType.VM_VGPU),
    build=_build,
)
