"""The node's NVIDIA driver through NVML: the real `agent.driver.port.PartitionDriver`.

Calls are made in a thread (`agent.nvml.call_thread`) and events are waited for in another
(`agent.nvml.driver_events`), and metrics are read in a third one, so that a driver that hangs blocks nothing else, and
the process can end meanwhile. At worst there are three stuck threads of each.

**Sessions.** NVML is initialised with the first call, and stays so: events need it, and Xids are reported in no
other way. A session is closed and opened again when the driver went away or came back, when devices came or went on
the bus (NVML finds them at its start only), and around a change of a MIG mode, which needs the device closed
everywhere. No handle is kept beyond a call.

**Unloading the driver.** An open NVML keeps the kernel's module from being unloaded: so do NVIDIA's own device
plugin and DCGM, and like these the agent has to be removed from the node first. Without a driver, or after it went
away, nothing is held open. `close` closes everything, and the next call opens it again.

**PID namespaces.** NVML reports only processes in the agent's PID namespace: it needs the node's.
"""

import asyncio
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar, final

from agent.errors import DriverUnavailableError, PartitioningError
from agent.nvml.call_thread import MAX_STUCK, RETRY_S, CallThread
from agent.nvml.driver_events import WAIT_MS, NvmlEvents
from agent.nvml.errors import DeviceLostError, SessionStaleError
from agent.nvml.library import load_library
from agent.nvml.reset import CALL_S, reset_devices
from agent.nvml.session import Identity, NvmlSession
from telemetry.conditions import AgentDegraded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence

    from agent.driver.device_fields import DeviceSamples
    from agent.driver.port import DriverEvent, DriverSnapshot
    from agent.nvml.mig import MigDevice
    from api.clock import Clock
    from api.mig.layout import InstancePlacement
    from inventory.health.recovery import RecoveryAction

READ_S: Final = 5.0
PARTITION_S: Final = 30.0
SET_MODE_S: Final = 60.0
"""A change of the mode may reset the device."""
CLOSE_S: Final = 2.0
"""Seconds for the thread of events to end, which waits for half a second at a time."""
MAX_KEPT: Final = 1024
"""Different events that wait; further ones are dropped. 16 devices with 60 Xids each."""

Result = TypeVar("Result")


def _no_bus() -> frozenset[str]:
    return frozenset()


