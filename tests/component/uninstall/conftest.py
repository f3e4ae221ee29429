"""A cluster in memory with the whole control plane in it."""

from collections.abc import AsyncIterator

import pytest

from tests.component.uninstall.installed_cluster import InstalledCluster, an_installed_cluster


@pytest.fixture
async def cluster() -> AsyncIterator[InstalledCluster]:
    async with an_installed_cluster() as opened:
        yield opened
