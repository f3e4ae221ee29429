"""A node whose NVML is a fake C library, and the agent's driver on it; threads and time are real."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agent.driver.port import DriverDevice, DriverEvent
from agent.errors import DriverUnavailableError
from agent.nvml.driver import NvmlDriver
from http_edge.system_clock import SystemClock
from tests.support.nvml.library import FakeNvml, NoCompilerError, NvmlDevice
from tests.support.polling import EVERY_S, LIMIT_S

WAIT_MS = 50
"""A tenth of the agent's: the thread of events stops sooner."""


@dataclass
class NvmlNode:
    nvml: FakeNvml
    driver: NvmlDriver
    bus: set[str] = field(default_factory=set)
    """Devices bound to the kernel's driver."""

    async def device(self, uuid: str) -> DriverDevice:
        snapshot = await self.driver.read()
        return next(device for device in snapshot.devices if device.uuid == uuid)

    async def event(self) -> DriverEvent:
        """Return the next event; TimeoutError after ten seconds without one."""
        for _ in range(10):
            if found := await self.driver.wait_for_events(1.0):
                return found[0]
        raise TimeoutError("no event")

    async def listen(self, *, again_after: int = 0) -> None:
        """Return once events are waited for: those that were reported before are not heard.

        With `again_after`, once that happened more often (see `FakeNvml.listened`).
        """
        async with asyncio.timeout(LIMIT_S):
            while not self.nvml.listening() or self.nvml.listened() <= again_after:
                assert await self.driver.wait_for_events(EVERY_S) == ()


@asynccontextmanager
async def nvml_node(
    directory: Path,
    *devices: NvmlDevice,
    defines: tuple[str, ...] = (),
    read_s: float = 5.0,
    retry_s: float = 60.0,
) -> AsyncIterator[NvmlNode]:
    try:
        nvml = FakeNvml(directory, *devices, defines=defines)
    except NoCompilerError as missing:
        pytest.skip(f"the double of NVML's library cannot be made: {missing}")
    bus: set[str] = set()
    driver = NvmlDriver(
        SystemClock(),
        library=nvml.library,
        bus=lambda: frozenset(bus),
        read_s=read_s,
        retry_s=retry_s,
        wait_ms=WAIT_MS,
    )
    try:
        yield NvmlNode(nvml, driver, bus)
    finally:
        nvml.unhang()
        with contextlib.suppress(DriverUnavailableError):
            await driver.close()
