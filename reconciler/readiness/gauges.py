"""Gauges of nodes' software: only the present phase and conditions that are True have a series.

Thousands of nodes times every phase and condition would be too many series.
"""

from typing import TYPE_CHECKING, final

from telemetry.metrics import BOOTSTRAP_CONDITION, BOOTSTRAP_PHASE, BOOTSTRAP_READY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from api.meta import Condition
    from api.names import NodeName
    from inventory.readiness.phases import NodeReadiness


@final
class BootstrapGauges:
    """Sets the gauges of one node at a time; the leader is their only owner."""

    def __init__(self) -> None:
        self._phases: dict[NodeName, str] = {}
        self._true: dict[NodeName, frozenset[str]] = {}

    def show(
        self, node: "NodeName", readiness: "NodeReadiness", conditions: "Iterable[Condition]"
    ) -> None:
        """Set the node's gauges."""
        BOOTSTRAP_READY.labels(node).set(readiness.obstacle is None)
        phase = readiness.phase.value
        if self._phases.get(node) != phase:
            self._forget_phase(node)
            BOOTSTRAP_PHASE.labels(node, phase).set(1)
            self._phases[node] = phase
        true = frozenset(condition.type for condition in conditions if condition.status == "True")
        before = self._true.get(node, frozenset())
        for type_ in before - true:
            BOOTSTRAP_CONDITION.remove(node, type_)
        for type_ in true - before:
            BOOTSTRAP_CONDITION.labels(node, type_).set(1)
        self._true[node] = true

    def forget(self, node: "NodeName") -> None:
        """Drop the gauges of a node that is gone."""
        if node not in self._phases:
            return
        self._forget_phase(node)
        BOOTSTRAP_READY.remove(node)
        for type_ in self._true.pop(node):
            BOOTSTRAP_CONDITION.remove(node, type_)

    def forget_all(self) -> None:
        """Drop the gauges of all nodes."""
        for gauge in (BOOTSTRAP_READY, BOOTSTRAP_PHASE, BOOTSTRAP_CONDITION):
            gauge.clear()
        self._phases.clear()
        self._true.clear()

    def _forget_phase(self, node: "NodeName") -> None:
        phase = self._phases.pop(node, None)
        if phase is not None:
            BOOTSTRAP_PHASE.remove(node, phase)
