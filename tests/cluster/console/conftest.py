"""Chromium, and the page on the demo's living cluster; no Kubernetes is started."""

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from demo.console_page import console_page
from demo.living_cluster import living_cluster
from tests.cluster.environment import binaries
from tests.cluster.environment.browser import open_browser


@pytest.fixture
async def browser(progress: Callable[[str], None]):
    program = await asyncio.to_thread(binaries.find_chromium, progress)
    async with open_browser(program) as opened:
        yield opened


@pytest.fixture
def living_page(tmp_path: Path):
    """`async with living_page(warm_up=60) as (living, address)`: a cluster to be driven by steps, and its page."""

    @asynccontextmanager
    async def serve(**options):
        log = tmp_path / "server.log"
        async with (
            living_cluster(tmp_path, log, seed=1, **options) as living,
            console_page(living.cluster) as address,
        ):
            yield living, address

    return serve
