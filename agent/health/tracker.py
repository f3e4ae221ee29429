"""Whether a card is healthy, by what the driver shows and tells of it: values in, values out.

Faults come in two kinds. One that *lasts* (lost, a failed row remap, heat) is shown by every look, and goes
with the look that does not show it. One that *happened* (an Xid, an uncorrectable ECC error) is told once;
it goes

* when the driver was quiet about it for `quiet_s`, and a look shows the card afterwards; or
* at once, when the card was reset or the driver loaded anew, because what happened before has no effect any
  more. That is seen by any of: the card is found again after it was lost; its count of ECC errors, which the
  driver keeps in memory, went back; the driver says another version; the driver was missing or not loaded
  and answers now (`restarted`). A driver that only hung was not restarted.

NVIDIA's own plugin never takes a card back (k8s-device-plugin#1014); who reads our verdict asks for several
clean samples on top (`inventory.health.device`). A driver that does not answer says nothing about cards: each
keeps its verdict, however long it takes, and the node's condition AgentDegraded says why.

What happened is remembered in memory. `recall` takes it up again from what was published before a restart
of the agent; after a reboot of the node nothing was, and the card begins anew.
"""

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Final, final

from agent.driver.port import EventKind
from agent.health.verdicts import (
    HEALTHY,
    LOST,
    REMAP_FAILED,
    TOO_HOT,
    UNCORRECTABLE,
    DeviceHealthState,
    recalled_verdicts,
    verdict_on,
)
from inventory.health.device import IGNORED_XIDS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from agent.driver.port import DriverDevice, DriverEvent, DriverSnapshot


