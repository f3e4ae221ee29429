from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.canned_api import CannedApi
from tests.support.plugin_cluster import ListedCluster, find_kubectl
from tests.support.plugin_forks import PluginForks, plugin_forks


@pytest.fixture(scope="session")
def plugin() -> Iterator[PluginForks]:
    with plugin_forks() as opened:
        yield opened


@pytest.fixture
async def cluster(tmp_path: Path, plugin: PluginForks) -> AsyncIterator[ListedCluster]:
    """A cluster in which a pod waits, asked by the real kubectl."""
    async with CannedApi() as api:
        yield ListedCluster(api, find_kubectl(), tmp_path, plugin)
