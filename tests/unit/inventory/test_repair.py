"""The repair of a device, step by step."""

import datetime as dt
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.kinds.gpudevice import DeviceRepair, RepairStep
from api.kinds.gpupool import RepairPolicy
from api.names import PodUid
from api.status_conditions import format_time
from inventory.health.recovery import REPAIRS, RecoveryAction, Repair
from inventory.health.repair import (
    ANSWER,
    MAX_ATTEMPTS,
    RELAPSE,
    TEST,
    RepairCase,
    ResetOutcome,
    begun_within_the_hour,
    plan_repair,
    reset_text,
)
from inventory.pools.maintenance import PodUsage
from tests.support.builders import EPOCH

NONE, RESET = RecoveryAction.NONE, RecoveryAction.GPU_RESET
POD = PodUsage(namespace="default", name="trains", uid=PodUid("u"), units=1)


def a_case(**changes: Any) -> RepairCase:
    return RepairCase(**{"action": RESET, "policy": RepairPolicy.IDLE, "now": EPOCH, **changes})


def steps(*changes: dict[str, Any]) -> list[str]:
    """Return the steps of a device whose state changes so, ten seconds apart."""
    found, case = [], a_case()
    for number, change in enumerate(changes):
        case = replace(case, now=EPOCH + dt.timedelta(seconds=10 * number), **change)
        if isinstance(outcome := change.get("reported"), ResetOutcome):
            assert case.repair is not None
            case = replace(case, reported=reset_text(case.repair, outcome))
        repair = plan_repair(case).repair
        found.append("" if repair is None else f"{repair.step.value}{repair.attempt}")
        case = replace(case, repair=repair)
    return found


def done(outcome: ResetOutcome = ResetOutcome.DONE) -> dict[str, ResetOutcome]:
    return {"reported": outcome}


def test_an_idle_device_is_reset_tested_and_given_back():
    assert steps({}, done(), {}, {"action": NONE}, {}) == [
        "Resetting1",
        "Testing1",
        "Testing1",
        "Repaired1",
        "Repaired1",
    ]


def test_a_device_in_use_waits_for_its_pods_and_evicts_none():
    plan = plan_repair(a_case(pods=(POD,)))
    assert plan.repair is not None
    assert (plan.repair.step, plan.evict) == (RepairStep.DRAINING, ())
    assert "waits for 1 pod with 1 unit (default/trains)" in plan.repair.message
    assert steps({"pods": (POD,)}, {"pods": ()}) == ["Draining1", "Resetting1"]
    assert steps({"reserved": 1}, {"reserved": 0}) == ["Draining1", "Resetting1"]


def test_only_its_own_pods_are_evicted():
    plan = plan_repair(a_case(policy=RepairPolicy.EVICT, pods=(POD,)))
    assert plan.evict == (POD,)
    assert plan.repair is not None
    assert plan.repair.message.startswith("evicts 1 pod")


@pytest.mark.parametrize("outcome", [ResetOutcome.REFUSED, ResetOutcome.HANGS])
def test_after_a_second_failure_the_device_is_to_be_replaced(outcome: ResetOutcome):
    assert steps({}, done(outcome), {}, done(outcome), {}) == [
        "Resetting1",
        "Draining2",
        "Resetting2",
        "Failed2",
        "Failed2",
    ]


def test_the_outcome_of_an_earlier_repair_is_none_of_this_one():
    repair = DeviceRepair(
        step=RepairStep.REPAIRED, attempt=1, since=format_time(EPOCH), started=format_time(EPOCH)
    )
    stale, now = reset_text(repair, ResetOutcome.DONE), EPOCH + 2 * RELAPSE
    again = plan_repair(a_case(repair=repair, reported=stale, now=now)).repair
    assert again is not None
    assert (again.step, again.attempt) == (RepairStep.RESETTING, 1)
    assert plan_repair(a_case(repair=again, reported=stale, now=now)).repair == again


def test_a_reset_that_waits_for_a_program_is_no_failure():
    assert steps({}, done(ResetOutcome.IN_USE), {}, done()) == [
        "Resetting1",
        "Resetting1",
        "Resetting1",
        "Testing1",
    ]


# A clock that was a year ahead when the step began.
@pytest.mark.parametrize("ahead", [dt.timedelta(), dt.timedelta(days=365)])
def test_a_test_has_an_end(ahead: dt.timedelta):
    begin = format_time(EPOCH + ahead)
    repair = DeviceRepair(step=RepairStep.TESTING, attempt=2, since=begin, started=begin)
    early = EPOCH + ahead + TEST - dt.timedelta(seconds=1)
    assert plan_repair(a_case(repair=repair, now=early)).repair == repair
    late = plan_repair(a_case(repair=repair, now=EPOCH + TEST)).repair
    assert late is not None
    assert late.step is RepairStep.FAILED
    assert "still needs GPUReset after its reset" in late.message


