"""Device-hours and money of a scaling pool."""

import dataclasses
import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.kinds.autoscaling import AutoscalingStatus
from api.names import NodeName, PodUid, UnitId
from api.status_conditions import format_time
from autoscaling.device_hours import (
    UsageTotals,
    advanced,
    decimal_text,
    totals_from,
    usage_statuses,
)
from autoscaling.device_use import DeviceUse, PoolUsageCounter, UsageSample
from autoscaling.scaling_model import ObservedRequest, RequestPhase, ScalingParameters
from pool.index.device_index import DeviceIndex
from tests.support.builders import a_device, a_node, a_pod_facts
from tests.support.scale_requests import (
    ID,
    POOL,
    SHAPES,
    START,
    a_claim,
    a_requested_node,
    after,
    the_parameters,
)

BUSY, IDLE, IN_FLIGHT, STRANDED = (
    DeviceUse.BUSY,
    DeviceUse.IDLE,
    DeviceUse.IN_FLIGHT,
    DeviceUse.STRANDED,
)
HOUR = dt.timedelta(hours=1)


def an_index(devices: int = 8, used: int = 0, **node: Any) -> DeviceIndex:
    index = DeviceIndex()
    index.replace_pool(POOL)
    index.replace_node(a_node("n1", labels={"karpenter.sh/nodepool": "whole"}, **node))
    for number in range(devices):
        index.replace_device(a_device("n1", number))
    if used:
        index.set_observed(PodUid("p"), tuple(UnitId(f"GPU-n1-{item}") for item in range(used)))
    return index


def a_usage(
    index: DeviceIndex, parameters: ScalingParameters | None = None, **changes: Any
) -> UsageSample:
    seen = {"observed": (), "waiting": (), **changes}
    return PoolUsageCounter().sample(parameters or the_parameters(), index, **seen)


def test_what_devices_the_nodes_of_a_shape_have_is_counted_too():
    index = an_index()
    for number, capability in enumerate(("8.6", "9.0")):
        index.replace_device(a_device("n1", number, compute_capability=capability))
    assert a_usage(index).capabilities == {"large": ("8.6", "9.0")}
    index.replace_node(a_node("n1"))
    assert not a_usage(index).capabilities


def uses(index: DeviceIndex, **changes: Any) -> dict[DeviceUse, int]:
    found = a_usage(index, **changes)
    return {use: count for use, count in found.devices.items() if count}


def a_request(**fields: Any) -> ObservedRequest:
    return ObservedRequest(
        **{
            "id": ID,
            "pool": POOL.name,
            "shape": SHAPES[0],
            "phase": RequestPhase.LAUNCHED,
            "since": START,
            "claim": a_claim(),
            **fields,
        }
    )


def test_devices_are_busy_or_idle():
    assert uses(an_index()) == {IDLE: 8}
    assert uses(an_index(used=3)) == {BUSY: 3, IDLE: 5}


def test_devices_that_are_left_of_a_used_node_are_stranded_while_only_larger_pods_wait():
    assert uses(an_index(used=5), waiting=[a_pod_facts("w", units=4)]) == {BUSY: 5, STRANDED: 3}
    both = [a_pod_facts("w", units=4), a_pod_facts("v", units=2)]
    assert uses(an_index(used=5), waiting=both) == {BUSY: 5, IDLE: 3}
    assert uses(an_index(), waiting=[a_pod_facts("w", units=9)]) == {IDLE: 8}


@pytest.mark.parametrize("node", [{"is_ready": False}, {"is_cordoned": True}, {"is_leaving": True}])
def test_devices_of_a_node_that_takes_no_pods_are_stranded(node: dict[str, Any]):
    assert uses(an_index(used=2, **node)) == {BUSY: 2, STRANDED: 6}


def test_a_launched_node_is_in_flight_until_its_devices_are_there():
    index = an_index(devices=0)
    signalled = a_request(phase=RequestPhase.SIGNALLED, claim=None)
    assert uses(index, observed=[signalled]) == {}
    assert uses(index, observed=[a_request()]) == {IN_FLIGHT: 8}
    registered = a_request(phase=RequestPhase.REGISTERED, node=a_requested_node())
    assert uses(index, observed=[registered]) == {IN_FLIGHT: 8}
    assert uses(an_index(), observed=[registered]) == {IDLE: 8}


