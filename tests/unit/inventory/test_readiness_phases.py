"""The gate before pooling: phases, and the first obstacle in the documented order."""

from typing import Any

import pytest

from api.kinds.gpunodeinventory import BootstrapPhase, OperandStatus
from inventory.debounce import DebouncedState, DebounceLimits
from inventory.readiness.phases import (
    BootstrapState,
    NodeReadiness,
    ReadinessObstacle,
    assess_readiness,
)
from inventory.readiness.software import (
    BootstrapParameters,
    Check,
    NodeSoftwareFacts,
    Operand,
    OperandFacts,
    Requirement,
)
from tests.support.readiness import (
    NO_OPERANDS,
    all_ready,
    elsewhere,
    failing,
    ready,
    software_facts,
)

PARAMETERS = BootstrapParameters()
REQUIRED = BootstrapParameters(requirements=dict.fromkeys(Operand, Requirement.REQUIRED))
IGNORED = BootstrapParameters(requirements=dict.fromkeys(Operand, Requirement.IGNORED))


def resolved(
    facts: NodeSoftwareFacts,
    parameters: BootstrapParameters = PARAMETERS,
    before: BootstrapState | None = None,
) -> NodeReadiness:
    """Look until nothing changes any more."""
    now = 0.0
    result = assess_readiness(before or BootstrapState(), facts, parameters, now=now)
    for _ in range(3):
        now += parameters.debounce.period_s
        result = assess_readiness(result.bootstrap, facts, parameters, now=now)
    return result


def test_a_fresh_device_gets_ready_with_default_settings_and_no_operand_anywhere():
    """Lesson 1: nothing that is not there is waited for."""
    result = resolved(software_facts(operands=NO_OPERANDS))
    assert (result.phase, result.obstacle) == (BootstrapPhase.READY, None)
    assert result.operands == ()


def test_a_node_whose_operands_are_ready_is_ready():
    result = resolved(software_facts(operands=all_ready()))
    assert (result.phase, result.obstacle) == (BootstrapPhase.READY, None)
    assert [operand.name for operand in result.operands] == [
        "validator",
        "gfd",
        "dcgm",
        "dcgm-exporter",
    ]
    assert all(operand.ready for operand in result.operands)


@pytest.mark.parametrize(
    ("facts", "phase", "obstacle"),
    [
        pytest.param(
            software_facts(is_managed=False),
            BootstrapPhase.DISABLED,
            ReadinessObstacle.MANAGED_DISABLED,
            id="out",
        ),
        pytest.param(
            software_facts(devices=0, complete=0),
            BootstrapPhase.READY,
            ReadinessObstacle.NO_DEVICES,
            id="empty",
        ),
        pytest.param(
            software_facts(complete=0, has_driver=False),
            BootstrapPhase.VALIDATING_FAILED,
            ReadinessObstacle.INVENTORY_INCOMPLETE,
            id="incomplete",
        ),
        pytest.param(
            software_facts(faulted=2),
            BootstrapPhase.READY,
            ReadinessObstacle.DEVICES_FAULTED,
            id="all faulted",
        ),
        pytest.param(software_facts(faulted=1), BootstrapPhase.READY, None, id="one is faulted"),
        pytest.param(
            software_facts(complete=1), BootstrapPhase.READY, None, id="one is incomplete"
        ),
        pytest.param(
            software_facts(operands=failing(Operand.VALIDATOR)),
            BootstrapPhase.VALIDATING_FAILED,
            ReadinessObstacle.DRIVER_MISSING,
            id="driver",
        ),
        pytest.param(
            software_facts(operands=failing(Operand.VALIDATOR, passed={"driver-validation"})),
            BootstrapPhase.VALIDATING_FAILED,
            ReadinessObstacle.TOOLKIT_MISSING,
            id="toolkit",
        ),
        pytest.param(
            software_facts(
                operands=failing(
                    Operand.VALIDATOR, passed={"driver-validation", "toolkit-validation"}
                )
            ),
            BootstrapPhase.VALIDATING_FAILED,
            ReadinessObstacle.VALIDATION_FAILED,
            id="cuda",
        ),
        pytest.param(
            software_facts(operands=failing(Operand.GFD)),
            BootstrapPhase.GFD,
            ReadinessObstacle.GFD_NOT_READY,
            id="gfd",
        ),
        pytest.param(
            software_facts(operands=failing(Operand.DCGM)),
            BootstrapPhase.MONITORING,
            ReadinessObstacle.MONITORING_MISSING,
            id="dcgm",
        ),
        pytest.param(
            software_facts(operands=failing(Operand.DCGM_EXPORTER)),
            BootstrapPhase.MONITORING,
            ReadinessObstacle.MONITORING_MISSING,
            id="exporter",
        ),
        pytest.param(
            software_facts(operands=all_ready(), heartbeat_age_s=121),
            BootstrapPhase.MONITORING,
            ReadinessObstacle.MONITORING_MISSING,
            id="silent",
        ),
        pytest.param(
            software_facts(operands=all_ready(), heartbeat_age_s=119),
            BootstrapPhase.READY,
            None,
            id="heard",
        ),
    ],
)
def test_the_first_obstacle_is_the_reason_and_the_phase(
    facts: NodeSoftwareFacts, phase: BootstrapPhase, obstacle: ReadinessObstacle | None
):
    result = resolved(facts)
    assert (result.phase, result.obstacle) == (phase, obstacle)
    assert result.message


