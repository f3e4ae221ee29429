"""Health of the node's devices, from driver snapshots and driver events: values in, values out.

Faults come in two kinds. A *lasting* fault (lost, a failed row remap, heat, a recovery action that the driver asks for)
is in every snapshot, and ends with the first snapshot without it. A *momentary* fault (an Xid, an uncorrectable ECC error)
is reported once, and needs the recovery action that `inventory.health.recovery` finds for it. Where the driver itself has
the device's action, the fault lasts while that is not NONE: an Xid after which it is NONE is harmless, and an action that
cannot be read is never NONE. Else it ends

* when no event of its kind came for `quiet_s`, and a snapshot shows the device afterwards; or
* at once, when the device was reset or the driver loaded again, since earlier faults have no effect any more.
  Each of these proves that: the device is back after it was lost; its count of ECC errors, which the driver
  keeps in memory, went back; the driver has another version; the driver was missing or not loaded and
  answers now (`driver_restarted`). A driver that only hung was not restarted.

NVIDIA's own plugin never takes a device back (k8s-device-plugin#1014); the control plane waits for several
clean samples on top (`inventory.health.device`). A driver that does not answer proves nothing about devices:
each keeps its state, however long that lasts, and the node's condition AgentDegraded has the cause.

Momentary faults and the driver's actions are kept in memory. `restore` restores them from the published state after a
restart of the agent; after a reboot of the node nothing is published, and every device starts healthy.
"""

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Final, final

