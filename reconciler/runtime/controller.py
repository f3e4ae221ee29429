"""The runtime of a controller: a queue of keys, workers, backoff.

A key is queued at most once, and never reconciled twice at a time. `reconcile` returns the seconds until the
next reconcile, or None; an exception is retried with backoff.
Durations and outcomes are counted by controller; a failure is logged with its key.
"""

import asyncio
import contextlib
import heapq
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

import structlog

from kube.backoff import Backoff
from telemetry.metrics import RECONCILE_DURATION, RECONCILES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Iterable

    from api.clock import Clock

Key = TypeVar("Key", bound="Hashable")

FIRST_BACKOFF_S: Final = 0.5
MAX_BACKOFF_S: Final = 60.0
STATUS_SHARE: Final = 0.1
"""A worker's share of time for status writes: nothing waits for them, and each costs kube-apiserver as much
processor time as a pod. At 4 ms a write a worker writes 25 times a second; at 200 ms, as in a burst of pods,
once in two seconds. Changes that arrive meanwhile are written together."""
MAX_PAUSE_S: Final = 5.0
"""Longest rest, whatever the write took."""
MIN_PAUSE_S: Final = 0.005
"""Shorter rests are skipped: a reconcile without a write awaits nothing."""
TIMER_SLACK_S: Final = 1e-6
"""A timer may fire by a rounding error before the due time that it was set for; waiting for the rest,
which the clock cannot tell from nothing, would spin."""
MIN_REQUEUE_S: Final = 0.001
"""A key that came due that moment early may ask for the rest of its time: without this it would be due at once, and spin."""
_OUTCOMES: Final = ("done", "requeued", "failed", "dropped")

_log = structlog.get_logger()


class UnretryableError(Exception):
    """A reconcile that no retry can help: the key is dropped until its object changes."""


@final
class Controller(Generic[Key]):
    """Runs one reconcile function over the queued keys."""

    def __init__(
        self,
        name: str,
        reconcile: "Callable[[Key], Awaitable[float | None]]",
        clock: "Clock",
        *,
        workers: int = 1,
        share: float = 1.0,
    ) -> None:
        """Take the reconcile function; nothing runs before `run`.

        Args:
            name: `<kind>.<concern>`, in logs, metrics and task names.
            reconcile: level-triggered; takes the key, never the event.
            clock: for due times.
            workers: keys reconciled at a time.
            share: of its time that a worker works; after each key it rests in proportion.
        """
        self.name = name
        self._reconcile = reconcile
        self._clock = clock
        self._workers = workers
        self._pause_per_second = 1 / share - 1
        # in units of the time that a key took
        self._due_by_key: dict[Key, float] = {}
        self._queue: list[tuple[float, int, Key]] = []
        # heap of (due, sequence, key); an entry is stale when `_due_by_key` says otherwise
        self._sequence = 0
        self._running: set[Key] = set()
        self._set_aside: dict[Key, float] = {}
        # keys that came due while running -> due time
        self._backoffs: dict[Key, Backoff] = {}
        # of keys whose last reconcile failed
        self._changed = asyncio.Event()
        for outcome in _OUTCOMES:
            RECONCILES.labels(name, outcome)

    def enqueue(self, key: Key, *, delay_s: float = 0.0) -> None:
        """Queue the key, due after the delay; an earlier due time stays."""
        due = self._clock.monotonic() + delay_s
        queued = self._due_by_key.get(key)
        if queued is not None and queued <= due:
            return
        self._due_by_key[key] = due
        self._sequence += 1
        heapq.heappush(self._queue, (due, self._sequence, key))
        self._changed.set()

    def enqueue_all(self, keys: "Iterable[Key]", *, delay_s: float = 0.0) -> None:
        for key in keys:
            self.enqueue(key, delay_s=delay_s)

    @property
    def is_idle(self) -> bool:
        return not self._due_by_key and not self._running

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(self._workers):
                group.create_task(self._work(), name=f"{self.name}/{number}")

    async def _work(self) -> None:
        while True:
            key = await self._next()
            self._running.add(key)
            started = self._clock.monotonic()
            try:
                await self._reconcile_once(key)
            finally:
                self._running.discard(key)
                self._release(key)
            pause_s = min(self._pause_per_second * (self._clock.monotonic() - started), MAX_PAUSE_S)
            # A reconcile that finds nothing to write awaits nothing, and 40,000 may be due.
            await asyncio.sleep(pause_s if pause_s >= MIN_PAUSE_S else 0)

    async def _next(self) -> Key:
        while True:
            key = self._pop_due()
            if key is not None:
                return key
            self._changed.clear()
            wait_s = None
            if self._queue:
                wait_s = max(0.0, self._queue[0][0] - self._clock.monotonic())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()

    def _pop_due(self) -> Key | None:
        """Take the first key that is due; running keys are set aside until they are free."""
        now = self._clock.monotonic()
        while self._queue and self._queue[0][0] <= now + TIMER_SLACK_S:
            due, _, key = heapq.heappop(self._queue)
            if self._due_by_key.get(key) != due:
                continue
            if key in self._running:
                self._set_aside[key] = due
                continue
            del self._due_by_key[key]
            return key
        return None

    def _release(self, key: Key) -> None:
        due = self._set_aside.pop(key, None)
        if due is not None and self._due_by_key.get(key) == due:
            self._sequence += 1
            heapq.heappush(self._queue, (due, self._sequence, key))
            self._changed.set()

    async def _reconcile_once(self, key: Key) -> None:
        started = self._clock.monotonic()
        try:
            again_s = await self._reconcile(key)
        except UnretryableError as error:
            self._backoffs.pop(key, None)
            self._count("dropped", started)
            _log.error("reconcile given up", controller=self.name, key=str(key), error=str(error))
        except Exception as error:  # noqa: BLE001  # the per-item boundary: logged, counted, retried
            self._count("failed", started)
            self._retry(key, error)
        else:
            self._backoffs.pop(key, None)
            self._count("done" if again_s is None else "requeued", started)
            if again_s is not None:
                self.enqueue(key, delay_s=max(again_s, MIN_REQUEUE_S))

    def _count(self, outcome: str, started: float) -> None:
        """Count a reconcile that ended, with its duration; a cancelled one has neither."""
        RECONCILES.labels(self.name, outcome).inc()
        RECONCILE_DURATION.labels(self.name).observe(self._clock.monotonic() - started)

    def _retry(self, key: Key, error: Exception) -> None:
        backoff = self._backoffs.get(key)
        if backoff is None:
            backoff = Backoff(base_s=FIRST_BACKOFF_S, cap_s=MAX_BACKOFF_S, jitter=0.5)
            self._backoffs[key] = backoff
        delay_s = backoff.fail()
        _log.warning(
            "reconcile failed",
            controller=self.name,
            key=str(key),
            failures=backoff.failures,
            retry_in_s=round(delay_s, 2),
            error=f"{type(error).__name__}: {error}",
        )
        self.enqueue(key, delay_s=delay_s)
