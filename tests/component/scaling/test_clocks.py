"""The clock of our server is not that of the API server, and it jumps: nodes come all the same, one for a pod."""

from pathlib import Path

import pytest

from kube.resources import NODE_CLAIMS
from tests.support.scaling_double import DoubleCluster, a_scaling_cluster
from tests.support.scaling_stories import ScalingPool, shape

pytestmark = pytest.mark.looptime(noop_cycles=10)

AHEAD_S = 90
"""Longer than a signal waits for its NodeClaim, and less than the heartbeat of an agent stays fresh."""


async def a_pool(cluster: DoubleCluster) -> ScalingPool:
    pool = ScalingPool(cluster, "clocks")
    node_pool = await pool.create_node_pool("any", "gpu-1x")
    await pool.create([shape("one", 1, "gpu-1x", nodePool=node_pool)])
    return pool


def created_claims(cluster: DoubleCluster) -> int:
    """Return how many NodeClaims there were."""
    return sum(
        write.method == "POST" and write.path.endswith(f"/{NODE_CLAIMS.plural}")
        for write in cluster.cluster.api.requests.writes()
    )


@pytest.mark.parametrize("ahead_s", [AHEAD_S, -AHEAD_S])
async def test_a_clock_that_differs_from_the_api_servers_delays_nothing(
    tmp_path: Path, ahead_s: int
):
    async with a_scaling_cluster(tmp_path) as cluster:
        cluster.server_clock.wall_offset_s += ahead_s
        pool = await a_pool(cluster)
        await pool.create_pod("clocks-a")
        await pool.until_bound("clocks-a", within_s=60)
        assert created_claims(cluster) == 1
        await pool.ends_clean()


@pytest.mark.parametrize("ahead_s", [AHEAD_S, -AHEAD_S])
async def test_a_clock_that_jumps_while_a_node_comes_costs_no_second_node(
    tmp_path: Path, ahead_s: int
):
    async with a_scaling_cluster(tmp_path) as cluster:
        pool = await a_pool(cluster)
        await cluster.set_nodes(pool.node_pools[0], devices_after_s=10.0)
        await pool.create_pod("clocks-a")
        await pool.until("a node is there", lambda seen: len(seen.nodes) == 1)
        cluster.server_clock.wall_offset_s += ahead_s
        await pool.until_bound("clocks-a", within_s=120)
        assert created_claims(cluster) == 1
        await pool.ends_clean()