EVERYTHING_WRONG: dict[str, Any] = {
    "is_managed": False,
    "devices": 0,
    "complete": 0,
    "operands": failing(*Operand),
}
CURES: list[tuple[ReadinessObstacle, dict[str, Any]]] = [
    (ReadinessObstacle.MANAGED_DISABLED, {"is_managed": True}),
    (ReadinessObstacle.NO_DEVICES, {"devices": 2, "faulted": 2}),
    (ReadinessObstacle.INVENTORY_INCOMPLETE, {"complete": 2}),
    (ReadinessObstacle.DEVICES_FAULTED, {"faulted": 0}),
    (
        ReadinessObstacle.DRIVER_MISSING,
        {"operands": failing(*Operand, passed={"driver-validation"})},
    ),
    (
        ReadinessObstacle.TOOLKIT_MISSING,
        {"operands": failing(*Operand, passed={"driver-validation", "toolkit-validation"})},
    ),
    (
        ReadinessObstacle.VALIDATION_FAILED,
        {"operands": failing(Operand.GFD, Operand.DCGM, Operand.DCGM_EXPORTER)},
    ),
    (ReadinessObstacle.GFD_NOT_READY, {"operands": failing(Operand.DCGM, Operand.DCGM_EXPORTER)}),
    (ReadinessObstacle.MONITORING_MISSING, {"operands": all_ready()}),
]


def test_obstacles_are_named_in_their_order_one_cure_after_the_other():
    facts = dict(EVERYTHING_WRONG)
    named = []
    for _, cure in CURES:
        named.append(resolved(software_facts(**facts)).obstacle)
        facts |= cure
    assert named == [obstacle for obstacle, _ in CURES]
    assert resolved(software_facts(**facts)).obstacle is None
    assert [*named, ReadinessObstacle.VALIDATING] == list(ReadinessObstacle)


def test_until_something_was_seen_often_enough_the_node_is_validating():
    facts = software_facts(operands=all_ready())
    first = assess_readiness(BootstrapState(), facts, PARAMETERS, now=0)
    assert (first.phase, first.obstacle) == (
        BootstrapPhase.GFD,
        ReadinessObstacle.VALIDATING,
    )
    assert first.recheck_after_s == 10
    second = assess_readiness(first.bootstrap, facts, PARAMETERS, now=10)
    assert second.obstacle is ReadinessObstacle.VALIDATING
    third = assess_readiness(second.bootstrap, facts, PARAMETERS, now=20)
    assert third.obstacle is None
    assert third.recheck_after_s is None


