"""What a pool's status says for every state that it can be in."""

import datetime as dt
from typing import Any

import msgspec
import pytest

from api.kinds.gpupool import GPUPool, GPUPoolStatus, PoolCapacity
from api.meta import Condition
from api.names import PodUid
from api.status_conditions import find_condition
from inventory.pools.maintenance import PodUsage
from inventory.pools.validation import VALID_POOL, PoolFault, PoolFaultReason, PoolValidity
from reconciler.pool.conditions import PoolFigures, status_of
from telemetry.conditions import PoolCondition, PoolMisconfigured

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
LATER = NOW + dt.timedelta(minutes=1)
SLICED = {"mode": "TimeSlice", "slicesPerDevice": 4}
UNSUPPORTED = PoolValidity(unsupported=PoolFault(PoolFaultReason.UNSUPPORTED_VENDOR, "AMD only"))
BAD = PoolValidity(
    misconfigured=(
        PoolFault(PoolFaultReason.RESOURCE_NAME_TAKEN, "taken"),
        PoolFault(PoolFaultReason.PROFILE_NOT_SUPPORTED, "no device can"),
    )
)


def a_pool(*, is_terminating: bool = False, **raw: Any) -> GPUPool:
    metadata: dict[str, Any] = {"name": "p", "generation": 3}
    if is_terminating:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return msgspec.convert({"metadata": metadata, **raw}, GPUPool)


def units(total: int, *, used: int = 0, unhealthy: int = 0) -> PoolCapacity:
    return PoolCapacity(
        total=total, used=used, unhealthy=unhealthy, available=total - used - unhealthy
    )


def said(
    pool: GPUPool | None = None,
    capacity: PoolCapacity | None = None,
    *,
    current: GPUPoolStatus | None = None,
    now: dt.datetime = NOW,
    **more: Any,
) -> GPUPoolStatus:
    figures = PoolFigures(capacity=capacity or units(10), nodes=2, **more)
    return status_of(pool or a_pool(), current or GPUPoolStatus(), figures, now=now)


def found(status: GPUPoolStatus, type_: PoolCondition = PoolCondition.READY) -> Condition:
    condition = find_condition(status.conditions, type_)
    assert condition is not None
    return condition


@pytest.mark.parametrize(
    ("pool", "capacity", "validity", "phase", "reason"),
    [
        pytest.param({}, units(10), VALID_POOL, "Ready", "Serving", id="serving"),
        pytest.param({}, units(0), VALID_POOL, "Pending", "NoDevices", id="no device"),
        pytest.param(
            {}, units(2, unhealthy=2), VALID_POOL, "Degraded", "NoHealthyDevices", id="unhealthy"
        ),
        pytest.param(
            {"spec": {"allocation": SLICED}, "status": {"allocation": {"mode": "Exclusive"}}},
            units(2, unhealthy=2),
            VALID_POOL,
            "Maintenance",
            "InMaintenance",
            id="maintenance",
        ),
        pytest.param({}, units(2), UNSUPPORTED, "Misconfigured", "Unsupported", id="unsupported"),
        pytest.param({}, units(2), BAD, "Misconfigured", "Misconfigured", id="misconfigured"),
        pytest.param(
            {"is_terminating": True}, units(2), BAD, "Terminating", "Terminating", id="terminating"
        ),
    ],
)
def test_phase_and_ready_say_the_most_important_thing(pool, capacity, validity, phase, reason):
    status = said(a_pool(**pool), capacity, validity=validity)
    ready = found(status)
    assert (status.phase, ready.reason) == (phase, reason)
    assert ready.status == ("True" if reason == "Serving" else "False")
    assert all(condition.observed_generation == 3 for condition in status.conditions or ())
    assert status.observed_generation == 3


def test_a_maintenance_says_what_changes():
    pool = a_pool(spec={"allocation": SLICED}, status={"allocation": {"mode": "Exclusive"}})
    assert found(said(pool)).message == (
        "accepts no new pods: changes from Exclusive to TimeSlice (4 slices per device) once no unit is in use"
    )


def test_pods_that_hold_up_the_deletion_are_named():
    occupant = PodUsage(namespace="ns", name="a", uid=PodUid("u"), units=2)
    status = said(a_pool(is_terminating=True), occupants=(occupant,))
    assert found(status).message == "being deleted; waiting for 1 pod with 2 units (ns/a)"


