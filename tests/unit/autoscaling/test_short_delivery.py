"""What a node brings is compared with what its shape promises: too little is a failure of the shape."""

import pytest

from autoscaling.request_state import COMPLETE_WITHIN
from autoscaling.scaling_model import DEVICES_WITHIN, Failure, RequestPhase
from tests.support.scale_requests import (
    RequestHistory,
    a_claim,
    a_requested_node,
    a_signal,
    true_since,
)

CLAIM = a_claim(launched=true_since(5), registered=true_since(60), node="n1")
GRACE_S = COMPLETE_WITHIN.total_seconds()
SIGNALS = [a_signal()]


def watched(readings: RequestHistory, at_s: float, **of_node: int):
    node = a_requested_node(**of_node)
    return readings.one(at_s, signals=SIGNALS, claims=[CLAIM], nodes=[node])


@pytest.mark.parametrize(
    ("of_node", "usable"),
    [
        pytest.param({"units": 1}, 1, id="a device is missing"),
        pytest.param({"units": 7, "reported_units": 8}, 7, id="a device is faulted"),
        pytest.param({"units": 0, "reported_units": 8}, 0, id="all devices are faulted"),
    ],
)
def test_a_node_with_fewer_usable_units_than_promised_fails_once_they_are_overdue(of_node, usable):
    readings = RequestHistory()
    found = watched(readings, 70, **of_node)
    assert found.phase is RequestPhase.INCOMPLETE
    assert found.is_in_flight
    assert watched(readings, 69 + GRACE_S, **of_node).phase is RequestPhase.INCOMPLETE
    found = watched(readings, 70 + GRACE_S, **of_node)
    assert found.failure is Failure.FEWER_DEVICES
    assert f"brings {usable} usable units" in found.message
    assert "promises 8" in found.message


def test_the_failure_lasts_until_the_node_is_handed_over_or_complete():
    readings = RequestHistory()
    watched(readings, 70, units=1)
    watched(readings, 70 + GRACE_S, units=1)
    assert watched(readings, 600, units=1).failure is Failure.FEWER_DEVICES
    assert watched(readings, 605, units=8).phase is RequestPhase.AGENT_READY


def test_devices_that_join_one_after_the_other_are_awaited():
    readings = RequestHistory()
    assert watched(readings, 70, units=1).phase is RequestPhase.INCOMPLETE
    assert watched(readings, 100, units=6).phase is RequestPhase.INCOMPLETE
    assert watched(readings, 130, units=8).phase is RequestPhase.AGENT_READY


def test_units_that_kubelet_never_allocates_are_a_failure_after_the_time_of_devices():
    readings = RequestHistory()
    node = {"indexed_units": 8, "allocatable_units": 3}
    assert watched(readings, 70, **node).phase is RequestPhase.REGISTERED
    found = watched(readings, 60 + DEVICES_WITHIN.total_seconds(), **node)
    assert found.failure is Failure.FEWER_DEVICES
    assert "brings 3 usable units" in found.message


def test_a_device_that_fails_once_units_are_reserved_is_no_failure_of_the_shape():
    readings = RequestHistory()
    watched(readings, 70, units=8)
    found = watched(readings, 80, units=7, reserved_units=2)
    assert found.phase is RequestPhase.RESERVED


def test_a_node_without_the_startup_taint_is_compared_as_well():
    readings = RequestHistory()
    watched(readings, 65, units=0)
    node = {"units": 1, "has_startup_taint": False}
    assert watched(readings, 70, **node).phase is RequestPhase.INCOMPLETE
    assert watched(readings, 70 + GRACE_S, **node).failure is Failure.FEWER_DEVICES
