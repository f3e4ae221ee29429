"""The health_state on a device: what makes it unhealthy, and what makes it well again."""

from typing import Any

import pytest

from agent.driver.port import DriverDevice, DriverEvent, DriverSnapshot, EventKind
from agent.health.states import HEALTHY, LOST, HealthState
from agent.health.tracker import EventEffect, HealthChange, HealthTracker, HealthTrackingLimits
from inventory.health.device import (
    IGNORED_XIDS,
    UNKNOWN,
    FaultKind,
    HealthDebounceLimits,
    HealthReport,
    assess_health,
)

QUIET_S = 300.0


def a_snapshot(*devices: DriverDevice, version: str = "570.124.06") -> DriverSnapshot:
    return DriverSnapshot(driver_version=version, cuda_version="12.8", devices=devices)


def a_device(number: int = 1, **changes: Any) -> DriverDevice:
    return DriverDevice(
        **{
            "address": f"0000:{number:02x}:00.0",
            "uuid": f"GPU-{number}",
            "minor": number,
            "product": "NVIDIA H100",
            "temperature_celsius": 40,
            "shutdown_temperature_celsius": 92,
            "uncorrectable_errors": 0,
            **changes,
        }
    )


def lost_device(number: int = 1, **changes: Any) -> DriverDevice:
    known: dict[str, Any] = {"address": f"0000:{number:02x}:00.0", "uuid": f"GPU-{number}"}
    return DriverDevice(**{**known, "minor": number, "product": "", "is_lost": True, **changes})


def xid(code: int, uuid: str = "GPU-1") -> DriverEvent:
    return DriverEvent(uuid=uuid, kind=EventKind.XID, code=code)


DOUBLE_BIT = DriverEvent(uuid="GPU-1", kind=EventKind.DOUBLE_BIT_ECC)


@pytest.fixture
def tracker() -> HealthTracker:
    """That has seen two healthy devices."""
    tracker = HealthTracker()
    assert tracker.observe(a_snapshot(a_device(1), a_device(2)), 0.0) == ()
    return tracker


def reason(tracker: HealthTracker, uuid: str = "GPU-1") -> str:
    return tracker.health(uuid).reason


def test_a_device_that_was_never_seen_is_healthy():
    assert HealthTracker().health("GPU-9") == HEALTHY


# --- what makes it unhealthy -----------------------------------------------------------------------


def test_an_xid_counts_against_its_device_alone(tracker: HealthTracker):
    changes = tracker.record(xid(79), 1.0)
    assert [
        (change.uuid, change.address, change.before, change.after.reason) for change in changes
    ] == [("GPU-1", "0000:01:00.0", HEALTHY, "Xid79")]
    assert tracker.health("GPU-1").state is HealthState.UNHEALTHY
    assert tracker.health("GPU-2") == HEALTHY


@pytest.mark.parametrize("code", sorted(IGNORED_XIDS))
def test_an_xid_of_an_application_is_no_fault(tracker: HealthTracker, code: int):
    assert tracker.effect_of(xid(code)) is EventEffect.IGNORED
    assert tracker.record(xid(code), 1.0) == ()
    assert tracker.health("GPU-1") == HEALTHY


def test_which_xids_are_ignored_is_a_setting():
    tracker = HealthTracker(HealthTrackingLimits(ignored_xids=frozenset({79})))
    assert tracker.effect_of(xid(79)) is EventEffect.IGNORED
    assert tracker.effect_of(xid(13)) is EventEffect.FAULT


def test_ignored_codes_are_those_of_xids_only():
    event = DriverEvent(uuid="GPU-1", kind=EventKind.DOUBLE_BIT_ECC, code=13)
    assert HealthTracker().effect_of(event) is EventEffect.FAULT


def test_an_event_of_no_device_is_every_devices(tracker: HealthTracker):
    assert {item.uuid for item in tracker.record(xid(79, ""), 1.0)} == {"GPU-1", "GPU-2"}


def test_an_event_may_come_before_the_first_snapshot():
    tracker = HealthTracker()
    tracker.record(xid(79), 1.0)
    tracker.observe(a_snapshot(a_device()), 2.0)
    assert reason(tracker) == "Xid79"


def test_a_device_with_events_and_no_snapshot_is_forgotten(tracker: HealthTracker):
    tracker.record(xid(79, "GPU-9"), 1.0)
    tracker.observe(a_snapshot(a_device(1), a_device(2)), 2.0)
    assert "GPU-9" not in tracker.states()


