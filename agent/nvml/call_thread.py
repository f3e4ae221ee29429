"""Calls that may never return, in a daemon thread with bounded waits.

A thread that is stuck in a driver can neither be stopped nor joined. So calls are made in a daemon thread, which
does not keep the process from ending, and a caller waits for a bounded time. While a call is overdue every caller
fails at once. When it returns, the thread is usable again. A driver that hangs with one device may answer a fresh
thread, so one is tried once a minute; each may get stuck as well, so there are at most `MAX_STUCK` of them, and
then the first that returns is waited for.

Each thread has a state of its own (such as a session with the driver), so that one which returns after an hour has
no effect: its result is dropped, its state is closed, and it ends.
"""

import asyncio
import contextlib
import queue
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, final

from agent.errors import DriverUnavailableError
from telemetry.agent_metrics import DRIVER_CALL_DURATION
from telemetry.conditions import AgentDegraded

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.clock import Clock

RETRY_S: Final = 60.0
MAX_STUCK: Final = 3

State = TypeVar("State")
Result = TypeVar("Result")


@final
@dataclass(slots=True)
class _Outcome:
    """Result of a call. Not an exception of a future, which asyncio would report if no task awaits it."""

    result: Any = None
    failure: BaseException | None = None


@final
@dataclass(frozen=True, slots=True)
class _Job:
    name: str
    call: "Callable[[Any], Any]"
    done: "asyncio.Future[_Outcome]"
    due: float


@final
class CallThread(Generic[State]):
    """Makes calls one after the other, each with the state of its thread."""

    def __init__(
        self,
        clock: "Clock",
        make_state: "Callable[[], State]",
        close_state: "Callable[[State], None]",
        *,
        retry_s: float = RETRY_S,
    ) -> None:
        self._clock = clock
        self._make_state = make_state
        self._close_state = close_state
        self._retry_s = retry_s
        self._lock = asyncio.Lock()
        self._stuck = 0
        self._tried_at = 0.0
        self._job: _Job | None = None
        self._jobs: queue.SimpleQueue[_Job | None] | None = None

    async def call(self, name: str, call: "Callable[[State], Result]", within_s: float) -> Result:
        """Return the call's result, or raise its exception, within that time after its turn came.

        A caller that is cancelled does not stop the call: the next one waits for it, as long as it may last.

        Raises:
            DriverUnavailableError: it did not return in time, or an earlier one is overdue (DriverHangs).
        """
        async with self._lock:
            await self._wait_for_thread()
            started = self._clock.monotonic()
            done: asyncio.Future[_Outcome] = asyncio.get_running_loop().create_future()
            job = _Job(name, call, done, started + within_s)
            self._job = job
            self._tried_at = started
            self._start().put(job)
            await asyncio.wait([done], timeout=within_s)
            lasted = self._clock.monotonic() - started
            if not done.done():
                DRIVER_CALL_DURATION.labels(name, "hung").observe(lasted)
                raise _overdue_error(name)
            outcome = done.result()
            failure = outcome.failure
            DRIVER_CALL_DURATION.labels(name, "ok" if failure is None else "failed").observe(lasted)
            if failure is not None:
                raise failure
            result: Result = outcome.result
            return result

    def end(self) -> None:
        """Let the thread close its state and end once it is free; the call does not wait for that."""
        if self._jobs is not None:
            self._jobs.put(None)
            self._jobs = None

    def _refuse_while_stuck(self) -> None:
        job = self._job
        if job is None or job.done.done() or self._clock.monotonic() < job.due:
            return
        if self._stuck + 1 >= MAX_STUCK or self._clock.monotonic() < self._tried_at + self._retry_s:
            raise _overdue_error(job.name)

    async def _wait_for_thread(self) -> None:
        """Wait for a call whose caller was cancelled; once it is overdue, leave that thread for a fresh one."""
        job = self._job
        if job is None or job.done.done():
            return
        await asyncio.wait([job.done], timeout=max(0.0, job.due - self._clock.monotonic()))
        if job.done.done():
            return
        self._refuse_while_stuck()
        self.end()
        self._stuck += 1
        self._job = None
        job.done.add_done_callback(self._count_returned)

    def _count_returned(self, _: "asyncio.Future[_Outcome]") -> None:
        self._stuck -= 1

    def _start(self) -> "queue.SimpleQueue[_Job | None]":
        if self._jobs is None:
            self._jobs = queue.SimpleQueue()
            threading.Thread(
                target=self._run,
                args=(asyncio.get_running_loop(), self._jobs),
                name="driver-calls",
                daemon=True,
            ).start()
        return self._jobs

    def _run(self, loop: asyncio.AbstractEventLoop, jobs: "queue.SimpleQueue[_Job | None]") -> None:
        state = self._make_state()
        while (job := jobs.get()) is not None:
            outcome = _Outcome()
            try:
                outcome.result = job.call(state)
            except BaseException as failure:  # noqa: BLE001  # the caller raises it
                outcome.failure = failure
            with contextlib.suppress(RuntimeError):  # The loop is closed.
                loop.call_soon_threadsafe(_resolve, job.done, outcome)
        with contextlib.suppress(Exception):
            self._close_state(state)


def _resolve(done: "asyncio.Future[_Outcome]", outcome: _Outcome) -> None:
    if not done.done():
        done.set_result(outcome)


def _overdue_error(name: str) -> DriverUnavailableError:
    return DriverUnavailableError(
        AgentDegraded.DRIVER_HANGS,
        f"the driver's answer to {name.replace('_', ' ')} is overdue: see NVRM in the node's kernel log;"
        " a device that fell off its bus may need a reboot of the node",
    )
