"""A node whose roles caches and csi a test starts."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.component.agent.kernelcache.cache_node import CacheNode, a_cache_node


@pytest.fixture
async def node(folder: Path) -> AsyncIterator[CacheNode]:
    async with a_cache_node(folder) as opened:
        yield opened
