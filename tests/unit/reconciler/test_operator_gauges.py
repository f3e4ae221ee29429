"""Metrics of node software: upstream's names, absent until a ClusterPolicy is reconciled, and where nothing leads."""

from collections.abc import Iterator

import pytest

from api.driver_upgrade import UpgradeState
from operands.upgrade.cluster import UpgradeCounts
from reconciler.operator_gauges import (
    PolicyFigures,
    ReconcileOutcome,
    UpgradeFigures,
    forget_node_software,
    show_policy,
    show_upgrades,
)
from telemetry.metrics import REGISTRY

READY = PolicyFigures(
    outcome=ReconcileOutcome.READY,
    gpu_nodes=3,
    has_nfd_labels=True,
    is_ready_by_state={"state-driver": True, "state-dcgm": False},
)


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    forget_node_software()
    yield
    forget_node_software()


def exported() -> dict[str, float]:
    """Return what the page has of node software, without the counts of the process: series -> value."""
    return {
        "/".join((sample.name, *sample.labels.values())): sample.value
        for family in REGISTRY.collect()
        if family.name.startswith(("gpu_operator_", "gpu_operand_", "gpu_driver_"))
        for sample in family.samples
    }


def test_nothing_is_said_before_the_first_reconcile():
    show_upgrades(UpgradeFigures(is_automatic=True))
    assert exported() == {}


def test_a_reconcile_is_shown_under_the_names_of_the_gpu_operator():
    show_policy(READY, now_s=1_700_000_000)
    page = exported()
    assert page["gpu_operator_reconciliation_status"] == 1
    assert page["gpu_operator_gpu_nodes_total"] == 3
    assert page["gpu_operator_reconciliation_has_nfd_labels"] == 1
    assert page["gpu_operator_reconciliation_last_success_ts_seconds"] == 1_700_000_000
    assert page["gpu_operand_state_ready/state-driver"] == 1
    assert page["gpu_operand_state_ready/state-dcgm"] == 0


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (ReconcileOutcome.NOT_READY, 0),
        (ReconcileOutcome.NO_POLICY, -1),
        (ReconcileOutcome.FAILED, -2),
    ],
)
def test_what_is_not_ready_leaves_the_last_success(outcome: ReconcileOutcome, status: int):
    show_policy(READY, now_s=1_700_000_000)
    show_policy(PolicyFigures(outcome=outcome), now_s=1_700_000_100)
    page = exported()
    assert page["gpu_operator_reconciliation_status"] == status
    assert page["gpu_operator_reconciliation_last_success_ts_seconds"] == 1_700_000_000


def test_reconciles_are_counted_and_those_that_fail_once_more():
    show_policy(READY, now_s=1)
    before = exported()
    show_policy(PolicyFigures(outcome=ReconcileOutcome.FAILED), now_s=2)
    after = exported()
    for name in ("gpu_operator_reconciliation_total", "gpu_operator_reconciliation_failed_total"):
        assert after[name] == before[name] + 1


def test_a_state_that_is_switched_off_has_no_series():
    show_policy(READY, now_s=1)
    show_policy(
        PolicyFigures(outcome=ReconcileOutcome.READY, is_ready_by_state={"pre-requisites": True}),
        now_s=2,
    )
    states = {name for name in exported() if name.startswith("gpu_operand_state_ready")}
    assert states == {"gpu_operand_state_ready/pre-requisites"}


def test_upgrades_of_all_owners_are_added_up_and_each_state_has_a_series():
    show_policy(READY, now_s=1)
    show_upgrades(
        UpgradeFigures(
            is_automatic=True,
            counts=[
                UpgradeCounts(managed=4, in_progress=1, done=2, failed=1),
                UpgradeCounts(managed=3, done=1, pending=2, available=1),
            ],
            nodes={UpgradeState.DRAIN_REQUIRED: 1, UpgradeState.UPGRADE_DONE: 3},
            overdue={UpgradeState.DRAIN_REQUIRED: 1},
        )
    )
    page = exported()
    of_upgrades = {
        name.removeprefix("gpu_operator_nodes_upgrades_"): value
        for name, value in page.items()
        if name.startswith("gpu_operator_nodes_upgrades_")
    }
    assert of_upgrades == {"in_progress": 1, "done": 3, "failed": 1, "available": 1, "pending": 2}
    assert page["gpu_operator_driver_auto_upgrade_enabled"] == 1
    for name, expected in (
        ("gpu_driver_upgrade_nodes", {"drain-required": 1, "upgrade-done": 3}),
        ("gpu_driver_upgrade_overdue_nodes", {"drain-required": 1}),
    ):
        found = {item.value: page[f"{name}/{item.value}"] for item in UpgradeState if item.value}
        assert {state: count for state, count in found.items() if count} == expected


def test_a_replica_that_lost_its_lease_shows_nothing():
    show_policy(READY, now_s=1)
    forget_node_software()
    assert exported() == {}
