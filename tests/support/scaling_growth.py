"""Stories of nodes that come: for pods, for warm units, and as far as limits allow."""

import asyncio
from typing import Final

from tests.support.scaling_stories import ScalingCluster, ScalingPool, Story, shape


async def one_pod_from_zero(cluster: ScalingCluster) -> None:
    """A pod comes, its node comes, it runs, it ends, the node goes."""
    pool = ScalingPool(cluster, "zero-one")
    node_pool = await pool.create_node_pool("any", "gpu-1x", "gpu-4x")
    await cluster.set_nodes(node_pool, devices_after_s=1.0)
    await pool.create([shape("one", 1, "gpu-1x", nodePool=node_pool)])
    await pool.create_pod("zero-one-a")
    await pool.until("the pod has the gate", lambda seen: seen.gated == ["zero-one-a"])
    await pool.until("a node is asked for", lambda seen: len(seen.signals) == 1)
    await pool.until("there is a NodeClaim", lambda seen: len(seen.claims) == 1)
    measured = await pool.until_bound("zero-one-a")
    assert measured.instance_types() == ["gpu-1x"]
    await pool.until("no signal is left", lambda seen: not seen.signals)
    await cluster.finish("zero-one-a")
    await pool.until("the node goes", lambda seen: not seen.nodes and not seen.claims)
    await pool.ends_clean()


async def a_pod_reports_how_far_its_node_is(cluster: ScalingCluster) -> None:
    """Events on the waiting pod: what was asked for, its NodeClaim, its node, its devices."""
    pool = ScalingPool(cluster, "told")
    node_pool = await pool.create_node_pool("any", "gpu-1x")
    await cluster.set_nodes(node_pool, devices_after_s=6.0)
    await pool.create([shape("one", 1, "gpu-1x", nodePool=node_pool)])
    await pool.create_pod("told-a")
    for reason in ("GPUNodeRequested", "GPUNodeLaunched", "GPUNodeRegistered", "GPUNodeReady"):
        await pool.until_reported(reason)
    await pool.until_bound("told-a")
    await pool.ends_clean()


async def eight_pods_from_zero(cluster: ScalingCluster) -> None:
    """Eight pods of one device share one node of eight."""
    pool = ScalingPool(cluster, "eight")
    node_pool = await pool.create_node_pool("any", "gpu-8x")
    await pool.create([shape("eight", 8, "gpu-8x", nodePool=node_pool)])
    names = await pool.create_pods(8)
    measured = await pool.until_bound(*names)
    assert len(measured.claims) == 1
    await pool.ends_clean()


async def fifty_pods_from_zero(cluster: ScalingCluster) -> None:
    """Fifty pods of one device on nodes of eight: seven nodes, no more."""
    pool = ScalingPool(cluster, "fifty")
    node_pool = await pool.create_node_pool("any", "gpu-8x")
    await pool.create([shape("eight", 8, "gpu-8x", nodePool=node_pool)], maxInFlight=20)
    names = await pool.create_pods(50)
    measured = await pool.until_bound(*names)
    assert len(measured.claims) == len(measured.nodes) == 7
    await pool.ends_clean()


async def a_hundred_pods_for_twenty_nodes(cluster: ScalingCluster) -> None:
    """A hundred pods of eight tenths of five nodes' devices: twenty NodeClaims, none more."""
    pool = ScalingPool(cluster, "hundred")
    node_pool = await pool.create_node_pool("any", "gpu-4x")
    await pool.create(
        [shape("four", 4, "gpu-4x", nodePool=node_pool)],
        allocation={"mode": "TimeSlice", "slicesPerDevice": 5},
        maxInFlight=30,
    )
    names = await pool.create_pods(100, 4)
    measured = await pool.until_bound(*names, within_s=180)
    assert len(measured.claims) == 20
    await pool.ends_clean(within_s=180)


async def time_slices_from_zero(cluster: ScalingCluster) -> None:
    """Ten pods of one slice fit on one device of ten slices."""
    pool = ScalingPool(cluster, "slices")
    node_pool = await pool.create_node_pool("any", "gpu-1x")
    await pool.create(
        [shape("one", 1, "gpu-1x", nodePool=node_pool)],
        allocation={"mode": "TimeSlice", "slicesPerDevice": 10},
    )
    names = await pool.create_pods(10)
    measured = await pool.until_bound(*names)
    assert len(measured.claims) == 1
    await pool.ends_clean()


async def mig_instances_from_zero(cluster: ScalingCluster) -> None:
    """Eight pods of a MIG instance need two devices of seven."""
    pool = ScalingPool(cluster, "instances")
    node_pool = await pool.create_node_pool("any", "gpu-1x")
    await cluster.set_nodes(node_pool, devices_after_s=0.5, mig_profile="1g.10gb")
    await pool.create(
        [shape("one", 1, "gpu-1x", nodePool=node_pool, unitsPerDevice=7)],
        allocation={"mode": "MIG", "migProfile": "1g.10gb"},
    )
    names = await pool.create_pods(8)
    measured = await pool.until_bound(*names)
    assert len(measured.claims) == 2
    await pool.ends_clean()


async def two_two_and_one(cluster: ScalingCluster) -> None:
    """Pods of 2, 2 and 1 devices are packed on nodes of four: two nodes, not three."""
    pool = ScalingPool(cluster, "packed")
    node_pool = await pool.create_node_pool("any", "gpu-4x")
    await pool.create([shape("four", 4, "gpu-4x", nodePool=node_pool)])
    async with asyncio.TaskGroup() as group:
        for name, units in (("packed-a", 2), ("packed-b", 2), ("packed-c", 1)):
            group.create_task(pool.create_pod(name, units))
    measured = await pool.until_bound("packed-a", "packed-b", "packed-c")
    assert len(measured.claims) == 2
    await pool.ends_clean()


