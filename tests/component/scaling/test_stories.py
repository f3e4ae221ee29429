"""Each story of pools that scale, on the doubles."""

from pathlib import Path

import pytest

from tests.support.scaling_double import a_scaling_cluster
from tests.support.scaling_growth import GROWTH
from tests.support.scaling_stories import Story
from tests.support.scaling_trouble import TROUBLE

pytestmark = pytest.mark.looptime(noop_cycles=10)


@pytest.mark.parametrize("story", GROWTH + TROUBLE, ids=lambda story: story.__name__)
async def test_story(tmp_path: Path, story: Story):
    async with a_scaling_cluster(tmp_path) as cluster:
        await story(cluster)
        assert not cluster.server.is_over, cluster.server.ended