def test_driver_that_answers_counts_at_once_where_no_operand_is_needed():
    first = assess_readiness(BootstrapState(), software_facts(), PARAMETERS, now=0)
    assert (first.phase, first.obstacle) == (BootstrapPhase.READY, None)


def test_operand_that_the_control_plane_runs_is_awaited_on_a_new_node():
    parameters = BootstrapParameters(installed=frozenset({Operand.VALIDATOR}))
    first = assess_readiness(BootstrapState(), software_facts(), parameters, now=0)
    assert first.obstacle is ReadinessObstacle.VALIDATING
    failing = {Operand.VALIDATOR: OperandFacts(is_anywhere=True, is_on_node=True, message="waits")}
    begun = assess_readiness(first.bootstrap, software_facts(operands=failing), parameters, now=10)
    assert begun.obstacle is ReadinessObstacle.VALIDATING
    passed = software_facts(operands={Operand.VALIDATOR: ready()})
    assert assess_readiness(begun.bootstrap, passed, parameters, now=20).obstacle is None


def test_validator_that_has_passed_counts_at_once():
    seen = {Operand.VALIDATOR: ready()}
    first = assess_readiness(BootstrapState(), software_facts(operands=seen), PARAMETERS, now=0)
    assert first.obstacle is None


def test_proof_does_not_end_a_failure_at_once():
    down = resolved(software_facts(has_driver=False))
    back = assess_readiness(down.bootstrap, software_facts(), PARAMETERS, now=1000)
    assert back.obstacle is ReadinessObstacle.DRIVER_MISSING


@pytest.mark.parametrize(
    ("requirement", "seen", "obstacle"),
    [
        pytest.param(
            Requirement.REQUIRED, OperandFacts(), ReadinessObstacle.GFD_NOT_READY, id="required"
        ),
        pytest.param(
            Requirement.REQUIRED, elsewhere(), ReadinessObstacle.GFD_NOT_READY, id="not here"
        ),
        pytest.param(Requirement.IF_PRESENT, OperandFacts(), None, id="nowhere"),
        pytest.param(
            Requirement.IF_PRESENT, elsewhere(), ReadinessObstacle.GFD_NOT_READY, id="elsewhere"
        ),
        pytest.param(Requirement.IF_PRESENT, ready(), None, id="ready"),
        pytest.param(Requirement.IGNORED, elsewhere(), None, id="ignored"),
    ],
)
def test_an_operand_counts_by_its_requirement(
    requirement: Requirement, seen: OperandFacts, obstacle: ReadinessObstacle | None
):
    parameters = BootstrapParameters(requirements={Operand.GFD: requirement})
    assert resolved(software_facts(operands={Operand.GFD: seen}), parameters).obstacle is obstacle


def test_required_operands_that_do_not_exist_hold_every_node_up():
    result = resolved(software_facts(operands=NO_OPERANDS), REQUIRED)
    assert result.obstacle is ReadinessObstacle.VALIDATION_FAILED
    assert result.message.startswith("no pod of validator on the node")
    missing = OperandStatus(name="gfd", reason="PodMissing", message=_missing("gfd"))
    assert missing in result.operands


@pytest.mark.parametrize(
    ("requirement", "seen", "current"),
    [
        (Requirement.IF_PRESENT, ready(), ["Ready"]),
        (Requirement.IF_PRESENT, failing(Operand.GFD)[Operand.GFD], ["PodNotReady"]),
        (Requirement.IF_PRESENT, elsewhere(), ["PodMissing"]),
        (Requirement.IGNORED, failing(Operand.GFD)[Operand.GFD], ["NotRequired"]),
        (Requirement.IGNORED, ready(), ["Ready"]),
        (Requirement.IGNORED, elsewhere(), []),
    ],
)
def test_an_operand_is_shown_with_the_reason_of_its_readiness(
    requirement: Requirement, seen: OperandFacts, current: list[str]
):
    parameters = BootstrapParameters(requirements={Operand.GFD: requirement})
    found = resolved(software_facts(operands={Operand.GFD: seen}), parameters).operands
    assert [item.reason for item in found if item.name == "gfd"] == current


