from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.canned_api import CannedApi
from tests.support.plugin_cluster import ListedCluster, find_kubectl


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ListedCluster]:
    """A cluster in which a pod waits, asked by the real kubectl."""
    async with CannedApi() as api:
        yield ListedCluster(api, find_kubectl(), tmp_path)
