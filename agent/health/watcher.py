"""Watch of the driver's events: keeps the health states of the node's devices, and signals each change.

`agent.inventory.collector` passes the driver's snapshots to `observe`, and its failures to `unavailable`; `run`
waits for events. `health` returns the state that is published. An event is judged by the device's recovery action, for
which the driver is asked half a second at most, since it often hangs just when a device falls off its bus; a driver
without that field is not asked. The state then changes, and triggers its publication, in one step.
`agent.health.tracker` decides on the states.
"""

import asyncio
import datetime as dt
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NoReturn, final

import structlog

from agent.driver.port import EventKind
from agent.errors import DriverUnavailableError
from agent.health.states import BEING_RESET, HealthState
from agent.health.tracker import EventEffect, HealthTracker
from api.kinds.gpudevice import LastXid
from api.status_conditions import format_time, parse_time
from kube.backoff import Backoff
from kube.errors import one_line
from telemetry.agent_metrics import DEVICES, DRIVER_EVENTS
from telemetry.metrics import TASK_FAILURES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from agent.driver.port import DeviceDriver, DriverEvent, DriverSnapshot
    from agent.health.states import DeviceHealthState
    from agent.health.tracker import HealthChange
    from api.clock import Clock
    from inventory.health.recovery import RecoveryAction

WAIT_S: Final = 30.0
PROBE_S: Final = 1.0
"""The first wait after a failure: its return proves that the driver answers again."""
TASK: Final = "driver.events"
ACTIONS_S: Final = 0.5
"""Time for the driver to say what its devices need after an event: an action that it does not say counts as a fault."""
REPEATED: Final = dt.timedelta(minutes=1)
"""An Xid that comes again and again, as of a program that is restarted, is written so often."""
_BASE_S: Final = 0.25
_CAP_S: Final = 5.0
_AT_ONCE_S: Final = 0.01
_PAUSE_S: Final = 1.0

_log = structlog.get_logger()


