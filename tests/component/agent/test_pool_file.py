"""The file of a pool is read again within a second of a change; the time is virtual."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from agent.plugin.advertised import AdvertisedUnits
from agent.plugin.config_sources import RELOAD_EVERY_S, FileSource
from agent.plugin.pool_config import ConfigFile
from tests.component.agent.node import MountedConfig

pytestmark = pytest.mark.looptime


class Sink:
    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def advertise(self, advertised: Iterable[AdvertisedUnits]) -> None:
        self.calls.append([unit.id for item in advertised for unit in item.units])


async def test_a_change_is_advertised_within_a_second_and_an_unchanged_file_is_not(folder: Path):
    mounted, sink = MountedConfig(folder / "pool"), Sink()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(FileSource(ConfigFile(mounted.path), "n1", sink).run())
        await asyncio.sleep(RELOAD_EVERY_S / 2)
        assert sink.calls == []
        mounted.put_devices("GPU-1")
        await asyncio.sleep(RELOAD_EVERY_S)
        assert sink.calls == [["GPU-1"]]
        await asyncio.sleep(60)
        assert sink.calls == [["GPU-1"]]
        mounted.put_devices("GPU-1", "GPU-2")
        await asyncio.sleep(RELOAD_EVERY_S)
        assert sink.calls == [["GPU-1"], ["GPU-1", "GPU-2"]]
        task.cancel()
