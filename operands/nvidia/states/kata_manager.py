"""State `state-kata-manager`: never on, as in the GPU Operator since v26.3."""

from typing import TYPE_CHECKING, Final

from operands.operand_state import OperandState

if TYPE_CHECKING:
    from operands.nvidia.policy_operands import PolicyOperands

NAME: Final = "state-kata-manager"

STATE: "Final[OperandState[PolicyOperands]]" = OperandState(
    name=NAME, is_enabled=lambda _: False, build=lambda _: []
)
