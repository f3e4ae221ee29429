"""Metrics of the node software of a ClusterPolicy: exported by the replica that leads, where node software is on.

The controllers `node.operands` and `driver.upgrade` hand figures in; nothing else sets these metrics.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, final

from api.driver_upgrade import UpgradeState
from operands.upgrade.cluster import UpgradeCounts
from telemetry.node_software_metrics import (
    AUTO_UPGRADE_ENABLED,
    GPU_NODES,
    HAS_NFD_LABELS,
    NODE_SOFTWARE_PAGE,
    RECONCILIATION_LAST_SUCCESS,
    RECONCILIATION_STATUS,
    RECONCILIATIONS,
    RECONCILIATIONS_FAILED,
    STATE_READY,
    UPGRADE_NODES,
    UPGRADE_OVERDUE_NODES,
    UPGRADES_AVAILABLE,
    UPGRADES_DONE,
    UPGRADES_FAILED,
    UPGRADES_IN_PROGRESS,
    UPGRADES_PENDING,
)


class ReconcileOutcome(Enum):
    """Value of `gpu_operator_reconciliation_status`, as in NVIDIA's GPU Operator."""

    READY = 1
    NOT_READY = 0
    NO_POLICY = -1
    FAILED = -2


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFigures:
    """The outcome of one reconcile of the ClusterPolicy."""

    outcome: ReconcileOutcome
    gpu_nodes: int = 0
    has_nfd_labels: bool = False
    is_ready_by_state: Mapping[str, bool] = field(default_factory=dict)
    """Readiness by name of the state; without states that are switched off."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeFigures:
    """The drivers' upgrades after one pass, over all owners."""

    is_automatic: bool = False
    """Whether an owner of drivers has autoUpgrade."""
    counts: Sequence[UpgradeCounts] = ()
    """One an owner."""
    nodes: Mapping[UpgradeState, int] = field(default_factory=dict)
    overdue: Mapping[UpgradeState, int] = field(default_factory=dict)


def show_policy(figures: PolicyFigures, *, now_s: float) -> None:
    """Show the outcome of a reconcile, and count it.

    Args:
        figures: of the reconcile.
        now_s: its Unix time.
    """
    RECONCILIATIONS.inc()
    if figures.outcome is ReconcileOutcome.FAILED:
        RECONCILIATIONS_FAILED.inc()
    if figures.outcome is ReconcileOutcome.READY:
        RECONCILIATION_LAST_SUCCESS.set(now_s)
    RECONCILIATION_STATUS.set(figures.outcome.value)
    GPU_NODES.set(figures.gpu_nodes)
    HAS_NFD_LABELS.set(figures.has_nfd_labels)
    STATE_READY.clear()
    for state, is_ready in figures.is_ready_by_state.items():
        STATE_READY.labels(state).set(is_ready)
    NODE_SOFTWARE_PAGE.show()


def show_upgrades(figures: UpgradeFigures) -> None:
    """Show how far the upgrades of the drivers are, from the first reconcile of the ClusterPolicy on.

    Every state has a series, so that a rule sees the first node.
    """
    AUTO_UPGRADE_ENABLED.set(figures.is_automatic)
    for gauge, count in (
        (UPGRADES_IN_PROGRESS, sum(item.in_progress for item in figures.counts)),
        (UPGRADES_DONE, sum(item.done for item in figures.counts)),
        (UPGRADES_FAILED, sum(item.failed for item in figures.counts)),
        (UPGRADES_AVAILABLE, sum(item.available for item in figures.counts)),
        (UPGRADES_PENDING, sum(item.pending for item in figures.counts)),
    ):
        gauge.set(count)
    for state in _LABELLED:
        UPGRADE_NODES.labels(state.value).set(figures.nodes.get(state, 0))
        UPGRADE_OVERDUE_NODES.labels(state.value).set(figures.overdue.get(state, 0))


_LABELLED: Final = tuple(state for state in UpgradeState if state.value)
"""States that are a label's value."""


def forget_node_software() -> None:
    """Show nothing: of a replica that does not lead, or where node software is off."""
    NODE_SOFTWARE_PAGE.hide()
    for gauge in (STATE_READY, UPGRADE_NODES, UPGRADE_OVERDUE_NODES):
        gauge.clear()
