"""A canned API server and a client of it, on virtual time where a test asks for it."""

from collections.abc import AsyncIterator

import pytest

from kube.client import KubeClient
from kube.config.connection import StaticConnection
from tests.support.canned_api import CannedApi
from tests.support.loop_clock import LoopClock


@pytest.fixture
async def api() -> AsyncIterator[CannedApi]:
    async with CannedApi() as api:
        yield api


@pytest.fixture
async def clock() -> LoopClock:
    return LoopClock()


@pytest.fixture
async def client(api: CannedApi, clock: LoopClock) -> AsyncIterator[KubeClient]:
    async with KubeClient(StaticConnection(api.url, token="t0"), clock) as client:
        yield client
