"""Readiness of a node's software as conditions, and what is taken up from them after a restart."""

import datetime as dt
from typing import Any

import pytest

from api.kinds.gpunodeinventory import BootstrapPhase, GPUNodeInventoryStatus
from api.meta import Condition
from inventory.debounce import DebouncedState
from inventory.readiness.phases import (
    BootstrapState,
    NodeReadiness,
    ReadinessObstacle,
    assess_readiness,
)
from inventory.readiness.software import BootstrapParameters, Check, NodeSoftwareFacts, Operand
from reconciler.readiness.conditions import OURS, conditions_of, recalled
from telemetry.conditions import InventoryCondition, ReadyForPooling
from tests.support.readiness import (
    NO_OPERANDS,
    all_ready,
    elsewhere,
    failing,
    ready,
    software_facts,
)

PARAMETERS = BootstrapParameters()
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


def stable(
    facts: NodeSoftwareFacts, before: BootstrapState | None = None, start: float = 0.0
) -> NodeReadiness:
    readiness = assess_readiness(before or BootstrapState(), facts, PARAMETERS, now=start)
    for number in (1, 2):
        readiness = assess_readiness(
            readiness.bootstrap, facts, PARAMETERS, now=start + 10 * number
        )
    return readiness


def said(readiness: NodeReadiness, **more: Any) -> dict[str, Condition]:
    conditions = conditions_of(readiness, more.get("current", ()), generation=3, now=NOON)
    return {condition.type: condition for condition in conditions}


def status_of(readiness: NodeReadiness) -> GPUNodeInventoryStatus:
    return GPUNodeInventoryStatus(
        phase=readiness.phase, conditions=conditions_of(readiness, (), generation=1, now=NOON)
    )


def test_the_reasons_of_the_gate_are_the_obstacles_in_the_same_order():
    names = [reason.name for reason in ReadyForPooling]
    assert names == [obstacle.name for obstacle in ReadinessObstacle] + ["READY"]


def test_all_conditions_but_those_of_the_inventory_are_said():
    others = {
        InventoryCondition.MANAGED_DISABLED,
        InventoryCondition.INVENTORY_INCOMPLETE,
        InventoryCondition.AGENT_DEGRADED,
    }
    assert tuple(said(stable(software_facts()))) == OURS
    assert {other.value for other in set(InventoryCondition) - others} == set(OURS)


@pytest.mark.parametrize("is_managed", [True, False])
def test_no_condition_is_without_words(is_managed):
    found = said(stable(software_facts(is_managed=is_managed)))
    assert [item.type for item in found.values() if not item.message] == []


@pytest.mark.parametrize(
    ("facts", "statuses"),
    [
        pytest.param(
            software_facts(operands=all_ready()),
            {"DriverMissing": "False", "ToolkitMissing": "False", "GFDReady": "True",
             "MonitoringMissing": "False", "ReadyForPooling": "True"},
            id="ready",
        ),
        pytest.param(
            software_facts(operands=NO_OPERANDS),
            {"DriverMissing": "False", "ToolkitMissing": "Unknown", "GFDReady": "Unknown",
             "MonitoringMissing": "Unknown", "ReadyForPooling": "True"},
            id="no operand anywhere",
        ),
        pytest.param(
            software_facts(operands=failing(*Operand), has_workloads=True),
            {"DriverMissing": "True", "ToolkitMissing": "True", "GFDReady": "False",
             "MonitoringMissing": "True", "ReadyForPooling": "False", "InfraDegraded": "False",
             "DegradedWorkloads": "True"},
            id="nothing works",
        ),
        pytest.param(
            software_facts(is_managed=False),
            {"DriverMissing": "Unknown", "GFDReady": "Unknown", "ReadyForPooling": "False",
             "InfraDegraded": "False"},
            id="opted out",
        ),
    ],
)  # fmt: skip
def test_what_is_so_is_said(facts: NodeSoftwareFacts, statuses: dict[str, str]):
    conditions = said(stable(facts))
    assert {type_: conditions[type_].status for type_ in statuses} == statuses
    assert all(
        condition.reason and condition.observed_generation == 3 for condition in conditions.values()
    )


