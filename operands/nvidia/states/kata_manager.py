"""State `state-kata-manager`: never on, as in the GPU Operator since v26.3."""

from typing import TYPE_CHECKING, Final

from api.kinds.nvidia.sandbox_operands import WorkloadType
from operands.operand_state import OperandState

if TYPE_CHECKING:
    from operands.nvidia.policy_operands import PolicyOperands

NAME: Final = "state-kata-manager"

STATE: "Final[OperandState[PolicyOperands]]" = OperandState(
    name=NAME,
    why_off=lambda _: "it never runs, as in the GPU Operator since v26.3",
    deploy_label="kata-manager",
    workloads=(WorkloadType.VM_PASSTHROUGH,),
    build=lambda _: [],
)