@pytest.mark.parametrize(("reported", "text"), [(None, "is silent"), ("", "lacks the role mig")])
def test_an_agent_without_an_answer_is_no_failure_of_the_device(reported: str | None, text: str):
    started = format_time(EPOCH)
    repair = DeviceRepair(step=RepairStep.RESETTING, attempt=2, since=started, started=started)
    assert plan_repair(a_case(repair=repair, reported=reported)).repair == repair
    late = a_case(repair=repair, reported=reported, now=EPOCH + 9 * ANSWER)
    waits = plan_repair(late).repair
    assert waits is not None
    assert text in waits.message
    assert plan_repair(replace(late, repair=waits)).repair == waits
    # Its late outcome is that of this attempt, which is not made again.
    made = replace(late, repair=waits, reported=reset_text(repair, ResetOutcome.DONE))
    tested = plan_repair(made).repair
    assert tested is not None
    assert tested.step is RepairStep.TESTING


def test_silence_ends_no_test():
    since = format_time(EPOCH)
    tested = DeviceRepair(step=RepairStep.TESTING, attempt=2, since=since, started=since)
    assert plan_repair(a_case(repair=tested, reported=None, now=EPOCH + 9 * TEST)).repair == tested


@pytest.mark.parametrize(
    "waits", [{"pods": (POD,)}, {"is_in_budget": False}, {}, {"outcome": ResetOutcome.IN_USE}]
)
def test_an_attempt_without_a_reset_does_not_count(waits: dict[str, Any]):
    outcome = waits.pop("outcome", None)
    waits = {"pods": (), "is_in_budget": True, "action": RESET, **waits}
    healed = {"action": NONE, **({"reported": outcome} if outcome else {})}
    found = steps(*[waits, healed] * 4, {"pods": (), "action": RESET, "is_in_budget": True})
    assert found[-2:] == ["Repaired0", "Resetting1"]


def test_a_device_that_waited_only_does_not_use_up_the_budget():
    waited = plan_repair(a_case(is_in_budget=False)).repair
    healed = plan_repair(a_case(action=NONE, repair=waited)).repair
    assert healed is not None
    assert not begun_within_the_hour(healed, EPOCH)


def test_an_action_of_operators_is_named_while_a_repair_waits_for_it():
    started = format_time(EPOCH)
    again = DeviceRepair(step=RepairStep.DRAINING, attempt=2, since=started, started=started)
    waits = plan_repair(a_case(action=RecoveryAction.UNKNOWN, repair=again)).repair
    assert waits is not None
    assert waits.message.startswith("needs ActionUnknown: see NVRM")


def test_a_reset_that_waits_gives_way_to_a_reboot_and_the_reboot_forgets_no_reset():
    reboot, reset = {"action": RecoveryAction.NODE_REBOOT}, {"action": RESET}
    assert steps({}, done(ResetOutcome.IN_USE), reboot) == ["Resetting1"] * 2 + ["RebootAsked0"]
    found = steps({}, done(), reboot, reset, done(), reboot, reset)
    assert found[-4:] == ["Resetting2", "Testing2", "RebootAsked2", "Failed3"]
    assert steps({}, done(), {"action": NONE}, reboot, reset)[-1] == "Resetting2"


@pytest.mark.parametrize(("later", "attempt"), [(RELAPSE / 2, 2), (RELAPSE * 2, 1)])
def test_a_fault_within_an_hour_of_a_repair_is_its_failure(later: dt.timedelta, attempt: int):
    repair = DeviceRepair(
        step=RepairStep.REPAIRED, attempt=1, since=format_time(EPOCH), started=format_time(EPOCH)
    )
    again = plan_repair(a_case(repair=repair, now=EPOCH + later)).repair
    assert again is not None
    assert (again.step, again.attempt) == (RepairStep.RESETTING, attempt)
    twice = msgspec.structs.replace(repair, attempt=2)
    failed = plan_repair(a_case(repair=twice, now=EPOCH + RELAPSE / 2)).repair
    assert failed is not None
    assert failed.step is RepairStep.FAILED


