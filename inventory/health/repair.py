"""Repair of a faulted device, as a function of the present state: its pods leave, it is reset, tested, and given back.

The device is withheld for its fault anyway. `spec.repair` of its pool says whether it is repaired, and whether pods are
evicted for it; only the device's own pods are. The state is `status.repair` of the GPUDevice, so that a restart at any
step goes on. The node agent resets a device once for each attempt, and only while nothing uses it.

The circuit breaks after the second attempt that does not help, or after which the device is faulty again within an
hour: then the device is to be replaced. A pool begins `spec.maxRepairsPerHour` repairs within an hour.
"""

import datetime as dt
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

import msgspec

from api.kinds.gpudevice import DeviceRepair, RepairStep
from api.kinds.gpupool import RepairPolicy
from api.status_conditions import format_time, parse_time
from inventory.health.recovery import CURES, REPAIRS, RecoveryAction, Repair
from inventory.pools.maintenance import pods_text

if TYPE_CHECKING:
    from inventory.pools.maintenance import PodUsage

MAX_ATTEMPTS: Final = 2
RELAPSE: Final = dt.timedelta(hours=1)
"""A fault within this time of the last attempt is a failure of that attempt; and the time of a pool's budget."""
ANSWER: Final = dt.timedelta(minutes=5)
"""Time until a missing outcome of a reset is said; it is no failure of the device. A reset takes a minute at most."""
_OVER_BUDGET: Final = "the pool has begun spec.maxRepairsPerHour repairs within the last hour"
_NO_OUTCOME: Final = {
    True: "the node agent is silent, and resets it when it is back",
    False: "the node agent is one of an earlier version, lacks the role mig, or has many devices to reset",
}
TEST: Final = dt.timedelta(minutes=2)
"""Time for a device that was reset to have its clean samples, which take half a minute."""


class ResetOutcome(Enum):
    """How a reset ended; the node agent reports it."""

    DONE = "Done"
    IN_USE = "InUse"
    """A process, a pod or a program of the node has the device, or one that has to be reset with it; tried again."""
    REFUSED = "Refused"
    HANGS = "Hangs"
    """It did not end in time."""


def reset_text(repair: DeviceRepair, outcome: ResetOutcome) -> str:
    """Return the text of an outcome in the agent's report, which names the attempt by its begin."""
    return f"attempt-{repair.started.replace(':', '')}-{outcome.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairCase:
    """The present state of a device."""

    action: RecoveryAction
    """What it needs; NONE of a healthy device."""
    policy: RepairPolicy
    """Of its pool; OFF of a device in none."""
    repair: DeviceRepair | None = None
    reported: str | None = ""
    """The outcome in the agent's report (`reset_text`); None while the agent is silent."""
    pods: "tuple[PodUsage, ...]" = ()
    """The pods that use it."""
    obstacle: str = ""
    """What kept its pods from being evicted; empty where nothing did."""
    reserved: int = 0
    """Units of bindings in progress."""
    is_in_budget: bool = True
    """Whether the pool may begin another repair now."""
    now: dt.datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairPlan:
    """The state of the repair from now on, and the pods to evict for it."""

    repair: DeviceRepair | None
    evict: "tuple[PodUsage, ...]" = ()


def plan_repair(case: RepairCase) -> RepairPlan:
    """Return the next state; the same where nothing happened."""
    before = case.repair
    if case.action is RecoveryAction.NONE:
        if before is None or before.step is RepairStep.REPAIRED:
            return RepairPlan(repair=before)
        return RepairPlan(repair=_healed(case, before))
    if case.policy is RepairPolicy.OFF:
        return RepairPlan(repair=None)
    if before is not None and before.step is RepairStep.FAILED:
        return RepairPlan(repair=before)
    if REPAIRS[case.action] is Repair.REBOOT:
        return _asking_for_reboot(case)
    if before is not None and before.step in {RepairStep.RESETTING, RepairStep.TESTING}:
        step = _resetting if before.step is RepairStep.RESETTING else _testing
        return RepairPlan(repair=step(case, before))
    return _leaving(case)


def begun_within_the_hour(repair: DeviceRepair | None, now: dt.datetime) -> bool:
    """Whether a repair counts for its pool's budget; one that waits, or evicts no pod for a reboot, has no begin."""
    return repair is not None and _passed(repair.started, now) < RELAPSE


def _leaving(case: RepairCase) -> RepairPlan:
    """Plan up to the moment from which nothing uses the device."""
    before, kind = case.repair, REPAIRS[case.action]
    if kind is Repair.NOTHING:
        if before is not None and before.step is RepairStep.DRAINING:
            before = _step(before, RepairStep.DRAINING, _needs(case), now=case.now)
        return RepairPlan(repair=before)
    begun = _going_on(before)
    evict = case.pods if case.policy is RepairPolicy.EVICT else ()
    if begun is None or begun.step in {RepairStep.WAITING, RepairStep.REBOOT_ASKED}:
        begun = _begin(case)
        if begun.step is not RepairStep.DRAINING:
            return RepairPlan(repair=begun)
    if case.pods or case.reserved:
        doing = "evicts" if evict else "waits for"
        text = f"{doing} {pods_text(case.pods) if case.pods else 'bindings in progress'}"
        if evict and case.obstacle:
            text = f"{text}; {case.obstacle}"
        return RepairPlan(repair=_step(begun, RepairStep.DRAINING, text, now=case.now), evict=evict)
    if kind is Repair.DRAIN:
        text = f"no pod uses it: {CURES[case.action]}"
        return RepairPlan(repair=_step(begun, RepairStep.DRAINING, text, now=case.now))
    return RepairPlan(
        repair=_step(begun, RepairStep.RESETTING, "the node agent resets it", now=case.now)
    )


