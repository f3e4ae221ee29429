"""Under each TopologyManager policy pods get what they were assigned, where that is aligned.

The node has two NUMA nodes, with four devices of the pool on each. Where the free devices of a NUMA node are just
as many as a container wants, kubelet allocates them without asking the plugin what it prefers.
"""

import json
from typing import TYPE_CHECKING

import pytest

from tests.cluster.environment import pods
from tests.cluster.node.stories.test_assigned_devices import check
from tests.cluster.system.objects import units_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.cluster.node.stories.agents import Agent
    from tests.cluster.node.stories.pools import Pools

TURNS = 4


@pytest.fixture(params=["best-effort", "restricted", "single-numa-node"])
async def aligned(
    request: pytest.FixtureRequest, pools: "Pools", whole: str
) -> "AsyncIterator[Pools]":
    """The pools, on a kubelet with this policy."""
    async with pools.node.kubelet.aligning(request.param):
        await pools.node.wait_ready()
        await pools.offers(whole, 8)
        # Until its first pod kubelet counts what pods had that ended while it was away.
        await pools.run(pools.node.a_pod("first"))
        await pools.delete("first")
        yield pools
        await pools.clear()
    await pools.node.wait_ready()
    await pools.offers(whole, 8)


async def test_pods_that_ended_are_replaced_on_a_full_node_again_and_again(
    aligned: "Pools", whole: str, agent: "Agent"
):
    pools = aligned
    names = [f"pair-{number}" for number in range(4)]
    for name in names:
        # One after the other: kubelet fills the first NUMA node first, and so does the pool.
        await check(pools, await pools.run(pools.a_pod(name, whole, 2)), "main")

    before = agent.process.logs()
    for turn in range(TURNS):
        gone = names[turn % 4]
        freed = units_of(await pools.get(gone))
        names[turn % 4] = f"turn-{turn}"
        await pools.create(pools.a_pod(names[turn % 4], whole, 2))
        await pods.wait_for_pod(pools.api, pools.namespace, names[turn % 4], pods.is_unschedulable)
        await pools.delete(gone)
        replaced = await pools.running(names[turn % 4])
        assert sorted(units_of(replaced)) == sorted(freed)
        await check(pools, replaced, "main")

    said = [json.loads(line) for line in agent.process.logs().removeprefix(before).splitlines()]
    calls = [line["event"] for line in said if line.get("resource") == whole]
    assert (calls.count("allocated"), calls.count("devices selected")) == (TURNS, 0)
