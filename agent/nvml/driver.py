"""The node's NVIDIA driver through NVML: the real `agent.driver.port.Driver`.

Calls are made in a thread (`agent.nvml.call_thread`) and events are waited for in another (`agent.nvml.driver_events`), so
that nothing else waits for a driver that hangs, and the process can end meanwhile. At worst there are three
threads of each that are stuck.

**Sessions.** NVML is initialised when it is first asked, and stays so: events need it, and Xids are told in no
other way. A session is closed and opened again when the driver went away or came again, when cards came or
went on the bus (NVML finds them at its start only), and around a change of a MIG mode, for which nobody may
have the card open. No handle is kept beyond a call of ours.

**Unloading the driver.** Who has NVML open keeps the kernel's module from being unloaded: so do NVIDIA's own
device plugin and DCGM, and like these the agent has to be taken off the node first. Where there is no driver,
or it went away, nothing is held open. `close` lets go of everything, and the next call opens it again.

**PID namespaces.** NVML tells only of processes that the agent's PID namespace has: it needs the node's.
"""

import asyncio
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar, final

from agent.errors import DriverUnavailableError, PartitioningError
from agent.nvml.call_thread import MAX_STUCK, RETRY_S, CallThread
from agent.nvml.driver_events import NvmlEvents
from agent.nvml.errors import DeviceLostError, SessionStaleError
from agent.nvml.library import load_library
from agent.nvml.session import Identity, NvmlSession
from telemetry.conditions import AgentDegraded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from agent.driver.port import DriverEvent, DriverSnapshot
    from agent.nvml.mig import MigDevice
    from api.clock import Clock

LOOK_S: Final = 5.0
PARTITION_S: Final = 30.0
SET_MODE_S: Final = 60.0
"""A change of the mode may reset the card."""
LET_GO_S: Final = 2.0
"""For the thread of events to end, which asks for half a second at a time."""
MAX_KEPT: Final = 1024
"""Different events that nobody took; further ones are dropped. 16 cards with 60 Xids each."""

Result = TypeVar("Result")


def _no_bus() -> frozenset[str]:
    return frozenset()