from agent.driver.port import EventKind
from agent.health.states import (
    DOUBLE_BIT,
    HEALTHY,
    LOST,
    REMAP_FAILED,
    TOO_HOT,
    UNCORRECTABLE,
    DeviceHealthState,
    asked_for,
    state_after,
    xid_of,
    xid_reason,
)
from inventory.health.recovery import (
    DOUBLE_BIT_XID,
    ActionSource,
    RecoveryAction,
    XidAction,
    XidActions,
    action_of_xid,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from agent.driver.port import DriverDevice, DriverEvent, DriverSnapshot
    from api.nodefiles.node_devices_file import NodeDevices


_MAX_REMEMBERED: Final = 16
"""Kinds of faults that one device keeps; more make no difference, and memory stays bounded."""
_NONE: Final = RecoveryAction.NONE
_ACTION_CHANGED: Final = xid_reason(154)
"""Says that the action changed, after the Xid that is the cause."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class HealthTrackingLimits:
    """When a device becomes unhealthy, and when it is healthy again."""

    xid_actions: XidActions = field(default_factory=dict)
    """Actions after Xids, in place of the driver's and the catalog's."""
    quiet_s: float = 300.0
    """Time after the last event of its kind until a momentary fault ends of which the driver does not say it."""
    cooled_celsius: int = 5
    """Distance below the threshold at which a device that was too hot is healthy again."""


class EventEffect(Enum):
    """Whether an event is a fault; the label of `gpu_agent_driver_events_total`."""

    FAULT = "fault"
    IGNORED = "ignored"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class HealthChange:
    """A change of a device's health state."""

    uuid: str
    address: str
    """Empty for a device that no snapshot has contained."""
    before: DeviceHealthState
    after: DeviceHealthState


@final
@dataclass(frozen=True, slots=True)
class _Device:
    """State of one device."""

    address: str = ""
    lasting: DeviceHealthState | None = None
    """The lasting fault in the last snapshot, but for an action."""
    action: RecoveryAction | None = None
    """The driver's recovery action; None where the driver does not have it."""
    is_hot: bool = False
    uncorrectable_errors: int | None = None
    seen_at: float = 0.0
    """Time of the last snapshot, with the device or without."""
    momentary: dict[str, float] = field(default_factory=dict)
    """Reason -> time of its last event; the oldest fault first. Never changed in place."""

    @property
    def is_lost(self) -> bool:
        """Whether the last snapshot did not reach the device."""
        return self.lasting is LOST

    def lost(self, now: float) -> "_Device":
        # Counters of a device that comes back start again.
        return replace(self, lasting=LOST, uncorrectable_errors=None, seen_at=now)

    def with_fault(self, reason: str, now: float, *, is_first: bool = False) -> "_Device":
        """Remember an event; the first that is a fault comes before those that were none."""
        momentary = dict(self.momentary)
        if reason in momentary or len(momentary) < _MAX_REMEMBERED:
            momentary[reason] = now
            if is_first:
                momentary = {reason: momentary.pop(reason), **momentary}
        return replace(self, momentary=momentary)


@final
class HealthTracker:
    """The health states of a node's devices; every method is one step, and the caller passes the time."""

    def __init__(self, limits: HealthTrackingLimits | None = None) -> None:
        self._limits = limits or HealthTrackingLimits()
        self._devices: dict[str, _Device] = {}
        self._driver_version = ""
        self._read_at = 0.0
        self._restarted_at: float | None = None
        """Events until then are those of a driver that is gone; None while the driver is the same."""

    def health(self, uuid: str) -> DeviceHealthState:
        """Return the state of a device; one that no snapshot has contained is healthy."""
        device = self._devices.get(uuid)
        return HEALTHY if device is None else self._health(device)

    def action(self, uuid: str) -> RecoveryAction | None:
        """Return the driver's recovery action of a device; None where the driver does not have the field."""
        device = self._devices.get(uuid)
        return None if device is None else device.action

    def states(self) -> dict[str, DeviceHealthState]:
        """Return the states by UUID, of all devices with a snapshot or an event."""
        return {uuid: self._health(device) for uuid, device in self._devices.items()}

    @property
    def knows_actions(self) -> bool:
        """Whether the driver has the recovery action of any device: an event is judged by it."""
        return any(device.action is not None for device in self._devices.values())

    def record(
        self,
        event: "DriverEvent",
        now: float,
        *,
        actions: "Mapping[str, RecoveryAction | None] | None" = None,
    ) -> tuple[HealthChange, ...]:
        """Record a driver event; one without a UUID is about every device.

        Args:
            event: also of a device that no snapshot has contained.
            now: monotonic seconds.
            actions: UUID -> recovery action, as the driver has it after the event. A device that had one before, and is
                not in it, has an unknown one.
        """
        before = self.states()
        for uuid in (event.uuid,) if event.uuid else tuple(self._devices):
            device = self._devices.get(uuid, _Device())
            is_healthy = self._health(device) is HEALTHY
            if device.action is not None:
                action = (actions or {}).get(uuid) or RecoveryAction.UNKNOWN
                device = replace(device, action=action)
            reason = _reason_of(event)
            # The driver may change its action only after the Xid that is the cause.
            is_judged_again = device.action is not None
            if reason and (is_judged_again or self._xid_action(reason, device).action is not _NONE):
                device = device.with_fault(
                    reason, now, is_first=is_healthy and reason != _ACTION_CHANGED
                )
            self._devices[uuid] = device
        return tuple(self._changes(before))

    def effect_of(self, event: "DriverEvent") -> EventEffect:
        """Return whether an event, once it is recorded, is a fault of its device, or of any."""
        devices_by_uuid = self._devices
        devices = (
            list(devices_by_uuid.values())
            if not event.uuid
            else [devices_by_uuid.get(event.uuid, _Device())]
        )
        reason = _reason_of(event)
        actions = (
            self._xid_action(reason, item).action if reason else item.action for item in devices
        )
        is_harmless = all(action in {None, _NONE} for action in actions)
        return EventEffect.IGNORED if is_harmless else EventEffect.FAULT

    def observe(
        self, snapshot: "DriverSnapshot", now: float, *, on_bus: "Collection[str] | None" = None
    ) -> tuple[HealthChange, ...]:
        """Record a driver snapshot.

        Args:
            snapshot: the snapshot. A device that was in the one before, and is not in this one, is lost while it is on
                the bus, and forgotten once it was taken out.
            now: monotonic seconds.
            on_bus: PCI addresses of the devices on the bus; None where the bus is unknown, and then a device that
                disappears from the snapshot is lost.
        """
        before = self.states()
        if self._driver_version not in {"", snapshot.driver_version}:
            self._restarted_at = max(self._read_at, self._restarted_at or self._read_at)
            for uuid, device in self._devices.items():  # another driver may not have the field
                self._devices[uuid] = replace(device, action=None)
        seen_uuids = {self._take(reading, now) for reading in snapshot.devices}
        # An address with another device now is no proof that the old one is still present.
        taken = {reading.address for reading in snapshot.devices}
        for uuid, device in list(self._devices.items()):
            if uuid in seen_uuids:
                continue
            was_taken_out = on_bus is not None and device.address not in on_bus
            if not device.address or device.address in taken or was_taken_out:
                del self._devices[uuid]
            else:
                self._devices[uuid] = device.lost(now)
        self._driver_version, self._read_at, self._restarted_at = snapshot.driver_version, now, None
        for uuid, device in self._devices.items():
            self._devices[uuid] = self._without_ended(device, now)
        return tuple(self._changes(before))

    def driver_restarted(self, now: float) -> None:
        """Record that the driver is missing or not loaded: the next snapshot is that of a new driver."""
        self._restarted_at = now

    def forget_faults(self, uuids: "Collection[str]") -> None:
        """Forget the momentary faults of devices that were reset; the next snapshot has the others, if any last."""
        for uuid in self._devices.keys() & set(uuids):
            self._devices[uuid] = replace(self._devices[uuid], momentary={})

    def restore(self, published: "NodeDevices", now: float) -> None:
        """Restore what the last agent published, so that its restart heals no device.

        Momentary faults, whose quiet time begins again, and the driver's actions; a lasting fault is in the next
        snapshot. A device that is known already stays as it is.
        """
        self._driver_version, self._read_at = published.driver_version, now
        for item in published.devices:
            action = RecoveryAction.of(item.action) if item.action else None
            device = _Device(address=item.address, action=action)
            if item.reason in {DOUBLE_BIT, UNCORRECTABLE} or xid_of(item.reason) is not None:
                device = device.with_fault(item.reason, now)
            if action is not None or device.momentary:
                self._devices.setdefault(item.uuid, device)

    def _take(self, reading: "DriverDevice", now: float) -> str:
        """Record one device of a snapshot; return its UUID, or the known one of its address for a device without."""
        uuid = reading.uuid or next(
            (
                earlier_uuid
                for earlier_uuid, device in self._devices.items()
                if device.address == reading.address
            ),
            "",
        )
        if uuid:
            device = self._devices.get(uuid, _Device(address=reading.address))
            self._devices[uuid] = (
                device.lost(now) if reading.is_lost else self._seen(device, reading, now)
            )
        return uuid

    def _seen(self, device: _Device, reading: "DriverDevice", now: float) -> _Device:
        before, errors = device.uncorrectable_errors, reading.uncorrectable_errors
        was_reset = before is not None and errors is not None and errors < before
        # Events before then are about the device before its reset, or from the driver before its restart.
        own = device.seen_at if device.is_lost or was_reset else None
        begins_at = max((at for at in (own, self._restarted_at) if at is not None), default=None)
        # A count that starts again is compared from here on.
        grew = begins_at is None and before is not None and errors is not None and errors > before
        is_hot = self._is_hot(device, reading)
        action = reading.recovery_action
        if action is None and device.action is not None:
            action = RecoveryAction.UNKNOWN
        seen = replace(
            device,
            address=reading.address,
            lasting=_lasting_state(device, reading, is_hot=is_hot),
            action=action,
            is_hot=is_hot,
            uncorrectable_errors=before if errors is None else errors,
            seen_at=now,
            momentary={
                reason: at
                for reason, at in device.momentary.items()
                if begins_at is None or at > begins_at
            },
        )
        return seen.with_fault(UNCORRECTABLE, now) if grew else seen

    def _without_ended(self, device: _Device, now: float) -> _Device:
        """Return the device without momentary faults that are over; a device that is lost has them still."""
        if device.is_lost or not device.momentary:
            return device
        return replace(
            device,
            momentary={
                reason: at
                for reason, at in device.momentary.items()
                if not self._has_ended(self._xid_action(reason, device), now - at)
            },
        )

    def _has_ended(self, xid_action: XidAction, quiet_s: float) -> bool:
        is_drivers = xid_action.source is ActionSource.DRIVER
        return xid_action.action is _NONE or (quiet_s >= self._limits.quiet_s and not is_drivers)

    def _xid_action(self, reason: str, device: _Device) -> XidAction:
        code = xid_of(reason)
        return action_of_xid(
            DOUBLE_BIT_XID if code is None else code,
            reported=device.action,
            driver_version=self._driver_version,
            actions=self._limits.xid_actions,
        )

    def _health(self, device: _Device) -> DeviceHealthState:
        """Return the state that counts: lost first, then the oldest momentary fault, then a lasting one."""
        if device.is_lost:
            return LOST
        for reason in device.momentary:
            xid_action = self._xid_action(reason, device)
            if xid_action.action is not _NONE:
                return state_after(reason, xid_action)
        if device.action is not None and device.action is not _NONE:
            return asked_for(device.action)
        return device.lasting or HEALTHY

    def _changes(self, before: dict[str, DeviceHealthState]) -> "Iterator[HealthChange]":
        """Yield the devices whose state changed; a device that was taken out of the node is no change of health."""
        for uuid, device in self._devices.items():
            old, new = before.get(uuid, HEALTHY), self._health(device)
            if new != old:
                yield HealthChange(uuid=uuid, address=device.address, before=old, after=new)

    def _is_hot(self, device: _Device, reading: "DriverDevice") -> bool:
        temperature, threshold = reading.temperature_celsius, reading.shutdown_temperature_celsius
        if temperature is None or threshold is None:
            # Unknown: unchanged.
            return device.is_hot
        return temperature >= threshold - (self._limits.cooled_celsius if device.is_hot else 0)


def _reason_of(event: "DriverEvent") -> str:
    """Return the reason of a fault by an event; empty for one that only says that an action changed."""
    match event.kind:
        case EventKind.XID:
            return xid_reason(event.code)
        case EventKind.DOUBLE_BIT_ECC:
            return DOUBLE_BIT
        case EventKind.RECOVERY_ACTION:  # pragma: no branch  # mypy proves that none is missing
            return ""


def _lasting_state(
    device: _Device, reading: "DriverDevice", *, is_hot: bool
) -> DeviceHealthState | None:
    is_unknown = reading.is_row_remap_failed is None
    if reading.is_row_remap_failed or (is_unknown and device.lasting is REMAP_FAILED):
        return REMAP_FAILED
    return TOO_HOT if is_hot else None