def _asking_for_reboot(case: RepairCase) -> RepairPlan:
    asked = _going_on(case.repair) or msgspec.structs.replace(_first(case), started="")
    asked = msgspec.structs.replace(asked, attempt=_resets_made(case))
    evict = case.pods if case.policy is RepairPolicy.EVICT else ()
    text = _needs(case)
    if evict and not asked.started and case.is_in_budget:
        asked = msgspec.structs.replace(asked, started=format_time(case.now))
    elif evict and not asked.started:
        evict, text = (), f"{text}; its pods stay for now: {_OVER_BUDGET}"
    elif evict and case.obstacle:
        text = f"{text}; {case.obstacle}"
    return RepairPlan(repair=_step(asked, RepairStep.REBOOT_ASKED, text, now=case.now), evict=evict)


def _needs(case: RepairCase) -> str:
    return f"needs {case.action.value}: {CURES[case.action]}"


def _going_on(repair: DeviceRepair | None) -> DeviceRepair | None:
    return None if repair is None or repair.is_over else repair


def _begin(case: RepairCase) -> DeviceRepair:
    last = case.repair
    attempt = 1 + _resets_made(case)
    begun = msgspec.structs.replace(_first(case), attempt=attempt)
    if attempt > MAX_ATTEMPTS:
        return _failed(case, begun, "it is faulty again within an hour of its second reset")
    if not case.is_in_budget:
        waits = last if last is not None and last.step is RepairStep.WAITING else begun
        waits = msgspec.structs.replace(waits, started="")
        return _step(waits, RepairStep.WAITING, _OVER_BUDGET, now=case.now)
    return begun


def _first(case: RepairCase) -> DeviceRepair:
    now = format_time(case.now)
    return DeviceRepair(step=RepairStep.DRAINING, attempt=0, since=now, started=now)


def _resets_made(case: RepairCase) -> int:
    """Count the resets of the present repair, and of one that ended within the hour; not one that was never made."""
    before = case.repair
    if before is None:
        return 0
    is_asked_only = before.step is RepairStep.RESETTING and (
        _outcome(case, before) in {None, ResetOutcome.IN_USE}
    )
    if is_asked_only or before.step in {RepairStep.WAITING, RepairStep.DRAINING}:
        return max(before.attempt - 1, 0)
    has_ended = before.step in {RepairStep.REPAIRED, RepairStep.REBOOT_ASKED}
    return 0 if has_ended and _passed(before.since, case.now) >= RELAPSE else before.attempt


def _healed(case: RepairCase, before: DeviceRepair) -> DeviceRepair:
    ended = msgspec.structs.replace(before, attempt=_resets_made(case))
    return _step(ended, RepairStep.REPAIRED, "it is healthy again", now=case.now)


def _outcome(case: RepairCase, before: DeviceRepair) -> ResetOutcome | None:
    reported = {reset_text(before, outcome): outcome for outcome in ResetOutcome}
    return reported.get(case.reported or "")


def _resetting(case: RepairCase, before: DeviceRepair) -> DeviceRepair:
    match _outcome(case, before):
        case None if _passed(before.since, case.now) < ANSWER:
            return before
        case None:
            text = f"no outcome of its reset is reported: {_NO_OUTCOME[case.reported is None]}"
            return msgspec.structs.replace(before, message=text)
        case ResetOutcome.DONE:
            return _step(
                before, RepairStep.TESTING, "it was reset; its clean samples follow", now=case.now
            )
        case ResetOutcome.IN_USE:
            text = "its reset waits: the device, or one that is reset with it, is in use (Event of the node agent)"
            return _step(before, RepairStep.RESETTING, text, now=case.now)
        case ResetOutcome.REFUSED:
            return _failed(case, before, "the driver refused the reset (Event of the node agent)")
        case ResetOutcome.HANGS:  # pragma: no branch  # mypy proves that none is missing
            return _failed(case, before, "the reset did not end in time")


def _testing(case: RepairCase, before: DeviceRepair) -> DeviceRepair:
    if _passed(before.since, case.now) < TEST or case.reported is None:
        return before
    return _failed(case, before, f"it still needs {case.action.value} after its reset")


def _failed(case: RepairCase, before: DeviceRepair, text: str) -> DeviceRepair:
    """Begin the next attempt, or give the device up."""
    if before.attempt >= MAX_ATTEMPTS:
        return _step(before, RepairStep.FAILED, f"{text}: replace the device", now=case.now)
    again = msgspec.structs.replace(
        before, attempt=before.attempt + 1, started=format_time(case.now)
    )
    return _step(again, RepairStep.DRAINING, f"{text}; a second attempt follows", now=case.now)


def _step(before: DeviceRepair, step: RepairStep, text: str, *, now: dt.datetime) -> DeviceRepair:
    since = before.since if before.step is step else format_time(now)
    return msgspec.structs.replace(before, step=step, since=since, message=text)


def _passed(since: str, now: dt.datetime) -> dt.timedelta:
    """Return the time between; a time that cannot be read is long ago, as is one of a clock that was far ahead."""
    return abs(now - (parse_time(since) or dt.datetime.min.replace(tzinfo=dt.UTC)))