_MAX_REMEMBERED: Final = 16
"""Kinds of faults that one card keeps: a card that has more is no healthier, and memory stays bounded."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class HealthTrackingTerms:
    """What makes a card unhealthy, and when it is well again."""

    ignored_xids: frozenset[int] = IGNORED_XIDS
    """Faults of an application, which the card survives."""
    quiet_s: float = 300.0
    """How long after the last event of its kind a fault that happened is over."""
    cooled_celsius: int = 5
    """How far below the threshold a card that was too hot is well again."""


class EventVerdict(Enum):
    """What an event means; the label of `gpu_agent_driver_events_total`."""

    FAULT = "fault"
    IGNORED = "ignored"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class HealthChange:
    """A card whose verdict is another."""

    uuid: str
    address: str
    """Empty where no look has shown the card."""
    before: DeviceHealthState
    after: DeviceHealthState


@final
@dataclass(frozen=True, slots=True)
class _Device:
    """What is known of one card."""

    address: str = ""
    lasting: DeviceHealthState | None = None
    """Of what lasts, what the last look showed."""
    is_hot: bool = False
    uncorrectable_errors: int | None = None
    seen_at: float = 0.0
    """When a look was taken last, of this card or to its absence."""
    happened: dict[str, tuple[DeviceHealthState, float]] = field(default_factory=dict)
    """Reason -> verdict, and when it was told last; those told first stand first. Never changed in place."""

    @property
    def health(self) -> DeviceHealthState:
        """Lost before all; then what happened first; then what lasts."""
        if self.is_lost:
            return LOST
        for verdict, _ in self.happened.values():
            return verdict
        return self.lasting or HEALTHY

    @property
    def is_lost(self) -> bool:
        """Say whether the last look did not reach it."""
        return self.lasting is LOST

    def lost(self, now: float) -> "_Device":
        # Counters of a card that comes back begin anew.
        return replace(self, lasting=LOST, uncorrectable_errors=None, seen_at=now)

    def told(self, verdict: DeviceHealthState, now: float) -> "_Device":
        happened = dict(self.happened)
        if verdict.reason in happened or len(happened) < _MAX_REMEMBERED:
            happened[verdict.reason] = (verdict, now)
        return replace(self, happened=happened)


@final
class HealthTracker:
    """The verdicts on a node's cards; every method is one step, and time is given to it."""

    def __init__(self, terms: HealthTrackingTerms | None = None) -> None:
        """Begin with no card: one that was never seen is healthy."""
        self._terms = terms or HealthTrackingTerms()
        self._devices: dict[str, _Device] = {}
        self._driver_version = ""
        self._looked_at = 0.0
        self._restarted_at: float | None = None
        """What was told until then, a driver told that is gone; None while the next look is no new one's."""

    def health(self, uuid: str) -> DeviceHealthState:
        """Return the verdict on a card."""
        device = self._devices.get(uuid)
        return HEALTHY if device is None else device.health

    def verdicts(self) -> dict[str, DeviceHealthState]:
        """Return all verdicts by UUID, of cards that were seen or told of."""
        return {uuid: device.health for uuid, device in self._devices.items()}

    def verdict_of(self, event: "DriverEvent") -> EventVerdict:
        """Say whether an event counts against its card."""
        is_ignored = event.kind is EventKind.XID and event.code in self._terms.ignored_xids
        return EventVerdict.IGNORED if is_ignored else EventVerdict.FAULT

    def tell(self, event: "DriverEvent", now: float) -> tuple[HealthChange, ...]:
        """Take in what the driver told; one without a UUID is about every card.

        Args:
            event: a card that no look has shown is taken note of, too.
            now: monotonic seconds.
        """
        if self.verdict_of(event) is EventVerdict.IGNORED:
            return ()
        before = dict(self._devices)
        for uuid in (event.uuid,) if event.uuid else tuple(self._devices):
            device = self._devices.get(uuid, _Device())
            self._devices[uuid] = device.told(verdict_on(event), now)
        return tuple(_compared(before, self._devices))

    def observe(
        self, look: "DriverSnapshot", now: float, *, on_bus: "Collection[str] | None" = None
    ) -> tuple[HealthChange, ...]:
        """Take in a look that the driver answered.

        Args:
            look: of all cards. One that it showed before, and does not now, is lost where it is still on
                the bus, and forgotten where it was taken out.
            now: monotonic seconds.
            on_bus: PCI addresses of the cards that the bus has; None where that is not known, and then a
                card that is not shown any more is lost.
        """
        before = dict(self._devices)
        if self._driver_version not in {"", look.driver_version}:
            self._restarted_at = max(self._looked_at, self._restarted_at or self._looked_at)
        shown_uuids = {self._take(shown, now) for shown in look.devices}
        # An address that another card has now is no proof that the old one is still there.
        taken = {shown.address for shown in look.devices}
        for uuid, device in list(self._devices.items()):
            if uuid in shown_uuids:
                continue
            was_taken_out = on_bus is not None and device.address not in on_bus
            if not device.address or device.address in taken or was_taken_out:
                del self._devices[uuid]
            else:
                self._devices[uuid] = device.lost(now)
        self._driver_version, self._looked_at, self._restarted_at = look.driver_version, now, None
        return tuple(_compared(before, self._devices))

    def restarted(self, now: float) -> None:
        """Note that the driver is missing or not loaded: what it answers next, a new one answers."""
        self._restarted_at = now

    def recall(self, uuid: str, reason: str, *, address: str, now: float) -> None:
        """Take up what was published of a card before the agent was restarted.

        Of faults that happened only, whose quiet time begins again; one that lasts is shown by a look.
        Anything else is left alone, as is a card that is known already.
        """
        verdict = recalled_verdicts(reason)
        if verdict is not None and uuid not in self._devices:
            self._devices[uuid] = _Device(address=address).told(verdict, now)

    def _take(self, shown: "DriverDevice", now: float) -> str:
        """Take in one card that a look shows; return its UUID, or whose it is where it does not say."""
        uuid = shown.uuid or next(
            (known for known, device in self._devices.items() if device.address == shown.address),
            "",
        )
        if uuid:
            device = self._devices.get(uuid, _Device(address=shown.address))
            self._devices[uuid] = (
                device.lost(now) if shown.is_lost else self._seen(device, shown, now)
            )
        return uuid

    def _seen(self, device: _Device, shown: "DriverDevice", now: float) -> _Device:
        before, errors = device.uncorrectable_errors, shown.uncorrectable_errors
        went_back = before is not None and errors is not None and errors < before
        # What was told before then was told of the card, or by the driver, as it was before.
        own = device.seen_at if device.is_lost or went_back else None
        begins_at = max((at for at in (own, self._restarted_at) if at is not None), default=None)
        # A count that begins anew is compared from here on.
        grew = begins_at is None and before is not None and errors is not None and errors > before
        is_hot = self._is_hot(device, shown)
        seen = replace(
            device,
            address=shown.address,
            lasting=_lasting(shown, is_hot=is_hot),
            is_hot=is_hot,
            uncorrectable_errors=before if errors is None else errors,
            seen_at=now,
            happened={
                reason: (verdict, at)
                for reason, (verdict, at) in device.happened.items()
                if now - at < self._terms.quiet_s and (begins_at is None or at > begins_at)
            },
        )
        return seen.told(UNCORRECTABLE, now) if grew else seen

    def _is_hot(self, device: _Device, shown: "DriverDevice") -> bool:
        temperature, threshold = shown.temperature_celsius, shown.shutdown_temperature_celsius
        if temperature is None or threshold is None:
            # Not said: as it was.
            return device.is_hot
        return temperature >= threshold - (self._terms.cooled_celsius if device.is_hot else 0)


def _compared(before: dict[str, _Device], after: dict[str, _Device]) -> "Iterator[HealthChange]":
    """Tell of cards whose verdict is another; one that was taken out of the node is no news of health."""
    for uuid, device in after.items():
        old = before.get(uuid)
        verdict = HEALTHY if old is None else old.health
        if device.health != verdict:
            yield HealthChange(
                uuid=uuid, address=device.address, before=verdict, after=device.health
            )


def _lasting(shown: "DriverDevice", *, is_hot: bool) -> DeviceHealthState | None:
    if shown.is_row_remap_failed:
        return REMAP_FAILED
    return TOO_HOT if is_hot else None
