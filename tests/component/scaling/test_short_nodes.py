"""Nodes that bring fewer usable devices than their shape promises: few are bought, and it is said."""

import asyncio
from pathlib import Path

import pytest

from kube.resources import NODE_CLAIMS
from simulator.node.joining_nodes import NodeBehaviour
from tests.support.scaling_double import a_scaling_cluster
from tests.support.scaling_stories import ScalingPool, shape

pytestmark = pytest.mark.looptime(noop_cycles=10)

LONG_S = 12 * 60
"""Longer than two nodes are awaited, with the pause between them."""


async def test_a_node_with_fewer_devices_than_promised_is_not_bought_again_for_ever(
    tmp_path: Path,
):
    async with a_scaling_cluster(tmp_path) as cluster:
        pool = ScalingPool(cluster, "short")
        node_pool = await pool.create_node_pool("any", "gpu-2x")
        cluster.behaviour[node_pool] = NodeBehaviour(faulted=1)
        await pool.create([shape("two", 2, "gpu-2x", nodePool=node_pool)])
        await pool.create_pod("short-a", 2)
        await asyncio.sleep(LONG_S)
        created = [
            write.path
            for write in cluster.cluster.api.requests.writes()
            if write.method == "POST" and write.path.endswith(f"/{NODE_CLAIMS.plural}")
        ]
        assert 2 <= len(created) <= 3
        measured = await pool.until("the shape is left out", lambda seen: bool(seen.scaling.shapes))
        assert measured.scaling.shapes is not None
        (left_out,) = measured.scaling.shapes
        assert left_out.excluded_at == measured.pool.metadata.generation
        assert measured.has_condition("ShapesAvailable", "False")
        note = await pool.until_reported("GPUNodeWithFewerDevices")
        assert "brings 1 usable units" in note
        assert "promises 2" in note
        await pool.until_reported("GPUNodeRequestBlocked", "promises 2")
        assert measured.gated == ["short-a"]
        await pool.ends_clean()