@final
class NvmlDriver:
    """A `PartitionDriver`. Used in one event loop; a method may be awaited while others are."""

    def __init__(  # noqa: PLR0913  # each is set alone by settings or tests
        self,
        clock: "Clock",
        *,
        library: Path | None = None,
        driver_root: Path = Path("/"),
        driver_libraries: str = "",
        bus: "Callable[[], frozenset[str]]" = _no_bus,
        read_s: float = READ_S,
        retry_s: float = RETRY_S,
        wait_ms: int = WAIT_MS,
    ) -> None:
        """Nothing is opened yet; a missing library is searched again at every call.

        Args:
            clock: for time-outs.
            library: the file; None searches under the root.
            driver_root: the mounted root of the node.
            driver_libraries: directory under the root that is searched first.
            bus: a value that changes when a device comes, goes, or is bound to a driver, such as addresses with their
                drivers; cheap, since it is read with each snapshot, and must not raise.
            read_s: time-out of a snapshot.
            retry_s: interval of fresh threads while one is stuck.
            wait_ms: time of one wait for events; its end is when the thread of events can stop.
        """
        self._clock = clock
        self._library = library
        self._driver_root = driver_root
        self._driver_libraries = driver_libraries
        self._read_s = read_s
        self._retry_s = retry_s
        self._wait_ms = wait_ms
        identities: dict[int, Identity] = {}
        self._calls = CallThread(
            clock,
            lambda: NvmlSession(clock, load=self._load, bus=bus, identities=identities),
            NvmlSession.close,
            retry_s=retry_s,
        )
        # A session of its own, so that a call for metrics that hangs keeps no other one waiting.
        self._measurements = CallThread(
            clock,
            lambda: NvmlSession(clock, load=self._load, bus=bus, identities={}),
            NvmlSession.close,
            retry_s=retry_s,
        )
        self._is_measuring = False
        """The thread of the measurements may have its session open."""
        self._kept: dict[DriverEvent, None] = {}  # Events that wait, in order, each once.
        self._renewal = asyncio.Lock()
        self._changed = asyncio.Event()
        self._events: NvmlEvents | None = None
        self._started_at = 0.0
        self._stuck: list[NvmlEvents] = []

    async def read(self) -> "DriverSnapshot":
        """As `DeviceDriver.read`; takes five seconds at most, or ten where the session has to be opened again."""
        return await self._renewing("read", NvmlSession.read, self._read_s)

    async def measure(self, within_s: float, *, reads_processes: bool = False) -> "DeviceSamples":
        """Return the metrics of all devices that answer, with their processes where that is asked for.

        A session that is stale is closed by the next `read`.

        Raises:
            DriverUnavailableError: the driver is missing, goes away, or does not answer within that time.
        """
        if self._renewal.locked():
            raise DriverUnavailableError(
                AgentDegraded.DRIVER_FAILS, "NVML: the driver is opened again; no metrics meanwhile"
            )
        self._is_measuring = True
        return await self._measurements.call(
            "measure", partial(NvmlSession.measure, reads_processes=reads_processes), within_s
        )

    async def recovery_actions(self) -> "Mapping[str, RecoveryAction | None]":
        """As `DeviceDriver.recovery_actions`; a session that is stale is renewed by the next `read`."""
        return await self._calls.call(
            "recovery_actions", NvmlSession.recovery_actions, self._read_s
        )

    async def wait_for_events(self, within_s: float) -> "Sequence[DriverEvent]":
        """As `DeviceDriver.wait_for_events`. Events before the first call are not reported.

        A device that reports the same Xid a thousand times between two waits has reported one event.
        """
        over = self._clock.monotonic() + within_s
        while True:
            self._changed.clear()
            if self._kept:
                return self._take()
            if (events := self._following()) and (failure := events.take_failure()):
                if isinstance(failure, SessionStaleError):
                    await self._close_session()  # The other thread has the same driver open.
                raise failure
            left = over - self._clock.monotonic()
            if left <= 0:
                return ()
            # A thread that gets stuck wakes no waiter.
            await self._wait_for_change(min(left, 1.0))

    async def set_mig(self, uuid: str, *, is_enabled: bool) -> bool:
        """As `PartitionDriver.set_mig`. Events are not followed meanwhile: the device must not be open."""
        async with self._closed():
            with _lost_is_refused(uuid):
                return await self._calls.call(
                    "set_mig",
                    lambda session: session.device(uuid).set_mode(is_enabled=is_enabled),
                    SET_MODE_S,
                )

    async def reset(self, uuids: "Sequence[str]") -> None:
        """As `PartitionDriver.reset`. Nothing is open meanwhile; other calls wait for its end, a minute at most."""
        async with self._closed():
            await self._calls.call(
                "reset", lambda _: reset_devices(self._driver_root, self._load(), uuids), CALL_S
            )

    async def create_instance(
        self, uuid: str, profile: str, *, place: "InstancePlacement | None" = None
    ) -> None:
        """As `PartitionDriver.create_instance`."""
        await self._partition("create_instance", uuid, lambda device: device.create(profile, place))

    async def complete_instance(self, uuid: str, gpu_instance: int) -> None:
        """As `PartitionDriver.complete_instance`; a complete one is left as it is."""
        await self._partition(
            "complete_instance", uuid, lambda device: device.complete(gpu_instance)
        )

    async def destroy_instance(self, uuid: str, gpu_instance: int) -> None:
        """As `PartitionDriver.destroy_instance`; a missing one is destroyed."""
        await self._partition("destroy_instance", uuid, lambda device: device.destroy(gpu_instance))

    async def close(self) -> None:
        """Close NVML, so that the driver can be unloaded; the next call opens it again.

        Raises:
            DriverUnavailableError: a call hangs, which keeps it open.
        """
        await self._close_session()
        self._calls.end()
        self._measurements.end()

    def _load(self) -> str:
        return load_library(self._library, self._driver_root, self._driver_libraries)

    def _keep(self, event: "DriverEvent") -> None:
        if len(self._kept) < MAX_KEPT:
            self._kept[event] = None
        self._changed.set()

    def _take(self) -> "tuple[DriverEvent, ...]":
        taken = tuple(self._kept)
        self._kept.clear()
        return taken

    async def _partition(self, name: str, uuid: str, change: "Callable[[MigDevice], None]") -> None:
        with _lost_is_refused(uuid):
            await self._renewing(name, lambda session: change(session.device(uuid)), PARTITION_S)

    async def _renewing(
        self, name: str, call: "Callable[[NvmlSession], Result]", within_s: float
    ) -> Result:
        try:
            return await self._calls.call(name, call, within_s)
        except SessionStaleError:
            await self._close_session()
        return await self._calls.call(name, call, within_s)

    async def _close_session(self) -> None:
        async with self._closed():
            return

    @asynccontextmanager
    async def _closed(self) -> "AsyncIterator[None]":
        """Close the sessions of both threads: only then NVML starts again. Events wait for the end."""
        async with self._renewal:
            events = self._events
            if events is not None:
                await self._end(events)
            if self._is_measuring:
                await self._measurements.call("close", NvmlSession.close, self._read_s)
                self._is_measuring = False
            await self._calls.call("close", NvmlSession.close, self._read_s)
            yield
        self._changed.set()

    async def _end(self, events: NvmlEvents) -> None:
        events.stop()
        over = self._clock.monotonic() + CLOSE_S
        while not events.has_ended:
            if self._clock.monotonic() > over:
                raise _events_hang()
            self._changed.clear()
            await self._wait_for_change(0.1)

    def _following(self) -> NvmlEvents | None:
        """Return the thread that follows events, started where there is none; None while it must not run."""
        events = self._events
        if events is not None and not events.has_ended:
            if not events.is_stuck:
                return events
            self._leave_stuck(events)
        elif events is not None and events.has_failed:
            return events
        if self._renewal.locked():
            return None
        self._started_at = self._clock.monotonic()
        self._events = NvmlEvents(
            self._clock,
            load=self._load,
            keep=self._keep,
            wake=self._changed.set,
            overdue_s=self._read_s,
            wait_ms=self._wait_ms,
        )
        return self._events

    def _leave_stuck(self, events: NvmlEvents) -> None:
        self._stuck = [item for item in self._stuck if not item.has_ended]
        is_too_soon = self._clock.monotonic() < self._started_at + self._retry_s
        if is_too_soon or len(self._stuck) + 1 >= MAX_STUCK:
            raise _events_hang()
        events.stop()
        self._stuck.append(events)
        self._events = None

    async def _wait_for_change(self, within_s: float) -> None:
        try:
            async with asyncio.timeout(within_s):
                await self._changed.wait()
        except TimeoutError:
            return


@contextmanager
def _lost_is_refused(uuid: str) -> "Iterator[None]":
    try:
        yield
    except DeviceLostError as lost:
        raise PartitioningError(f"device {uuid} is lost or missing") from lost


def _events_hang() -> DriverUnavailableError:
    return DriverUnavailableError(
        AgentDegraded.DRIVER_HANGS,
        "the driver does not return from waiting for events: see NVRM in the node's kernel log",
    )
