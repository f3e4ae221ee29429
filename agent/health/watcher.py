"""Watches the driver's events, keeps the verdicts on the node's cards, and says when one changed.

Whoever looks at the driver (`agent.inventory.collector`) brings its looks here with `observe`, and what it could not
ask with `unavailable`; events are waited for by `run`. What is published of a card is read with `health`. An
event changes the verdict and has it published in the same step: nobody has to look at the driver first,
which often hangs just when a card falls off its bus. Judging is `agent.health.tracker`'s.
"""

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final, NoReturn, Protocol, final

import structlog

from agent.driver.port import EventKind
from agent.errors import DriverUnavailableError
from agent.health.tracker import EventVerdict, HealthTracker
from agent.health.verdicts import HealthState
from kube.backoff import Backoff
from kube.errors import one_line
from telemetry.agent_metrics import DEVICES, DRIVER_EVENTS
from telemetry.metrics import TASK_FAILURES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from agent.driver.port import DriverEvent, DriverSnapshot
    from agent.health.tracker import HealthChange
    from agent.health.verdicts import DeviceHealthState
    from api.clock import Clock

WAIT_S: Final = 30.0
PROBE_S: Final = 1.0
"""The first time that the driver answers again: that it does is seen when this time is over."""
TASK: Final = "driver.events"
_BASE_S: Final = 0.25
_CAP_S: Final = 5.0
_AT_ONCE_S: Final = 0.01
_PAUSE_S: Final = 1.0

_log = structlog.get_logger()


class Events(Protocol):
    """Whose events are waited for; any `agent.driver.port.Driver`."""

    async def wait_for_events(self, within_s: float) -> "Sequence[DriverEvent]":
        """Return what happened, as soon as something does; nothing once the time is over.

        Raises:
            DriverUnavailable: the driver cannot be asked.
        """


@final
class HealthWatch:
    """The verdicts, kept up to date; each method but `run` is one step."""

    def __init__(
        self,
        driver: Events,
        tracker: HealthTracker,
        clock: "Clock",
        *,
        on_change: "Callable[[], None]",
    ) -> None:
        """Take the parts.

        Args:
            driver: whose events are waited for.
            tracker: where verdicts are kept.
            clock: the time of events and looks.
            on_change: called after events that changed a verdict, once for those that came together; it
                must be quick, and not raise.
        """
        self._driver = driver
        self._tracker = tracker
        self._clock = clock
        self._on_change = on_change
        self._backoff = Backoff(base_s=_BASE_S, cap_s=_CAP_S)
        self._complaint = ""
        TASK_FAILURES.labels(TASK)
        for kind in EventKind:
            for verdict in EventVerdict:
                DRIVER_EVENTS.labels(kind.value, verdict.value)
        self._show()

    def health(self, uuid: str) -> "DeviceHealthState":
        """Return the verdict on a card; one that was never seen is healthy."""
        return self._tracker.health(uuid)

    def observe(self, look: "DriverSnapshot", *, on_bus: "Collection[str] | None" = None) -> None:
        """Take in what the driver answered just now (see `HealthTracker.observe`)."""
        self._note(self._tracker.observe(look, self._clock.monotonic(), on_bus=on_bus))

    def unavailable(self, error: DriverUnavailableError) -> None:
        """Take in that the driver did not answer: the verdicts stay as they are."""
        if error.is_absent:
            self._tracker.restarted(self._clock.monotonic())

    async def run(self) -> NoReturn:
        """Wait for events until cancelled; a driver that cannot be asked is asked again."""
        while True:
            began = self._clock.monotonic()
            try:
                within_s = PROBE_S if self._complaint else WAIT_S
                events = await self._driver.wait_for_events(within_s)
            except DriverUnavailableError as error:
                TASK_FAILURES.labels(TASK).inc()
                self.unavailable(error)
                self._complain(error)
                await asyncio.sleep(self._backoff.fail())
                continue
            self._recovered()
            if events:
                self.take(events)
            elif self._clock.monotonic() - began < _AT_ONCE_S:
                # There is nothing to wait on, such as no card: not asked a thousand times a second.
                await asyncio.sleep(_PAUSE_S)

    def take(self, events: "Iterable[DriverEvent]") -> None:
        """Take in what the driver told, and say so where a verdict changed."""
        now = self._clock.monotonic()
        changes: list[HealthChange] = []
        for event in events:
            verdict = self._tracker.verdict_of(event)
            DRIVER_EVENTS.labels(event.kind.value, verdict.value).inc()
            _log.info(
                "driver event",
                kind=event.kind.value,
                code=event.code,
                device=event.uuid or "all",
                verdict=verdict.value,
            )
            changes += self._tracker.tell(event, now)
        self._note(changes)
        if changes:
            self._on_change()

    def _note(self, changes: "Iterable[HealthChange]") -> None:
        for change in changes:
            log = _log.info if change.after.is_healthy else _log.warning
            log(
                "health of a card changed",
                device=change.uuid,
                address=change.address,
                before=change.before.reason or change.before.state.value,
                after=change.after.reason or change.after.state.value,
                text=change.after.text,
            )
        self._show()

    def _show(self) -> None:
        counts = Counter(verdict.state for verdict in self._tracker.verdicts().values())
        for state in HealthState:
            DEVICES.labels(state.value).set(counts[state])

    def _complain(self, error: DriverUnavailableError) -> None:
        text = one_line(str(error))
        if text != self._complaint:
            self._complaint = text
            _log.warning("no events of the driver", reason=error.reason.value, error=text)
            # Whoever waits for events may be the first to see that the driver went away.
            self._on_change()

    def _recovered(self) -> None:
        self._backoff.succeed()
        if self._complaint:
            self._complaint = ""
            _log.info("events of the driver again")