def _missing(name: str) -> str:
    return (
        f"no pod of {name} on the node: let its DaemonSet run here,"
        " or set its requirement to Ignored"
    )


def test_operands_that_are_ignored_hold_nothing_up_and_their_silence_neither():
    facts = software_facts(operands=failing(*Operand), heartbeat_age_s=10_000)
    result = resolved(facts, IGNORED)
    assert result.obstacle is None
    assert [(operand.ready, operand.message) for operand in result.operands] == [(False, "")] * 4


def test_without_a_validator_a_device_with_a_uuid_proves_the_driver():
    missing = resolved(software_facts(has_driver=False))
    assert missing.bootstrap.state_of(Check.DRIVER) is DebouncedState.DOWN
    assert "install the driver" in missing.message
    assert (
        resolved(software_facts(has_driver=True)).bootstrap.state_of(Check.DRIVER)
        is DebouncedState.UP
    )


def test_the_validator_decides_on_the_driver():
    """A UUID may be known from the time when the driver still worked."""
    result = resolved(software_facts(has_driver=True, operands=failing(Operand.VALIDATOR)))
    assert result.obstacle is ReadinessObstacle.DRIVER_MISSING


def test_an_operand_that_is_introduced_later_has_its_time_to_come_up():
    before = resolved(software_facts(operands=NO_OPERANDS)).bootstrap
    steady = DebounceLimits()
    introduced = software_facts(operands={Operand.GFD: elsewhere()})
    result = assess_readiness(before, introduced, PARAMETERS, now=1000)
    assert result.obstacle is None
    result = assess_readiness(result.bootstrap, introduced, PARAMETERS, now=1000 + steady.period_s)
    assert result.obstacle is None
    ready_now = software_facts(operands={Operand.GFD: ready()})
    result = assess_readiness(result.bootstrap, ready_now, PARAMETERS, now=1001 + steady.period_s)
    assert (result.obstacle, result.recheck_after_s) == (None, None)


def test_software_that_was_ready_and_is_not_any_more_is_degraded():
    up = resolved(software_facts(operands=all_ready()))
    assert not up.is_degraded
    down = resolved(software_facts(operands=failing(Operand.GFD)), before=up.bootstrap)
    assert down.is_degraded
    assert not resolved(software_facts(operands=failing(Operand.GFD))).is_degraded


def test_pods_are_harmed_only_where_software_is_not_ready():
    assert not resolved(software_facts(operands=all_ready(), has_workloads=True)).harms_workloads
    harmed = resolved(software_facts(operands=failing(Operand.DCGM), has_workloads=True))
    assert harmed.harms_workloads
    # Whether pods are there is reported by nobody, so the node is examined again.
    assert harmed.recheck_after_s == PARAMETERS.debounce.period_s


def test_a_node_that_was_opted_out_begins_again():
    ready_node = resolved(software_facts())
    facts = software_facts(is_managed=False, heartbeat_age_s=10)
    out = assess_readiness(ready_node.bootstrap, facts, PARAMETERS, now=100)
    assert out.phase is BootstrapPhase.DISABLED
    assert out.recheck_after_s is None
    back = assess_readiness(
        out.bootstrap, software_facts(operands=all_ready()), PARAMETERS, now=200
    )
    assert back.obstacle is ReadinessObstacle.VALIDATING


def test_a_node_is_looked_at_again_when_monitoring_would_have_been_silent_for_too_long():
    heard = resolved(software_facts(operands=all_ready(), heartbeat_age_s=20))
    assert heard.recheck_after_s == pytest.approx(100.1)
