"""A node with a kubelet double; its directory has a short name, since a socket's may have 107 characters."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from simulator.kubelet_plugins import PluginsOfKubelet


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="gpu") as name:
        yield Path(name)


@pytest.fixture
async def kubelet(folder: Path) -> AsyncIterator[PluginsOfKubelet]:
    async with PluginsOfKubelet(folder / "plugins") as opened:
        yield opened