@final
class HealthWatch:
    """The current health states; each method but `run` is one step."""

    def __init__(
        self,
        driver: "DeviceDriver",
        tracker: HealthTracker,
        clock: "Clock",
        *,
        on_change: "Callable[[], None]",
    ) -> None:
        """Take the parts.

        Args:
            driver: source of events.
            tracker: keeps the states.
            clock: the time of events and snapshots.
            on_change: called after events that changed a state, once for those that came together; it must be
                quick, and not raise.
        """
        self._driver = driver
        self._tracker = tracker
        self._clock = clock
        self._on_change = on_change
        self._backoff = Backoff(base_s=_BASE_S, cap_s=_CAP_S)
        self._last_error = ""
        self._being_reset: frozenset[str] = frozenset()
        self._resets: dict[str, str] = {}
        # UUID -> outcome of its last reset
        self._xids: dict[str, LastXid] = {}
        # UUID, empty for every device -> the last Xid since the driver was loaded
        TASK_FAILURES.labels(TASK)
        for kind in EventKind:
            for effect in EventEffect:
                DRIVER_EVENTS.labels(kind.value, effect.value)
        self._show()

    def health(self, uuid: str) -> "DeviceHealthState":
        state = self._tracker.health(uuid)
        if state.is_healthy and uuid in self._being_reset:
            state = BEING_RESET
        reset, reported = self._resets.get(uuid, ""), self._tracker.action(uuid)
        return replace(state, reset=reset, reported=reported, last_xid=self.last_xid(uuid))

    def withhold(self, uuids: "Collection[str]") -> None:
        """Let these devices be unhealthy while they are reset; those of before are not any more."""
        self._being_reset = frozenset(uuids)
        self._on_change()

    def were_reset(self, uuids: "Collection[str]") -> None:
        """Record that devices were reset just now: their earlier faults have no effect any more."""
        self._tracker.forget_faults(uuids)

    def note_reset(self, uuid: str, outcome: str) -> None:
        """Publish the outcome of a reset with the device's health."""
        self._resets[uuid] = outcome
        self._on_change()

    def last_xid(self, uuid: str) -> LastXid | None:
        """Return the last Xid of a device, or of every device, since the driver was loaded or this process started."""
        found = (xid for key in (uuid, "") if (xid := self._xids.get(key)) is not None)
        return max(found, key=lambda xid: xid.time, default=None)

    def observe(
        self, snapshot: "DriverSnapshot", *, on_bus: "Collection[str] | None" = None
    ) -> None:
        """Record a snapshot that the driver returned just now (see `HealthTracker.observe`)."""
        self._note(self._tracker.observe(snapshot, self._clock.monotonic(), on_bus=on_bus))

    def unavailable(self, error: DriverUnavailableError) -> None:
        """Record that the driver did not answer: the states stay."""
        if error.is_absent:
            self._xids.clear()
            self._tracker.driver_restarted(self._clock.monotonic())

    async def run(self) -> NoReturn:
        """Wait for events until cancelled; a driver that cannot be asked is retried."""
        while True:
            began = self._clock.monotonic()
            try:
                within_s = PROBE_S if self._last_error else WAIT_S
                events = await self._driver.wait_for_events(within_s)
            except DriverUnavailableError as error:
                TASK_FAILURES.labels(TASK).inc()
                self.unavailable(error)
                self._log_error_once(error)
                await asyncio.sleep(self._backoff.fail())
                continue
            self._recovered()
            if events:
                self.take(events, await self._recovery_actions())
            elif self._clock.monotonic() - began < _AT_ONCE_S:
                # There is nothing to wait on, such as no device: do not ask a thousand times a second.
                await asyncio.sleep(_PAUSE_S)

    async def _recovery_actions(self) -> "Mapping[str, RecoveryAction | None] | None":
        if not self._tracker.knows_actions:
            return None
        try:
            async with asyncio.timeout(ACTIONS_S):
                return await self._driver.recovery_actions()
        except (DriverUnavailableError, TimeoutError) as error:
            TASK_FAILURES.labels(TASK).inc()
            _log.warning("recovery actions not known", error=one_line(str(error)))
            return None

    def take(
        self,
        events: "Iterable[DriverEvent]",
        actions: "Mapping[str, RecoveryAction | None] | None" = None,
    ) -> None:
        """Record driver events, and call `on_change` where a state changed.

        Args:
            events: the events.
            actions: the recovery actions after them (`HealthTracker.record`).
        """
        now = self._clock.monotonic()
        changes: list[HealthChange] = []
        for event in events:
            changes += self._tracker.record(event, now, actions=actions)
            effect = self._tracker.effect_of(event)
            DRIVER_EVENTS.labels(event.kind.value, effect.value).inc()
            if event.kind is EventKind.XID:
                self._note_xid(event)
            _log.info(
                "driver event",
                kind=event.kind.value,
                code=event.code,
                device=event.uuid or "all",
                effect=effect.value,
            )
        self._note(changes)
        if changes:
            self._on_change()

    def _note_xid(self, event: "DriverEvent") -> None:
        """Keep an Xid; one that repeats itself within `REPEATED` keeps its time, so that it costs no write each time."""
        before, now = self._xids.get(event.uuid), self._clock.utc_now()
        if before is not None and before.code == event.code:
            noted_at = parse_time(before.time)
            if noted_at is not None and now - noted_at < REPEATED:
                return
        self._xids[event.uuid] = LastXid(code=event.code, time=format_time(now))

    def _note(self, changes: "Iterable[HealthChange]") -> None:
        for change in changes:
            log = _log.info if change.after.is_healthy else _log.warning
            log(
                "device health changed",
                device=change.uuid,
                address=change.address,
                before=change.before.reason or change.before.state.value,
                after=change.after.reason or change.after.state.value,
                text=change.after.text,
            )
        self._show()

    def _show(self) -> None:
        counts = Counter(item.state for item in self._tracker.states().values())
        for state in HealthState:
            DEVICES.labels(state.value).set(counts[state])

    def _log_error_once(self, error: DriverUnavailableError) -> None:
        text = one_line(str(error))
        if text != self._last_error:
            self._last_error = text
            _log.warning("driver events not available", reason=error.reason.value, error=text)
            # The wait for events may be the first call to fail when the driver is unloaded.
            self._on_change()

    def _recovered(self) -> None:
        self._backoff.succeed()
        if self._last_error:
            self._last_error = ""
            _log.info("driver events available again")
