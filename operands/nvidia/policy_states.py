"""States of a ClusterPolicy, in the order of the GPU Operator, which is one that their needs allow.

States do not wait for each other when they are applied. On a node the order is kept by init containers, which wait
for the validator's files.
"""

from typing import TYPE_CHECKING, Final

from operands.nvidia.states import (
    pre_requisites,
    state_cc_manager,
    state_kata_device_plugin,
    state_kata_manager,
    state_operator_metrics,
    state_sandbox_device_plugin,
    state_sandbox_validation,
    state_vfio_manager,
)
from operands.operand_state import OperandState, in_order

if TYPE_CHECKING:
    from operands.nvidia.policy_operands import PolicyOperands

POLICY_STATES: "Final[tuple[OperandState[PolicyOperands], ...]]" = in_order(
    (
        pre_requisites.STATE,
        state_operator_metrics.STATE,
        state_sandbox_validation.STATE,
        state_vfio_manager.STATE,
        state_sandbox_device_plugin.STATE,
        state_kata_device_plugin.STATE,
        state_kata_manager.STATE,
        state_cc_manager.STATE,
    )
)
STATE_NAMES: Final = tuple(state.name for state in POLICY_STATES)