def test_support_and_configuration_have_conditions_of_their_own():
    assert found(said(), PoolCondition.SUPPORTED).status == "True"
    assert found(said(), PoolCondition.MISCONFIGURED).status == "False"
    unsupported = found(said(validity=UNSUPPORTED), PoolCondition.SUPPORTED)
    assert (unsupported.status, unsupported.reason) == ("False", "UnsupportedVendor")
    assert unsupported.message == "AMD only"
    bad = found(said(validity=BAD), PoolCondition.MISCONFIGURED)
    assert (bad.status, bad.reason) == ("True", "ResourceNameTaken")
    assert bad.message == "taken; no device can"


@pytest.mark.parametrize(
    "objection", sorted(set(PoolFaultReason) - {PoolFaultReason.UNSUPPORTED_VENDOR}, key=str)
)
def test_every_objection_has_a_reason(objection):
    validity = PoolValidity(misconfigured=(PoolFault(objection, "x"),))
    reason = found(said(validity=validity), PoolCondition.MISCONFIGURED).reason
    assert reason in {item.value for item in PoolMisconfigured} - {"Valid"}


@pytest.mark.parametrize(
    ("used", "was_low", "is_low"),
    [
        pytest.param(90, False, False, id="a tenth"),
        pytest.param(91, False, True, id="less than a tenth"),
        pytest.param(100, False, True, id="nothing"),
        pytest.param(80, True, True, id="a fifth, after it was low"),
        pytest.param(79, True, False, id="more than a fifth"),
        pytest.param(85, False, False, id="between, before it was low"),
    ],
)
def test_few_free_units_are_said_and_taken_back_late(used, was_low, is_low):
    current = said(capacity=units(100, used=99 if was_low else 0))
    status = said(capacity=units(100, used=used), current=current, now=LATER)
    low = found(status, PoolCondition.CAPACITY_LOW)
    assert low.status == ("True" if is_low else "False")
    moved = "2026-01-01T00:01:00Z" if is_low != was_low else "2026-01-01T00:00:00Z"
    assert low.last_transition_time == moved


def test_no_unit_free_has_a_reason_of_its_own():
    low = found(said(capacity=units(4, used=4)), PoolCondition.CAPACITY_LOW)
    assert (low.status, low.reason) == ("True", "Exhausted")


@pytest.mark.parametrize(
    ("pool", "capacity"),
    [
        pytest.param({}, units(0), id="no device"),
        pytest.param({}, units(2, unhealthy=2), id="unhealthy"),
        pytest.param({"is_terminating": True}, units(2, used=2), id="terminating"),
        pytest.param(
            {"spec": {"allocation": SLICED}, "status": {"allocation": {"mode": "Exclusive"}}},
            units(2, used=1, unhealthy=1),
            id="maintenance",
        ),
    ],
)
def test_a_pool_that_gives_out_nothing_is_not_short_of_units(pool, capacity):
    low = found(said(a_pool(**pool), capacity), PoolCondition.CAPACITY_LOW)
    assert low.status == "False"


def test_units_that_come_and_go_change_no_condition():
    current = said(capacity=units(100, used=10))
    assert (
        said(capacity=units(100, used=50), current=current, now=LATER).conditions
        == current.conditions
    )


def test_a_very_long_text_is_cut():
    validity = PoolValidity(misconfigured=(PoolFault(PoolFaultReason.BAD_SPEC, "x " * 4000),))
    assert len(found(said(validity=validity)).message) <= 1024


SCALES = a_pool(spec={"autoscaling": {"shapes": [{"name": "one", "devices": 1}]}})


def test_a_full_pool_that_scales_is_no_reason_to_warn():
    low = found(said(SCALES, units(4, used=4)), PoolCondition.CAPACITY_LOW)
    assert (low.status, low.message) == ("False", "nodes are added for pods that wait")


@pytest.mark.parametrize(
    ("capacity", "text"),
    [
        pytest.param(units(0), "no node is there: one is added", id="from zero"),
        pytest.param(units(2, unhealthy=2), "has just been added", id="first node"),
    ],
)
def test_a_pool_that_scales_says_what_comes(capacity, text):
    assert text in found(said(SCALES, capacity)).message