@final
class NvmlDriver:
    """A `Driver`. Used in one event loop; a method may be awaited while others are."""

    def __init__(
        self,
        clock: "Clock",
        *,
        library: Path | None = None,
        driver_root: Path = Path("/"),
        bus: "Callable[[], frozenset[str]]" = _no_bus,
        look_s: float = LOOK_S,
        retry_s: float = RETRY_S,
    ) -> None:
        """Touch nothing yet; a library that is not there is looked for again at every call.

        Args:
            clock: for time-outs.
            library: the file; None looks for it under the root.
            driver_root: where the node's root is mounted.
            bus: what changes when a card comes, goes, or is bound to a driver, such as addresses with
                their drivers; cheap, since it is asked at each look, and must not raise.
            look_s: how long a look may last.
            retry_s: how often a fresh thread is tried while one is stuck.
        """
        self._clock = clock
        self._library = library
        self._driver_root = driver_root
        self._look_s = look_s
        self._retry_s = retry_s
        known: dict[int, Identity] = {}
        self._calls = CallThread(
            clock,
            lambda: NvmlSession(clock, load=self._load, bus=bus, known=known),
            NvmlSession.close,
            retry_s=retry_s,
        )
        self._kept: dict[DriverEvent, None] = {}  # What nobody took yet, in order, each once.
        self._renewal = asyncio.Lock()
        self._changed = asyncio.Event()
        self._events: NvmlEvents | None = None
        self._started_at = 0.0
        self._stuck: list[NvmlEvents] = []

    async def look(self) -> "DriverSnapshot":
        """As `Driver.look`; takes five seconds at most, or ten where the session has to be opened again."""
        return await self._renewing("look", NvmlSession.look, self._look_s)

    async def wait_for_events(self, within_s: float) -> "Sequence[DriverEvent]":
        """As `Driver.wait_for_events`. Nothing is told of the time before the first call.

        A card that tells the same Xid a thousand times before somebody waits has told one event.
        """
        over = self._clock.monotonic() + within_s
        while True:
            self._changed.clear()
            if self._kept:
                return self._take()
            if (events := self._following()) and (failure := events.take_failure()):
                if isinstance(failure, SessionStaleError):
                    await self._let_go()  # What the other thread has open is of the same driver.
                raise failure
            left = over - self._clock.monotonic()
            if left <= 0:
                return ()
            # A thread that gets stuck wakes nobody.
            await self._woken(min(left, 1.0))

    async def set_mig(self, uuid: str, *, is_enabled: bool) -> bool:
        """As `Driver.set_mig`. Events are not followed meanwhile: the card must not be open."""
        async with self._closed():
            with _lost_is_refused(uuid):
                return await self._calls.call(
                    "set_mig",
                    lambda session: session.device(uuid).set_mode(is_enabled=is_enabled),
                    SET_MODE_S,
                )

    async def create_instance(self, uuid: str, profile: str) -> None:
        """As `Driver.create_instance`."""
        await self._cut("create_instance", uuid, lambda device: device.create(profile))

    async def complete_instance(self, uuid: str, gpu_instance: int) -> None:
        """As `Driver.complete_instance`; one that is complete is left as it is."""
        await self._cut("complete_instance", uuid, lambda device: device.complete(gpu_instance))

    async def destroy_instance(self, uuid: str, gpu_instance: int) -> None:
        """As `Driver.destroy_instance`; one that is not there is destroyed."""
        await self._cut("destroy_instance", uuid, lambda device: device.destroy(gpu_instance))

    async def close(self) -> None:
        """Let go of the driver, so that it can be unloaded; the next call opens it again.

        Raises:
            DriverUnavailable: a call hangs, which keeps it open.
        """
        await self._let_go()
        self._calls.end()

    def _load(self) -> str:
        return load_library(self._library, self._driver_root)

    def _keep(self, event: "DriverEvent") -> None:
        if len(self._kept) < MAX_KEPT:
            self._kept[event] = None
        self._changed.set()

    def _take(self) -> "tuple[DriverEvent, ...]":
        taken = tuple(self._kept)
        self._kept.clear()
        return taken

    async def _cut(self, name: str, uuid: str, cut: "Callable[[MigDevice], None]") -> None:
        with _lost_is_refused(uuid):
            await self._renewing(name, lambda session: cut(session.device(uuid)), PARTITION_S)

    async def _renewing(
        self, name: str, call: "Callable[[NvmlSession], Result]", within_s: float
    ) -> Result:
        try:
            return await self._calls.call(name, call, within_s)
        except SessionStaleError:
            await self._let_go()
        return await self._calls.call(name, call, within_s)

    async def _let_go(self) -> None:
        async with self._closed():
            return

    @asynccontextmanager
    async def _closed(self) -> "AsyncIterator[None]":
        """Close the sessions of both threads: only then NVML really begins anew. Events wait for the end."""
        async with self._renewal:
            events = self._events
            if events is not None:
                await self._end(events)
            await self._calls.call("close", NvmlSession.close, self._look_s)
            yield
        self._changed.set()

    async def _end(self, events: NvmlEvents) -> None:
        events.stop()
        over = self._clock.monotonic() + LET_GO_S
        while not events.has_ended:
            if self._clock.monotonic() > over:
                raise _events_hang()
            self._changed.clear()
            await self._woken(0.1)

    def _following(self) -> NvmlEvents | None:
        """Return the thread that follows events, started where there is none; None while it must not be."""
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
            overdue_s=self._look_s,
        )
        return self._events

    def _leave_stuck(self, events: NvmlEvents) -> None:
        self._stuck = [one for one in self._stuck if not one.has_ended]
        is_too_soon = self._clock.monotonic() < self._started_at + self._retry_s
        if is_too_soon or len(self._stuck) + 1 >= MAX_STUCK:
            raise _events_hang()
        events.stop()
        self._stuck.append(events)
        self._events = None

    async def _woken(self, within_s: float) -> None:
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
        raise PartitioningError(f"card {uuid} is lost, or not there") from lost


def _events_hang() -> DriverUnavailableError:
    return DriverUnavailableError(
        AgentDegraded.DRIVER_HANGS,
        "the driver does not return from waiting for events: look for NVRM in the node's kernel log",
    )