@pytest.mark.parametrize(
    ("current", "expected"),
    [
        pytest.param({"uncorrectable_errors": 1}, "EccUncorrectable", id="a new ECC error"),
        pytest.param({"is_row_remap_failed": True}, "EccRowRemapFailed", id="no row to remap to"),
        pytest.param({"temperature_celsius": 92}, "ThermalShutdown", id="at the threshold"),
        pytest.param({"temperature_celsius": 91}, "", id="hot"),
        pytest.param({"temperature_celsius": None}, "", id="no temperature"),
        pytest.param(
            {"temperature_celsius": 99, "shutdown_temperature_celsius": None}, "", id="no threshold"
        ),
        pytest.param({"uncorrectable_errors": None}, "", id="no ECC"),
    ],
)
def test_a_look_shows_faults(tracker: HealthTracker, current: dict[str, Any], expected: str):
    tracker.observe(a_snapshot(a_device(1, **current), a_device(2)), 1.0)
    assert reason(tracker) == expected
    assert tracker.health("GPU-2") == HEALTHY


def test_errors_from_before_the_first_look_are_old():
    tracker = HealthTracker()
    tracker.observe(a_snapshot(a_device(uncorrectable_errors=7)), 0.0)
    tracker.observe(a_snapshot(a_device(uncorrectable_errors=7)), 1.0)
    assert tracker.health("GPU-1") == HEALTHY


def test_a_count_that_was_missing_once_is_compared_with_the_last_one(tracker: HealthTracker):
    tracker.observe(a_snapshot(a_device(uncorrectable_errors=None), a_device(2)), 1.0)
    tracker.observe(a_snapshot(a_device(uncorrectable_errors=1), a_device(2)), 2.0)
    assert reason(tracker) == "EccUncorrectable"


def test_a_double_bit_error_is_a_fault(tracker: HealthTracker):
    tracker.record(DOUBLE_BIT, 1.0)
    assert reason(tracker) == "EccDoubleBit"


def test_a_device_that_the_driver_does_not_reach_is_lost(tracker: HealthTracker):
    changes = tracker.observe(a_snapshot(lost_device(1), a_device(2)), 1.0)
    assert [(change.uuid, change.after) for change in changes] == [("GPU-1", LOST)]


def test_a_lost_device_without_its_uuid_is_known_by_its_address(tracker: HealthTracker):
    tracker.observe(a_snapshot(lost_device(1, uuid=""), a_device(2)), 1.0)
    assert tracker.health("GPU-1") == LOST
    assert set(tracker.states()) == {"GPU-1", "GPU-2"}
    tracker.observe(a_snapshot(lost_device(1, uuid=""), a_device(2), lost_device(3, uuid="")), 2.0)
    assert set(tracker.states()) == {"GPU-1", "GPU-2"}


@pytest.mark.parametrize(
    ("on_bus", "expected"),
    [
        pytest.param(
            {"0000:01:00.0", "0000:02:00.0"}, {"GPU-1": LOST, "GPU-2": HEALTHY}, id="there"
        ),
        pytest.param({"0000:02:00.0"}, {"GPU-2": HEALTHY}, id="taken out"),
        pytest.param(None, {"GPU-1": LOST, "GPU-2": HEALTHY}, id="nobody knows the bus"),
    ],
)
def test_a_device_that_the_driver_lists_no_more(
    tracker: HealthTracker, on_bus: set[str] | None, expected: dict[str, Any]
):
    tracker.observe(a_snapshot(a_device(2)), 1.0, on_bus=on_bus)
    assert tracker.states() == expected


def test_a_device_whose_place_another_has_is_gone(tracker: HealthTracker):
    tracker.observe(
        a_snapshot(a_device(1, uuid="GPU-new"), a_device(2)), 1.0, on_bus={"0000:01:00.0"}
    )
    assert set(tracker.states()) == {"GPU-new", "GPU-2"}


def test_lost_comes_before_other_faults(tracker: HealthTracker):
    tracker.record(xid(79), 1.0)
    tracker.observe(a_snapshot(lost_device(1), a_device(2)), 2.0)
    assert tracker.health("GPU-1") == LOST


def test_of_several_faults_the_first_one_is_named_while_it_stands(tracker: HealthTracker):
    tracker.record(xid(48), 1.0)
    assert tracker.record(DOUBLE_BIT, 2.0) == ()
    tracker.record(DOUBLE_BIT, 200.0)
    assert reason(tracker) == "Xid48"
    tracker.observe(a_snapshot(a_device(1), a_device(2)), 1.0 + QUIET_S)
    assert reason(tracker) == "EccDoubleBit"


def test_the_faults_of_one_device_are_bounded(tracker: HealthTracker):
    for code in range(200, 1200):
        tracker.record(xid(code), 1.0)
    assert len(tracker._devices["GPU-1"].momentary) == 16
    assert reason(tracker) == "Xid200"


