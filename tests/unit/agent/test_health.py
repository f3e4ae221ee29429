"""The health_state on a device: what makes it unhealthy, and what makes it well again."""

from typing import Any

import pytest

from agent.driver.port import DriverDevice, DriverEvent, DriverSnapshot, EventKind
from agent.health.states import HEALTHY, LOST, HealthState
from agent.health.tracker import EventEffect, HealthTracker, HealthTrackingLimits
from api.nodefiles.node_devices_file import NodeDevice, NodeDevices
from inventory.health.recovery import RecoveryAction

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
    tracked: dict[str, Any] = {"address": f"0000:{number:02x}:00.0", "uuid": f"GPU-{number}"}
    return DriverDevice(**{**tracked, "minor": number, "product": "", "is_lost": True, **changes})


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


@pytest.mark.parametrize("code", [13, 31, 43, 45, 68, 94])
def test_an_xid_of_an_application_is_no_fault(tracker: HealthTracker, code: int):
    assert tracker.record(xid(code), 1.0) == ()
    assert tracker.effect_of(xid(code)) is EventEffect.IGNORED
    assert tracker.health("GPU-1") == HEALTHY


def test_the_action_after_an_xid_is_a_setting():
    actions = {79: RecoveryAction.NONE, 13: RecoveryAction.REPLACE}
    tracker = HealthTracker(HealthTrackingLimits(xid_actions=actions))
    assert tracker.effect_of(xid(79)) is EventEffect.IGNORED
    assert tracker.effect_of(xid(13)) is EventEffect.FAULT
    tracker.record(xid(13), 1.0)
    state = tracker.health("GPU-1")
    assert (state.reason, state.action) == ("Xid13", RecoveryAction.REPLACE)
    assert "by the setting health.xid_actions" in state.text


def test_an_xid_that_no_table_knows_is_a_fault_and_names_the_setting(tracker: HealthTracker):
    tracker.record(xid(999), 1.0)
    state = tracker.health("GPU-1")
    assert state.action is RecoveryAction.UNKNOWN
    assert "name its action in the setting health.xid_actions" in state.text


# --- what the driver itself says ---------------------------------------------------------------------


def said(action: RecoveryAction | None, code: int = 119, version: str = "570.1") -> HealthTracker:
    """A tracker of a device whose driver has the field, after an Xid and the action that it then says."""
    tracker = HealthTracker()
    tracker.observe(a_snapshot(a_device(recovery_action=RecoveryAction.NONE), version=version), 0.0)
    assert tracker.knows_actions
    tracker.record(xid(code), 1.0, actions={"GPU-1": action})
    return tracker


def reason_after(
    tracker: HealthTracker, action: RecoveryAction | None, at: float, **changes: Any
) -> str:
    snapshot = a_snapshot(a_device(recovery_action=action, **changes), version="570.1")
    tracker.observe(snapshot, at)
    return reason(tracker)


@pytest.mark.parametrize("code", [94, 119, 31, 999])
def test_an_xid_after_which_the_action_is_none_is_harmless(code: int):
    tracker = said(RecoveryAction.NONE, code)
    assert tracker.health("GPU-1") == HEALTHY
    assert tracker.effect_of(xid(code)) is EventEffect.IGNORED
    # The error of a contained Xid is counted, too.
    assert reason_after(tracker, RecoveryAction.NONE, 2.0, uncorrectable_errors=1) == ""


@pytest.mark.parametrize("code", [109, 119, 31])
def test_a_fault_lasts_while_the_action_is_not_none(code: int):
    tracker = said(RecoveryAction.GPU_RESET, code)
    assert tracker.effect_of(xid(code)) is EventEffect.FAULT
    for at in (2.0, 1.0 + QUIET_S, 3 * QUIET_S):
        assert reason_after(tracker, RecoveryAction.GPU_RESET, at) == f"Xid{code}"
    assert tracker.health("GPU-1").action is RecoveryAction.GPU_RESET
    assert reason_after(tracker, RecoveryAction.NODE_REBOOT, 4 * QUIET_S) == f"Xid{code}"
    assert tracker.health("GPU-1").action is RecoveryAction.NODE_REBOOT
    assert reason_after(tracker, RecoveryAction.NONE, 5 * QUIET_S) == ""


def test_the_xid_that_is_a_fault_is_named_and_no_harmless_one_before_it():
    tracker = said(RecoveryAction.NONE, 94)
    tracker.record(xid(119), 1.1, actions={"GPU-1": RecoveryAction.GPU_RESET})
    assert reason(tracker) == "Xid119"
    tracker.record(xid(13), 1.2, actions={"GPU-1": RecoveryAction.GPU_RESET})
    assert reason(tracker) == "Xid119"


def test_an_action_that_comes_after_its_xid_names_the_xid():
    tracker = said(RecoveryAction.NONE, 119)
    tracker.record(xid(154), 1.1, actions={"GPU-1": RecoveryAction.GPU_RESET})
    assert reason(tracker) == "Xid119"


