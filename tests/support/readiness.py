"""What is seen of a node's GPU software, with realistic defaults."""

from collections.abc import Collection
from typing import Any

from inventory.readiness.software import NodeSoftwareFacts, Operand, OperandFacts

NO_OPERANDS: dict[Operand, OperandFacts] = {}


def software_facts(**changes: Any) -> NodeSoftwareFacts:
    """Two healthy devices whose driver works."""
    fields: dict[str, Any] = {"devices": 2, "complete": 2, "has_driver": True, "operands": {}}
    return NodeSoftwareFacts(**{**fields, **changes})


def ready() -> OperandFacts:
    return OperandFacts(is_anywhere=True, is_on_node=True, is_ready=True)


def elsewhere() -> OperandFacts:
    return OperandFacts(is_anywhere=True)


def all_ready() -> dict[Operand, OperandFacts]:
    return dict.fromkeys(Operand, ready())


def failing(*operands: Operand, passed: Collection[str] = ()) -> dict[Operand, OperandFacts]:
    """All operands are ready but these; `passed` are init containers that have succeeded."""
    observations = all_ready()
    for operand in operands:
        observations[operand] = OperandFacts(
            is_anywhere=True,
            is_on_node=True,
            message=f"pod gpu-operator/{operand.value}-x is not ready",
            passed=frozenset(passed),
        )
    return observations
