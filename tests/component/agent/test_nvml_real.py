"""The same driver on a card, where the machine has one: nothing on it is changed."""

import asyncio
import dataclasses
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.driver.port import DriverCard
from agent.nvml.driver import NvmlDriver
from agent.nvml.library import find_libraries
from server.clock import SystemClock


@pytest.fixture
def library() -> Path:
    found = next(find_libraries(Path("/")), None)
    if found is None or not Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has no NVIDIA driver")
    return found


@pytest.fixture
async def driver(library: Path) -> AsyncIterator[NvmlDriver]:
    driver = NvmlDriver(SystemClock(), library=library)
    yield driver
    await driver.close()


async def test_cards_are_those_of_nvidia_smi(driver: NvmlDriver) -> None:
    program = shutil.which("nvidia-smi")
    if program is None:
        pytest.skip("there is no nvidia-smi to compare with")
    query = "uuid,pci.bus_id,name,memory.total,compute_cap,driver_version"
    told = await asyncio.to_thread(
        subprocess.run,
        [program, f"--query-gpu={query}", "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        check=True,
    )
    expected = sorted(tuple(line.split(", ")) for line in told.stdout.splitlines())
    look = await driver.look()
    assert expected == sorted(
        (
            card.uuid,
            f"0000{card.address}".upper(),
            card.product,
            str(card.memory_mib),
            card.compute_capability,
            look.driver_version,
        )
        for card in look.cards
    )


async def test_two_looks_are_alike(driver: NvmlDriver) -> None:
    def lasting(card: DriverCard) -> DriverCard:
        return dataclasses.replace(card, temperature_celsius=None, processes=0)

    first, second = await driver.look(), await driver.look()
    assert list(map(lasting, first.cards)) == list(map(lasting, second.cards))
    assert all(card.minor >= 0 and not card.is_lost for card in first.cards)
    assert all(card.profiles or not card.is_mig_capable for card in first.cards)


async def test_quiet_cards_tell_nothing(driver: NvmlDriver) -> None:
    assert await driver.wait_for_events(2.0) == ()
    assert (await driver.look()).cards