@pytest.mark.parametrize("kind", [EventKind.RECOVERY_ACTION, None])
def test_an_action_without_an_xid_is_a_fault(kind: EventKind | None):
    tracker = said(RecoveryAction.NONE)
    assert reason_after(tracker, RecoveryAction.NONE, 2.0) == ""
    event = kind and DriverEvent(uuid="GPU-1", kind=kind)
    if event is None:
        reason_after(tracker, RecoveryAction.DRAIN_P2P, 3.0)
    else:
        tracker.record(event, 3.0, actions={"GPU-1": RecoveryAction.DRAIN_P2P})
        assert tracker.effect_of(event) is EventEffect.FAULT
    assert reason(tracker) == "DrainP2P"


@pytest.mark.parametrize("actions", [None, {}, {"GPU-1": None}, {"GPU-1": RecoveryAction.UNKNOWN}])
def test_an_action_that_cannot_be_read_is_not_none(actions: dict[str, Any] | None):
    tracker = said(RecoveryAction.NONE)
    tracker.record(xid(31), 2.0, actions=actions)
    assert tracker.health("GPU-1").action is RecoveryAction.UNKNOWN
    assert reason_after(tracker, RecoveryAction.UNKNOWN, 2 * QUIET_S) != ""
    assert reason_after(tracker, RecoveryAction.NONE, 2 * QUIET_S + 10) == ""


@pytest.mark.parametrize(("version", "expected"), [("565.57", "Xid109"), ("570.1", "")])
def test_none_after_an_xid_from_which_this_driver_derives_no_action_proves_nothing(
    version: str, expected: str
):
    assert reason(said(RecoveryAction.NONE, 109, version)) == expected


def test_a_setting_hides_no_action_that_the_driver_asks_for():
    tracker = HealthTracker(HealthTrackingLimits(xid_actions={119: RecoveryAction.NONE}))
    reason_after(tracker, RecoveryAction.NONE, 0.0)
    tracker.record(xid(119), 1.0, actions={"GPU-1": RecoveryAction.GPU_RESET})
    assert reason(tracker) == "GPUReset"


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
    # Time alone does not heal: the device is examined.
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


def test_a_device_that_we_reset_has_no_fault_of_before(tracker: HealthTracker):
    tracker.record(xid(119), 1.0)
    tracker.record(xid(119, "GPU-2"), 1.0)
    tracker.forget_faults(["GPU-1", "GPU-9"])
    assert (reason(tracker), reason(tracker, "GPU-2")) == ("", "Xid119")
    tracker.record(xid(119), 2.0)
    assert reason(tracker) == "Xid119"


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


def restarted(reason: str = "", action: str = "", version: str = "570.1") -> HealthTracker:
    """A tracker of an agent that restarts, by what the earlier one published."""
    tracker = HealthTracker()
    device = NodeDevice(
        uuid="GPU-1", address="0000:01:00.0", is_healthy=not reason, reason=reason, action=action
    )
    published = NodeDevices(version="v1", devices=[device], driver_version=version)
    tracker.restore(published, 10.0)
    return tracker


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
    tracker = restarted(published)
    assert reason_after(tracker, None, 11.0) == expected
    assert reason_after(tracker, None, 10.0 + QUIET_S) == ""


@pytest.mark.parametrize("published", ["", "GPUReset", "Xid119"])
def test_an_action_that_cannot_be_read_after_a_restart_is_never_none(published: str):
    """The driver had the field before: that it says nothing now is no sign of an older driver."""
    tracker = restarted(published, "GPUReset" if published else "None")
    assert reason_after(tracker, None, 11.0) == (
        "Xid119" if published == "Xid119" else "ActionUnknown"
    )
    assert tracker.health("GPU-1").action is RecoveryAction.UNKNOWN
    assert reason_after(tracker, None, 11.0 + 3 * QUIET_S)
    assert reason_after(tracker, RecoveryAction.NONE, 12.0 + 3 * QUIET_S) == ""


def test_before_the_first_snapshot_after_a_restart_the_action_is_as_it_was():
    assert restarted("GPUReset", "GPUReset").health("GPU-1").action is RecoveryAction.GPU_RESET
    assert restarted("", "None").health("GPU-1") == HEALTHY
    assert restarted("BusReset", "OfALaterVersion").action("GPU-1") is RecoveryAction.UNKNOWN


def test_another_driver_after_a_restart_may_not_have_the_field():
    tracker = restarted("Xid119", "GPUReset", version="535.1")
    assert reason_after(tracker, None, 11.0) == ""
    assert tracker.action("GPU-1") is None


def test_a_field_that_was_there_once_is_unknown_while_it_is_not_said():
    tracker = HealthTracker()
    assert reason_after(tracker, RecoveryAction.NONE, 1.0) == ""
    assert reason_after(tracker, None, 2.0) == "ActionUnknown"
    assert reason_after(tracker, RecoveryAction.NONE, 3.0) == ""


def test_a_device_that_is_known_is_not_taken_up(tracker: HealthTracker):
    device = NodeDevice(uuid="GPU-1", address="0000:01:00.0", is_healthy=False, reason="Xid79")
    tracker.restore(NodeDevices(version="v1", devices=[device]), 10.0)
    assert tracker.health("GPU-1") == HEALTHY
