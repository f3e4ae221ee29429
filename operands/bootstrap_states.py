"""States of the operands that make a node ready for pools, in the order of their needs."""

from typing import TYPE_CHECKING, Any, Final

from operands.operand_state import OperandState, ServedKinds, in_order
from operands.states import dcgm_exporter, dcgm_host_engine, gfd, telemetry, validator

if TYPE_CHECKING:
    from operands.operand_settings import BootstrapOperands

BOOTSTRAP_STATES: "Final[tuple[OperandState[BootstrapOperands], ...]]" = in_order(
    (validator.STATE, gfd.STATE, dcgm_host_engine.STATE, dcgm_exporter.STATE, telemetry.STATE)
)


def build_operands(settings: "BootstrapOperands", served: ServedKinds) -> list[dict[str, Any]]:
    """Return the objects of all states in the order in which they are applied."""
    return [object_ for state in BOOTSTRAP_STATES for object_ in state.objects(settings, served)]
