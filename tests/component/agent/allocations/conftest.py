"""A node whose allocations are reported."""

from collections.abc import AsyncIterator

import pytest

from tests.component.agent.allocations.reporting_node import ReportingNode, a_reporting_node


@pytest.fixture
async def node() -> AsyncIterator[ReportingNode]:
    async with a_reporting_node() as opened:
        yield opened
