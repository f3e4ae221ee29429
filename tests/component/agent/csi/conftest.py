"""A driver of one node; its folder has a short name, since a socket's may have 107 characters."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.component.agent.csi.driver import Driver, a_driver


@pytest.fixture
async def driver(folder: Path) -> AsyncIterator[Driver]:
    async with a_driver(folder) as opened:
        yield opened
