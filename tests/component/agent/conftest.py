"""A node with a kubelet double; its directory has a short name, since a socket's may have 107 characters."""

import os
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from agent.nvml.library import find_libraries
from demo.demo_folder import demo_folder
from tests.component.agent.node import Agent
from tests.support.kubelet.admission import KubeletOfNode
from tests.support.kubelet.plugins import PluginsOfKubelet


@pytest.fixture
def folder() -> Iterator[Path]:
    with demo_folder() as name:
        yield Path(name)


@pytest.fixture
async def kubelet(folder: Path) -> AsyncIterator[PluginsOfKubelet]:
    async with PluginsOfKubelet(folder / "plugins") as opened:
        yield opened


@pytest.fixture
async def node(folder: Path) -> AsyncIterator[KubeletOfNode]:
    async with KubeletOfNode(folder, random.Random(1)) as opened:
        yield opened


@pytest.fixture
async def agent(node: KubeletOfNode, folder: Path) -> Agent:
    return Agent(node, folder)


_MEMORY = 1
"""The major number of /dev/null, which stands for a device in the tests on kubelet."""


@pytest.fixture
def driver_library() -> Path:
    """Return NVML of the driver that this machine has; a double that a killed test left is none."""
    control = Path("/dev/nvidiactl")
    found = next(find_libraries(Path("/")), None)
    if found is None or not control.exists() or os.major(control.stat().st_rdev) == _MEMORY:
        pytest.skip("this machine has no NVIDIA driver")
    return found