# --- what makes it well again ----------------------------------------------------------------------


def test_a_momentary_fault_is_over_after_a_quiet_time_and_a_snapshot(tracker: HealthTracker):
    tracker.record(xid(79), 1.0)
    tracker.observe(a_snapshot(a_device(1), a_device(2)), 1.0 + QUIET_S - 0.1)
    assert reason(tracker) == "Xid79"
    # Time alone does not heal: the device is looked at.
    assert reason(tracker) == "Xid79"
    changes = tracker.observe(a_snapshot(a_device(1), a_device(2)), 1.0 + QUIET_S)
    assert [(change.before.reason, change.after) for change in changes] == [("Xid79", HEALTHY)]


def test_the_quiet_time_begins_with_the_last_event(tracker: HealthTracker):
    tracker.record(xid(79), 1.0)
    tracker.record(xid(79), 200.0)
    tracker.observe(a_snapshot(a_device(1), a_device(2)), 1.0 + QUIET_S)
    assert reason(tracker) == "Xid79"


def test_a_device_that_is_lost_is_not_well_for_being_quiet(tracker: HealthTracker):
    tracker.record(xid(79), 1.0)
    tracker.observe(a_snapshot(lost_device(1), a_device(2)), 1.0 + 2 * QUIET_S)
    assert tracker.health("GPU-1") == LOST


@pytest.mark.parametrize(
    ("bad", "good"),
    [
        pytest.param({"is_row_remap_failed": True}, {"is_row_remap_failed": False}, id="row remap"),
        pytest.param({"temperature_celsius": 93}, {"temperature_celsius": 86}, id="heat"),
    ],
)
def test_a_lasting_fault_ends_with_the_first_snapshot_without_it(
    tracker: HealthTracker, bad: dict[str, Any], good: dict[str, Any]
):
    tracker.observe(a_snapshot(a_device(1, **bad), a_device(2)), 1.0)
    assert reason(tracker) != ""
    tracker.observe(a_snapshot(a_device(1, **good), a_device(2)), 2.0)
    assert tracker.health("GPU-1") == HEALTHY


def test_a_failed_row_remap_stays_where_the_driver_does_not_answer(tracker: HealthTracker):
    for at, failed in enumerate((True, None, None)):
        snapshot = a_snapshot(a_device(1, is_row_remap_failed=failed), a_device(2))
        tracker.observe(snapshot, float(at))
        assert reason(tracker) == "EccRowRemapFailed"


def test_a_device_that_was_too_hot_cools_down_by_some_degrees_first(tracker: HealthTracker):
    for at, temperature in enumerate((92, 91, 87, None)):
        tracker.observe(
            a_snapshot(a_device(1, temperature_celsius=temperature), a_device(2)), float(at)
        )
        assert reason(tracker) == "ThermalShutdown", temperature
    tracker.observe(a_snapshot(a_device(1, temperature_celsius=86), a_device(2)), 9.0)
    assert tracker.health("GPU-1") == HEALTHY


def test_a_device_that_is_found_again_was_reset(tracker: HealthTracker):
    tracker.record(xid(79), 1.0)
    tracker.observe(a_snapshot(lost_device(1), a_device(2)), 2.0)
    tracker.observe(a_snapshot(a_device(1, uncorrectable_errors=3), a_device(2)), 3.0)
    assert tracker.health("GPU-1") == HEALTHY


def test_an_event_after_the_reset_counts(tracker: HealthTracker):
    tracker.observe(a_snapshot(lost_device(1), a_device(2)), 2.0)
    tracker.record(xid(95), 2.5)
    tracker.observe(a_snapshot(a_device(1), a_device(2)), 3.0)
    assert reason(tracker) == "Xid95"


def test_errors_that_went_back_are_those_of_a_device_that_was_reset():
    tracker = HealthTracker()
    tracker.observe(a_snapshot(a_device(uncorrectable_errors=2)), 0.0)
    tracker.observe(a_snapshot(a_device(uncorrectable_errors=3)), 1.0)
    tracker.record(xid(95), 1.5)
    tracker.observe(a_snapshot(a_device(uncorrectable_errors=3)), 2.0)
    assert reason(tracker) == "EccUncorrectable"
    tracker.observe(a_snapshot(a_device(uncorrectable_errors=0)), 3.0)
    assert tracker.health("GPU-1") == HEALTHY
    tracker.observe(a_snapshot(a_device(uncorrectable_errors=1)), 4.0)
    assert reason(tracker) == "EccUncorrectable"


