"""Health of the node's devices, from driver snapshots and driver events: values in, values out.

Faults come in two kinds. A *lasting* fault (lost, a failed row remap, heat) is in every snapshot, and ends
with the first snapshot without it. A *momentary* fault (an Xid, an uncorrectable ECC error) is reported once;
it ends

* when no event of its kind came for `quiet_s`, and a snapshot shows the device afterwards; or
* at once, when the device was reset or the driver loaded again, since earlier faults have no effect any more.
  Each of these proves that: the device is back after it was lost; its count of ECC errors, which the driver
  keeps in memory, went back; the driver has another version; the driver was missing or not loaded and
  answers now (`driver_restarted`). A driver that only hung was not restarted.

NVIDIA's own plugin never takes a device back (k8s-device-plugin#1014); the control plane waits for several
clean samples on top (`inventory.health.device`). A driver that does not answer proves nothing about devices:
each keeps its state, however long that lasts, and the node's condition AgentDegraded has the cause.

Momentary faults are kept in memory. `recall` restores them from the published state after a restart of the
agent; after a reboot of the node nothing is published, and every device starts healthy.
"""

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Final, final

from agent.driver.port import EventKind
from agent.health.states import (
    HEALTHY,
    LOST,
    REMAP_FAILED,
    TOO_HOT,
    UNCORRECTABLE,
    DeviceHealthState,
    recalled_state,
    state_of_event,
)
from inventory.health.device import IGNORED_XIDS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from agent.driver.port import DriverDevice, DriverEvent, DriverSnapshot


_MAX_REMEMBERED: Final = 16
"""Kinds of faults that one device keeps; more make no difference, and memory stays bounded."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class HealthTrackingLimits:
    """When a device becomes unhealthy, and when it is healthy again."""

    ignored_xids: frozenset[int] = IGNORED_XIDS
    """Faults of an application, which leave the device healthy."""
    quiet_s: float = 300.0
    """Time after the last event of its kind until a momentary fault ends."""
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
    """Empty for a device that no snapshot has shown."""
    before: DeviceHealthState
    after: DeviceHealthState


@final
@dataclass(frozen=True, slots=True)
class _Device:
    """State of one device."""

    address: str = ""
    lasting: DeviceHealthState | None = None
    """The lasting fault in the last snapshot."""
    is_hot: bool = False
    uncorrectable_errors: int | None = None
    seen_at: float = 0.0
    """Time of the last snapshot, with the device or without."""
    momentary: dict[str, tuple[DeviceHealthState, float]] = field(default_factory=dict)
    """Reason -> state, and the time of its last event; the oldest fault first. Never changed in place."""

    @property
    def health(self) -> DeviceHealthState:
        """The state that counts: lost first, then the oldest momentary fault, then the lasting one."""
        if self.is_lost:
            return LOST
        for state, _ in self.momentary.values():
            return state
        return self.lasting or HEALTHY

    @property
    def is_lost(self) -> bool:
        """Whether the last snapshot did not reach the device."""
        return self.lasting is LOST

    def lost(self, now: float) -> "_Device":
        # Counters of a device that comes back start again.
        return replace(self, lasting=LOST, uncorrectable_errors=None, seen_at=now)

    def with_fault(self, state: DeviceHealthState, now: float) -> "_Device":
        momentary = dict(self.momentary)
        if state.reason in momentary or len(momentary) < _MAX_REMEMBERED:
            momentary[state.reason] = (state, now)
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
        """Return the state of a device; one that no snapshot has shown is healthy."""
        device = self._devices.get(uuid)
        return HEALTHY if device is None else device.health

    def states(self) -> dict[str, DeviceHealthState]:
        """Return the states by UUID, of all devices with a snapshot or an event."""
        return {uuid: device.health for uuid, device in self._devices.items()}

    def effect_of(self, event: "DriverEvent") -> EventEffect:
        is_ignored = event.kind is EventKind.XID and event.code in self._limits.ignored_xids
        return EventEffect.IGNORED if is_ignored else EventEffect.FAULT

    def record(self, event: "DriverEvent", now: float) -> tuple[HealthChange, ...]:
        """Record a driver event; one without a UUID is about every device.

        Args:
            event: also of a device that no snapshot has shown.
            now: monotonic seconds.
        """
        if self.effect_of(event) is EventEffect.IGNORED:
            return ()
        before = dict(self._devices)
        for uuid in (event.uuid,) if event.uuid else tuple(self._devices):
            device = self._devices.get(uuid, _Device())
            self._devices[uuid] = device.with_fault(state_of_event(event), now)
        return tuple(_compared(before, self._devices))

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
        before = dict(self._devices)
        if self._driver_version not in {"", snapshot.driver_version}:
            self._restarted_at = max(self._read_at, self._restarted_at or self._read_at)
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
        return tuple(_compared(before, self._devices))

    def driver_restarted(self, now: float) -> None:
        """Record that the driver is missing or not loaded: the next snapshot is that of a new driver."""
        self._restarted_at = now

    def recall(self, uuid: str, reason: str, *, address: str, now: float) -> None:
        """Restore the published fault of a device after a restart of the agent.

        Momentary faults only, whose quiet time begins again; a lasting fault is in the next snapshot. Any other
        reason is ignored, as is a device that is known already.
        """
        state = recalled_state(reason)
        if state is not None and uuid not in self._devices:
            self._devices[uuid] = _Device(address=address).with_fault(state, now)

    def _take(self, reading: "DriverDevice", now: float) -> str:
        """Record one device of a snapshot; return its UUID, or the known one of its address for a device without."""
        uuid = reading.uuid or next(
            (known for known, device in self._devices.items() if device.address == reading.address),
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
        went_back = before is not None and errors is not None and errors < before
        # Events before then are about the device before its reset, or from the driver before its restart.
        own = device.seen_at if device.is_lost or went_back else None
        begins_at = max((at for at in (own, self._restarted_at) if at is not None), default=None)
        # A count that starts again is compared from here on.
        grew = begins_at is None and before is not None and errors is not None and errors > before
        is_hot = self._is_hot(device, reading)
        seen = replace(
            device,
            address=reading.address,
            lasting=_lasting(device, reading, is_hot=is_hot),
            is_hot=is_hot,
            uncorrectable_errors=before if errors is None else errors,
            seen_at=now,
            momentary={
                reason: (state, at)
                for reason, (state, at) in device.momentary.items()
                if now - at < self._limits.quiet_s and (begins_at is None or at > begins_at)
            },
        )
        return seen.with_fault(UNCORRECTABLE, now) if grew else seen

    def _is_hot(self, device: _Device, reading: "DriverDevice") -> bool:
        temperature, threshold = reading.temperature_celsius, reading.shutdown_temperature_celsius
        if temperature is None or threshold is None:
            # Unknown: unchanged.
            return device.is_hot
        return temperature >= threshold - (self._limits.cooled_celsius if device.is_hot else 0)


def _compared(before: dict[str, _Device], after: dict[str, _Device]) -> "Iterator[HealthChange]":
    """Yield the devices whose state changed; a device that was taken out of the node is no change of health."""
    for uuid, device in after.items():
        old = before.get(uuid)
        state = HEALTHY if old is None else old.health
        if device.health != state:
            yield HealthChange(uuid=uuid, address=device.address, before=state, after=device.health)


def _lasting(device: _Device, reading: "DriverDevice", *, is_hot: bool) -> DeviceHealthState | None:
    is_unknown = reading.is_row_remap_failed is None
    if reading.is_row_remap_failed or (is_unknown and device.lasting is REMAP_FAILED):
        return REMAP_FAILED
    return TOO_HOT if is_hot else None
