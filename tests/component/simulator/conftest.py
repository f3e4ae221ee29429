"""A server in memory and a client of it."""

from typing import TYPE_CHECKING

import aiohttp
import pytest

from simulator.apiserver.server import InMemoryApiServer
from tests.support.api_servers import Api
from tests.support.loop_clock import LoopClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def server() -> "AsyncIterator[InMemoryApiServer]":
    async with InMemoryApiServer(LoopClock(), bookmark_interval_s=10, history_limit=100) as started:
        yield started


@pytest.fixture
async def api(server: InMemoryApiServer) -> "AsyncIterator[Api]":
    async with aiohttp.ClientSession() as session:
        yield Api(session, server.url)
