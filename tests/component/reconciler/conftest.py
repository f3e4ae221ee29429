"""A small cluster with our kinds."""

from collections.abc import AsyncIterator

import pytest

from tests.component.reconciler.cluster import Cluster, a_cluster


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with a_cluster() as opened:
        yield opened