def test_a_node_costs_what_its_shape_costs():
    usage = a_usage(an_index(used=2))
    assert usage.micro == {BUSY: 2_000_000, IDLE: 6_000_000}
    assert a_usage(an_index()).running_micro == 8_000_000
    registered = a_request(node=dataclasses.replace(a_requested_node(), name=NodeName("n2")))
    assert a_usage(an_index(), observed=[registered, a_request()]).running_micro == 16_000_000


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 8)), max_size=8))
def test_a_later_look_is_as_a_first_one(changes: list[tuple[int, int]]):
    index, counter = an_index(), PoolUsageCounter()
    for node, used in changes:
        name = f"n{node + 1}"
        index.replace_node(a_node(name, is_cordoned=used == 7))
        for number in range(8):
            index.replace_device(a_device(name, number))
        index.set_observed(
            PodUid(name), tuple(UnitId(f"GPU-{name}-{number}") for number in range(used))
        )
        if used == 8:
            index.discard_node(NodeName(name))
        waiting = [a_pod_facts("w", units=used)] if used else []
        found = counter.sample(the_parameters(), index, observed=(), waiting=waiting)
        assert found == a_usage(index, waiting=waiting)


def test_without_a_price_there_is_no_money():
    shapes = (dataclasses.replace(SHAPES[0], price_micro=None),)
    usage = a_usage(an_index(), the_parameters(shapes=shapes))
    totals = advanced(UsageTotals(day=START.date(), counted_at=START), usage, after(3600))
    assert usage.micro == {}
    assert {status.state: status.cost for status in usage_statuses(totals, usage)} == dict.fromkeys(
        ("busy", "idle", "inFlight", "stranded"), ""
    )


USAGE = UsageSample(devices={BUSY: 2, IDLE: 6}, micro={BUSY: 2_000_000, IDLE: 6_000_000})


def test_an_hour_of_eight_devices():
    totals = advanced(UsageTotals(day=START.date(), counted_at=START), USAGE, START + HOUR)
    assert totals.spent_micro == 8_000_000
    current = {
        status.state: (status.devices, status.device_hours, status.cost)
        for status in usage_statuses(totals, USAGE)
    }
    assert current["busy"] == (2, "2", "2")
    assert current["idle"] == (6, "6", "6")
    assert current["stranded"] == (0, "0", "")


def test_a_day_begins_at_zero():
    late = dt.datetime(2026, 3, 1, 23, 50, tzinfo=dt.UTC)
    before = UsageTotals(day=late.date(), counted_at=late, micro_ms={BUSY: 10**15})
    totals = advanced(before, USAGE, late + dt.timedelta(minutes=40))
    assert (totals.day, totals.spent_micro) == (dt.date(2026, 3, 2), 4_000_000)


def test_a_clock_that_jumps_back_adds_nothing_and_a_long_gap_one_hour():
    begun = UsageTotals(day=START.date(), counted_at=START)
    back = advanced(begun, USAGE, START - HOUR)
    assert (back.spent_micro, back.counted_at) == (0, START - HOUR)
    assert advanced(begun, USAGE, START + 5 * HOUR).spent_micro == 8_000_000


def status_of(totals: UsageTotals) -> AutoscalingStatus:
    return AutoscalingStatus(
        usage=usage_statuses(totals, USAGE),
        day=totals.day.isoformat(),
        counted_at=format_time(totals.counted_at),
    )


def test_a_restart_goes_on_where_the_status_was_written():
    totals = advanced(UsageTotals(day=START.date(), counted_at=START), USAGE, START + HOUR / 2)
    restored = totals_from(status_of(totals), START + HOUR)
    assert restored.counted_at == totals.counted_at
    assert advanced(restored, USAGE, START + HOUR).spent_micro == 8_000_000
    yesterday = totals_from(status_of(totals), START + 20 * HOUR)
    assert (yesterday.spent_micro, yesterday.device_ms) == (0, {})
    assert totals_from(None, START) == UsageTotals(day=START.date(), counted_at=START)


@given(st.integers(0, 10**12), st.sampled_from([1, 1000, 10**6, 3_600_000]))
def test_a_decimal_text_is_the_fraction_to_four_places(amount: int, one: int):
    text = decimal_text(amount, one)
    assert abs(float(text) - amount / one) <= 1e-4 + amount / one * 1e-12
    assert "e" not in text


@given(st.lists(st.integers(-4000, 4000), max_size=20))
def test_nothing_is_counted_twice_whatever_the_clock_does(steps: list[int]):
    totals = UsageTotals(day=START.date(), counted_at=START)
    now, ahead = START, 0.0
    for step_s in steps:
        now += dt.timedelta(seconds=step_s)
        ahead += min(max(step_s, 0), 3600)
        totals = advanced(totals, USAGE, now)
        assert 0 <= totals.spent_micro <= 8_000_000 * ahead / 3600 + 1
        assert totals.day == now.date()