def test_the_first_look_says_that_nothing_is_known_yet():
    facts = software_facts(operands=failing(*Operand))
    conditions = said(assess_readiness(BootstrapState(), facts, PARAMETERS, now=0))
    assert {condition.reason for condition in conditions.values()} == {"Validating", "AsExpected"}
    assert conditions["DriverMissing"].status == "Unknown"
    assert conditions["ReadyForPooling"].status == "False"


def test_software_that_is_down_after_it_was_ready_is_degraded_and_named():
    up = stable(software_facts(operands=all_ready()))
    facts = software_facts(operands=failing(Operand.GFD, Operand.DCGM))
    degraded = said(stable(facts, up.bootstrap, start=100))["InfraDegraded"]
    assert degraded.status == "True"
    assert (
        degraded.message
        == "the node was ready for pools and no longer is; not ready: gfd, monitoring"
    )


def test_an_operand_that_is_introduced_is_not_said_to_be_ready_before_it_is():
    before = stable(software_facts(operands=NO_OPERANDS)).bootstrap
    introduced = assess_readiness(
        before, software_facts(operands={Operand.GFD: elsewhere()}), PARAMETERS, now=100
    )
    assert said(introduced)["GFDReady"].reason == "NotRequired"
    up = assess_readiness(
        introduced.bootstrap, software_facts(operands={Operand.GFD: ready()}), PARAMETERS, now=101
    )
    assert said(up)["GFDReady"].status == "True"


def test_the_time_of_a_condition_moves_with_its_status_only():
    before = conditions_of(stable(software_facts()), (), generation=1, now=NOON)
    later = NOON + dt.timedelta(hours=1)
    up = stable(software_facts())
    down = stable(software_facts(operands=failing(Operand.GFD)), up.bootstrap, start=100)
    after = {
        condition.type: condition
        for condition in conditions_of(down, before, generation=2, now=later)
    }
    assert after["DriverMissing"].last_transition_time == "2026-01-01T12:00:00Z"
    assert after["GFDReady"].last_transition_time == "2026-01-01T13:00:00Z"
    assert after["ReadyForPooling"].last_transition_time == "2026-01-01T13:00:00Z"


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param(software_facts(operands=all_ready()), id="ready"),
        pytest.param(software_facts(operands=NO_OPERANDS), id="nothing to wait for"),
        pytest.param(software_facts(operands=failing(Operand.VALIDATOR)), id="no driver"),
        pytest.param(
            software_facts(
                operands=failing(
                    Operand.VALIDATOR, passed={"driver-validation", "toolkit-validation"}
                )
            ),
            id="validator",
        ),
        pytest.param(software_facts(operands=failing(Operand.GFD)), id="gfd"),
        pytest.param(software_facts(operands=failing(Operand.DCGM)), id="monitoring"),
    ],
)
def test_a_restart_goes_on_with_what_was_reported(facts: NodeSoftwareFacts):
    """The phase Ready needs no three new samples, and no condition flaps."""
    before = stable(facts)
    current = status_of(before)
    after = assess_readiness(recalled(current), facts, PARAMETERS, now=5000)
    assert (after.phase, after.obstacle) == (before.phase, before.obstacle)
    again = conditions_of(after, current.conditions or (), generation=1, now=NOON)
    assert again == current.conditions


def test_a_restart_remembers_that_software_was_ready():
    up = stable(software_facts(operands=all_ready()))
    facts = software_facts(operands=failing(Operand.GFD))
    assert recalled(status_of(up)).was_ready
    degraded = stable(facts, up.bootstrap, start=100)
    after = assess_readiness(recalled(status_of(degraded)), facts, PARAMETERS, now=5000)
    assert after.is_degraded


def test_nothing_is_taken_up_from_a_status_that_says_nothing():
    assert recalled(GPUNodeInventoryStatus()) == BootstrapState()
    out = stable(software_facts(is_managed=False))
    assert recalled(status_of(out)) == BootstrapState()


def test_a_phase_past_validation_means_that_the_validator_was_up():
    status = GPUNodeInventoryStatus(phase=BootstrapPhase.GFD)
    assert recalled(status).state_of(Check.VALIDATOR) is DebouncedState.UP
