"""Driver events, in a daemon thread of its own.

`nvmlEventSetWait_v2` blocks, so it is called for half a second at a time. Events between the end of one event set and
the next are lost, since NVML has no memory: while a session is renewed, which takes milliseconds, and while a MIG
mode changes.

A lost device makes waiting fail for all of them: it is left out of a fresh event set.
"""

import asyncio
import contextlib
import ctypes
import threading
from typing import TYPE_CHECKING, Any, Final, final

import pynvml

from agent.driver.port import DriverEvent, EventKind
from agent.errors import DriverUnavailableError
from agent.nvml.errors import DeviceLostError, is_session_stale, unavailable
from telemetry.conditions import AgentDegraded

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.clock import Clock

WAIT_MS: Final = 500

_KINDS: Final = {
    pynvml.nvmlEventTypeXidCriticalError: EventKind.XID,
    pynvml.nvmlEventTypeDoubleBitEccError: EventKind.DOUBLE_BIT_ECC,
    pynvml.nvmlEventTypeGpuRecoveryAction: EventKind.RECOVERY_ACTION,
}


@final
class NvmlEvents:
    """One thread, until `stop` or until it fails. Created and called in an event loop."""

    def __init__(
        self,
        clock: "Clock",
        *,
        load: "Callable[[], str]",
        keep: "Callable[[DriverEvent], None]",
        wake: "Callable[[], None]",
        overdue_s: float,
        wait_ms: int = WAIT_MS,
    ) -> None:
        """Start the thread.

        Args:
            clock: for the duration of calls.
            load: loads the library.
            keep: receives an event, in the event loop.
            wake: called in the event loop when the thread has ended.
            overdue_s: time after which a call that does not return is stuck, without its waiting time.
            wait_ms: waiting time of one call.
        """
        self._clock = clock
        self._wait_ms = wait_ms
        self._overdue_s = overdue_s + wait_ms / 1000
        self._load = load
        self._keep = keep
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._stopping = threading.Event()
        self._answered_at = clock.monotonic()
        self._has_ended = False
        self._failure: DriverUnavailableError | None = None
        threading.Thread(target=self._run, name="driver-events", daemon=True).start()

    @property
    def has_ended(self) -> bool:
        return self._has_ended

    @property
    def is_stuck(self) -> bool:
        overdue = self._clock.monotonic() - self._answered_at > self._overdue_s
        return overdue and not self._has_ended

    @property
    def has_failed(self) -> bool:
        """Whether `take_failure` returns a failure."""
        return self._failure is not None

    def take_failure(self) -> DriverUnavailableError | None:
        """Return the failure that ended the thread, once."""
        failure, self._failure = self._failure, None
        return failure

    def stop(self) -> None:
        """Let the thread end, which takes half a second at most unless it is stuck."""
        self._stopping.set()

    def _run(self) -> None:
        failure = None
        try:
            self._follow()
        except DriverUnavailableError as unavailable_:
            failure = unavailable_
        except pynvml.NVMLError as error:
            failure = unavailable(error)
        except Exception as bug:  # noqa: BLE001  # the waiter for events raises it
            text = f"the driver's events cannot be followed: {bug!r}"
            failure = DriverUnavailableError(AgentDegraded.DRIVER_FAILS, text)
        self._in_loop(self._end, failure)

    def _follow(self) -> None:
        self._load()
        pynvml.nvmlInitWithFlags(pynvml.NVML_INIT_FLAG_NO_GPUS)
        try:
            while not self._stopping.is_set():
                self._follow_set()
        finally:
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()

    def _follow_set(self) -> None:
        """Follow one event set until it has to be created again."""
        events = pynvml.nvmlEventSetCreate()
        made_at = self._clock.monotonic()
        try:
            uuids = _register(events)
            while not self._stopping.is_set():
                self._answered_at = self._clock.monotonic()
                if uuids:
                    self._wait(events, uuids)
                else:
                    self._stopping.wait(self._wait_ms / 1000)
        except DeviceLostError:
            if self._clock.monotonic() - made_at < self._wait_ms / 1000:
                self._stopping.wait(self._wait_ms / 1000)  # A fresh set had no effect.
        finally:
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlEventSetFree(events)

    def _wait(self, events: object, uuids: dict[int, str]) -> None:
        """Wait for an event, and keep it; DeviceLostError if one of the set's devices is lost."""
        try:
            event = pynvml.nvmlEventSetWait_v2(events, self._wait_ms)
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_GPU_IS_LOST:
                raise DeviceLostError from error
            if error.value == pynvml.NVML_ERROR_TIMEOUT:
                return
            raise
        kind = _KINDS.get(event.eventType)
        if kind is None:
            return
        code = int(event.eventData) if kind is EventKind.XID else 0
        uuid = uuids.get(_value_of(event.device), "")
        self._in_loop(self._keep, DriverEvent(uuid=uuid, kind=kind, code=code))

    def _in_loop(self, call: "Callable[[Any], None]", argument: object) -> None:
        with contextlib.suppress(RuntimeError):  # The loop is closed.
            self._loop.call_soon_threadsafe(call, argument)

    def _end(self, failure: DriverUnavailableError | None) -> None:
        self._has_ended = True
        self._failure = failure
        self._wake()


def _register(events: object) -> dict[int, str]:
    """Register every device that supports events; return the value of its handle -> UUID.

    A lost device does not answer for its UUID, so that is recorded before.
    """
    uuids = {}
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            event_types = pynvml.nvmlDeviceGetSupportedEventTypes(handle) & sum(_KINDS)
            if not event_types:
                continue
            uuid = pynvml.nvmlDeviceGetUUID(handle)
            pynvml.nvmlDeviceRegisterEvents(handle, event_types, events)
        except pynvml.NVMLError as error:
            if is_session_stale(error):
                raise
            continue  # Lost, or without events.
        uuids[_value_of(handle)] = uuid
    return uuids


def _value_of(handle: Any) -> int:  # noqa: ANN401  # ctypes takes anything
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