def test_a_pool_begins_as_many_repairs_an_hour_as_it_may():
    assert steps({"is_in_budget": False}, {"is_in_budget": True}) == ["Waiting1", "Resetting1"]
    repair = DeviceRepair(
        step=RepairStep.TESTING, attempt=1, since=format_time(EPOCH), started=format_time(EPOCH)
    )
    assert begun_within_the_hour(repair, EPOCH + RELAPSE / 2)
    assert not begun_within_the_hour(repair, EPOCH + RELAPSE)
    assert not begun_within_the_hour(None, EPOCH)
    for waits in (a_case(is_in_budget=False), a_case(action=RecoveryAction.NODE_REBOOT)):
        assert not begun_within_the_hour(plan_repair(waits).repair, EPOCH)


def test_a_reboot_evicts_pods_within_the_budget_only():
    evicts = {"action": RecoveryAction.NODE_REBOOT, "policy": RepairPolicy.EVICT, "pods": (POD,)}
    later = a_case(**evicts, is_in_budget=False)
    plan = plan_repair(later)
    assert plan.repair is not None
    assert (plan.repair.step, plan.evict) == (RepairStep.REBOOT_ASKED, ())
    assert plan.repair.message.endswith(
        "its pods stay for now: the pool has begun"
        " spec.maxRepairsPerHour repairs within the last hour"
    )
    assert not begun_within_the_hour(plan.repair, EPOCH)
    begun = plan_repair(a_case(**evicts, repair=plan.repair))
    assert begun.evict == (POD,)
    assert begun_within_the_hour(begun.repair, EPOCH)
    # What has begun goes on.
    assert plan_repair(replace(later, repair=begun.repair)) == begun


@pytest.mark.parametrize("action", sorted(set(RecoveryAction) - {NONE}, key=str))
def test_each_action_has_its_repair(action: RecoveryAction):
    expected = {
        Repair.NOTHING: "",
        Repair.DRAIN: "Draining1",
        Repair.RESET: "Resetting1",
        Repair.REBOOT: "RebootAsked0",
    }
    assert steps({"action": action}) == [expected[REPAIRS[action]]]


def test_a_reset_that_turns_into_a_reboot_asks_for_one():
    states: tuple[dict[str, Any], ...] = (
        {},
        done(),
        {"action": RecoveryAction.NODE_REBOOT},
        {"action": NONE},
    )
    assert steps(*states) == ["Resetting1", "Testing1", "RebootAsked1", "Repaired1"]


def test_without_repair_nothing_happens_and_a_repair_that_is_switched_off_ends():
    assert steps({"policy": RepairPolicy.OFF}) == [""]
    assert steps({"pods": (POD,)}, {"policy": RepairPolicy.OFF}) == ["Draining1", ""]


def test_a_step_of_a_later_version_is_read_and_begun_again():
    later = msgspec.convert(
        {"step": "OfTheNextVersion", "attempt": 1, "since": "", "started": ""}, DeviceRepair
    )
    assert later.step.value == "OfTheNextVersion"
    again = plan_repair(a_case(repair=later)).repair
    assert again is not None
    assert again.step is RepairStep.RESETTING


STATES = st.lists(
    st.fixed_dictionaries(
        {
            "action": st.sampled_from(
                [NONE, RESET, RecoveryAction.UNKNOWN, RecoveryAction.NODE_REBOOT]
            ),
            "pods": st.sampled_from([(), (POD,)]),
            "outcome": st.sampled_from([None, *ResetOutcome]),
            "wait_s": st.integers(1, 400),
        }
    ),
    max_size=40,
)


@given(STATES)
def test_no_device_is_reset_under_a_pod_or_more_than_twice_an_hour(states: list[dict[str, Any]]):
    now, resets = EPOCH, list[dt.datetime]()
    repair: DeviceRepair | None = None
    for state in states:
        now += dt.timedelta(seconds=state["wait_s"])
        outcome = state["outcome"]
        case = a_case(
            action=state["action"],
            pods=state["pods"],
            repair=repair,
            reported="" if outcome is None or repair is None else reset_text(repair, outcome),
            now=now,
        )
        before, repair = repair, plan_repair(case).repair
        was_asked = before is not None and before.step is RepairStep.RESETTING
        if repair is not None and repair.step is RepairStep.RESETTING and not was_asked:
            assert not case.pods
        if was_asked and outcome not in {None, ResetOutcome.IN_USE}:
            resets.append(now)
        if repair is not None and repair.step is RepairStep.FAILED and repair != before:
            assert len(resets) >= MAX_ATTEMPTS
        assert repair is None or repair.attempt <= MAX_ATTEMPTS + 1
        within = [at for at in resets if now - at < RELAPSE]
        assert len(within) <= MAX_ATTEMPTS