def test_another_version_of_the_driver_begins_again(tracker: HealthTracker):
    tracker.record(xid(79), 1.0)
    tracker.observe(a_snapshot(a_device(1), a_device(2)), 2.0)
    assert reason(tracker) == "Xid79"
    tracker.observe(a_snapshot(a_device(1), a_device(2), version="575.1"), 3.0)
    assert tracker.health("GPU-1") == HEALTHY


def test_a_driver_that_was_gone_begins_again(tracker: HealthTracker):
    tracker.record(xid(79), 1.0)
    tracker.driver_restarted(2.0)
    assert reason(tracker) == "Xid79"
    tracker.record(xid(95, "GPU-2"), 3.0)
    tracker.observe(a_snapshot(a_device(1), a_device(2)), 4.0)
    assert tracker.health("GPU-1") == HEALTHY
    assert reason(tracker, "GPU-2") == "Xid95"


def test_a_driver_begins_again_once(tracker: HealthTracker):
    tracker.driver_restarted(2.0)
    tracker.observe(a_snapshot(a_device(1), a_device(2)), 3.0)
    tracker.record(xid(79), 3.0)
    tracker.observe(a_snapshot(a_device(1), a_device(2)), 4.0)
    assert reason(tracker) == "Xid79"


def test_a_count_that_begins_again_is_compared_from_there_on(tracker: HealthTracker):
    tracker.driver_restarted(1.0)
    tracker.observe(a_snapshot(a_device(1, uncorrectable_errors=4), a_device(2)), 2.0)
    assert tracker.health("GPU-1") == HEALTHY
    tracker.observe(a_snapshot(a_device(1, uncorrectable_errors=5), a_device(2)), 3.0)
    assert reason(tracker) == "EccUncorrectable"


# --- over a restart of the agent -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("published", "expected"),
    [
        ("Xid79", "Xid79"),
        ("EccDoubleBit", "EccDoubleBit"),
        ("EccUncorrectable", "EccUncorrectable"),
        ("Lost", ""),
        ("ThermalShutdown", ""),
        ("EccRowRemapFailed", ""),
        ("XidX", ""),
        ("Xid" + "9" * 400, ""),
        ("", ""),
    ],
)
def test_a_momentary_fault_is_recalled(published: str, expected: str):
    tracker = HealthTracker()
    tracker.recall("GPU-1", published, address="0000:01:00.0", now=10.0)
    tracker.observe(a_snapshot(a_device()), 11.0)
    assert reason(tracker) == expected
    tracker.observe(a_snapshot(a_device()), 10.0 + QUIET_S)
    assert tracker.health("GPU-1") == HEALTHY


def test_a_device_that_is_known_is_not_taken_up(tracker: HealthTracker):
    tracker.recall("GPU-1", "Xid79", address="0000:01:00.0", now=10.0)
    assert tracker.health("GPU-1") == HEALTHY


# --- who reads it ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("happens", "kind"),
    [
        pytest.param(lambda tracker: tracker.record(xid(79), 1.0), FaultKind.XID_ERROR, id="Xid"),
        pytest.param(
            lambda tracker: tracker.record(DOUBLE_BIT, 1.0), FaultKind.ECC_ERROR, id="double bit"
        ),
        pytest.param(
            lambda tracker: tracker.observe(a_snapshot(a_device(uncorrectable_errors=1)), 1.0),
            FaultKind.ECC_ERROR,
            id="uncorrectable",
        ),
        pytest.param(
            lambda tracker: tracker.observe(a_snapshot(a_device(is_row_remap_failed=True)), 1.0),
            FaultKind.ECC_ERROR,
            id="row remap",
        ),
        pytest.param(
            lambda tracker: tracker.observe(a_snapshot(a_device(temperature_celsius=99)), 1.0),
            FaultKind.THERMAL,
            id="heat",
        ),
        pytest.param(
            lambda tracker: tracker.observe(a_snapshot(lost_device()), 1.0),
            FaultKind.LOST,
            id="lost",
        ),
    ],
)
def test_the_control_plane_knows_each_reason(tracker: HealthTracker, happens: Any, kind: FaultKind):
    """`inventory.health.device` tells faults apart by how their reason begins."""
    (change,) = [happen for happen in happens(tracker) if happen.uuid == "GPU-1"]
    assert isinstance(change, HealthChange)
    report = HealthReport(change.after.state.value, change.after.reason)
    tracked = assess_health(
        UNKNOWN, "GPU-1", seen=None, report=report, limits=HealthDebounceLimits(), now=1.0
    )
    assert tracked.fault is not None
    assert tracked.fault.kind is kind
