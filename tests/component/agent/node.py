"""A pool's file as kubelet mounts it, and the plugin that follows it, running."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from agent.config import ConfigFile
from agent.serving import ServedPools
from agent.sources import FileSource
from api.poolconfig import CONFIG_KEY, HandOut
from server.clock import SystemClock
from simulator.kubelet_plugins import PluginsOfKubelet

RESOURCE = "gpu.deckhouse.io/whole"


class MountedConfig:
    """A ConfigMap volume: `config.json` -> `..data/config.json`, `..data` swapped at once."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._directory = directory
        self._numbers = itertools.count()
        self.path = directory / CONFIG_KEY

    def put(self, content: bytes, key: str = CONFIG_KEY) -> None:
        version = self._directory / f"..{next(self._numbers)}"
        version.mkdir()
        (version / key).write_bytes(content)
        fresh = self._directory / "..fresh"
        fresh.symlink_to(version.name)
        fresh.rename(self._directory / "..data")
        link = self._directory / key
        if not link.is_symlink():
            link.symlink_to(f"..data/{key}")

    def put_cards(self, *uuids: str, pool: str = "whole", **more: Any) -> None:
        self.put(config_of(*uuids, pool=pool, **more))


def config_of(*uuids: str, pool: str = "whole", **more: Any) -> bytes:
    cards = [{"uuid": uuid} for uuid in uuids]
    return msgspec.json.encode(
        {
            "version": "v1",
            "pool": pool,
            "resource": f"gpu.deckhouse.io/{pool}",
            "nodes": {"n1": cards, "n2": [{"uuid": "GPU-elsewhere"}]},
            **more,
        }
    )


@asynccontextmanager
async def a_plugin(
    kubelet: PluginsOfKubelet, mounted: MountedConfig, *, hand_out: HandOut = HandOut.CDI
) -> AsyncIterator[ServedPools]:
    """The plugin of a pool on node n1, as the command runs it."""
    served = ServedPools(kubelet.directory, SystemClock(), hand_out=hand_out)
    source = FileSource(ConfigFile(mounted.path), "n1", served)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(source.run()), group.create_task(served.run())]
        yield served
        for task in tasks:
            task.cancel()