async def two_pools_at_once(cluster: ScalingCluster) -> None:
    """Two pools grow at the same time, each on nodes of its own."""
    pools = [ScalingPool(cluster, name) for name in ("first", "second")]
    for pool in pools:
        node_pool = await pool.create_node_pool("any", "gpu-1x")
        await pool.create([shape("one", 1, "gpu-1x", nodePool=node_pool)])
    for pool in pools:
        await pool.create_pods(2)
    for pool in pools:
        measured = await pool.until_bound(f"{pool.name}-p0", f"{pool.name}-p1")
        assert len(measured.nodes) == 2
    for pool in pools:
        await pool.ends_clean()


async def a_node_pool_at_its_limit(cluster: ScalingCluster) -> None:
    """The third pod waits, and is told of the limit; it runs when another one has ended.

    It comes when two nodes are there: Karpenter may exceed a limit in a rapid scale-out, as its documentation says.
    """
    pool = ScalingPool(cluster, "limited")
    node_pool = await pool.create_node_pool(
        "any", "gpu-1x", limits={"nodes": "2"}, consolidate_after="1h"
    )
    await pool.create([shape("one", 1, "gpu-1x", nodePool=node_pool)])
    names = await pool.create_pods(2)
    measured = await pool.until("two run", lambda seen: len(seen.bound) == 2)
    names += await pool.create_pods(1, prefix="later")
    await pool.until_reported("GPUNodeRequestBlocked", "NodePoolLimit")
    await pool.until("no signal is left", lambda seen: not seen.signals)
    await cluster.finish(measured.bound[0])
    measured = await pool.until("the third one runs", lambda seen: set(seen.bound) == set(names))
    assert len(measured.claims) == 2
    await _release(pool, node_pool)


async def a_pool_at_its_most_units(cluster: ScalingCluster) -> None:
    """`maxUnits` ends the growth."""
    pool = ScalingPool(cluster, "most")
    node_pool = await pool.create_node_pool("any", "gpu-2x")
    await pool.create([shape("two", 2, "gpu-2x", nodePool=node_pool)], maxUnits=4)
    await pool.create_pods(5)
    await pool.until("four run", lambda seen: len(seen.bound) == 4)
    await pool.until_reported("GPUNodeRequestBlocked", "MaxUnits")
    await pool.ends_clean()


async def a_budget_ends(cluster: ScalingCluster) -> None:
    """With 2.00 for a node and 5.00 for an hour two nodes come."""
    pool = ScalingPool(cluster, "budget")
    node_pool = await pool.create_node_pool("any", "gpu-1x")
    await pool.create(
        [shape("one", 1, "gpu-1x", nodePool=node_pool, pricePerHour="2.00")],
        budget={"perHour": "5.00"},
    )
    await pool.create_pods(3)
    await pool.until("two run", lambda seen: len(seen.bound) == 2)
    await pool.until_reported("GPUNodeRequestBlocked", "BudgetPerHour")
    measured = await pool.measured()
    assert len(measured.claims) == 2
    await pool.ends_clean()


async def warm_units(cluster: ScalingCluster) -> None:
    """A pool keeps free units: a pod takes one at once, and the next one comes."""
    pool = ScalingPool(cluster, "warm")
    node_pool = await pool.create_node_pool("any", "gpu-1x")
    await pool.create([shape("one", 1, "gpu-1x", nodePool=node_pool)], warmUnits=1)
    await pool.until("a node is warm", lambda seen: seen.pool.status.capacity.available == 1)
    await pool.create_pod("warm-a")
    measured = await pool.measured()
    assert measured.gated == []
    await pool.until_bound("warm-a")
    await pool.until("another one is warm", lambda seen: seen.units == 2)
    await pool.patch({"spec": {"autoscaling": {"warmUnits": 0}}})
    await pool.ends_clean(within_s=900)


async def least_units(cluster: ScalingCluster) -> None:
    """`minUnits` are there without any pod, and stay."""
    pool = ScalingPool(cluster, "least")
    node_pool = await pool.create_node_pool("any", "gpu-2x")
    await pool.create([shape("two", 2, "gpu-2x", nodePool=node_pool)], minUnits=3)
    measured = await pool.until("two nodes are there", lambda seen: seen.units == 4)
    await asyncio.sleep(60)
    assert {node.metadata.name for node in (await pool.measured()).nodes} == {
        node.metadata.name for node in measured.nodes
    }
    await pool.patch({"spec": {"autoscaling": {"minUnits": 0}}})
    await pool.ends_clean(within_s=900)


async def _release(pool: ScalingPool, node_pool: str) -> None:
    """Let Karpenter take the nodes of a NodePool that keeps them, and end."""
    await pool.consolidate(node_pool, "0s")
    await pool.ends_clean()


GROWTH: Final[tuple[Story, ...]] = (
    one_pod_from_zero,
    a_pod_reports_how_far_its_node_is,
    eight_pods_from_zero,
    fifty_pods_from_zero,
    a_hundred_pods_for_twenty_nodes,
    time_slices_from_zero,
    mig_instances_from_zero,
    two_two_and_one,
    two_pools_at_once,
    a_node_pool_at_its_limit,
    a_pool_at_its_most_units,
    a_budget_ends,
    warm_units,
    least_units,
)
