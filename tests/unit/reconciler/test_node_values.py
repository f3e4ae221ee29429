"""Nodes are ranked by the demand on their pool, and again when that has changed."""

from api.kinds.gpupool import Strategy
from api.names import UnitId
from pool.allocation_state import AllocationState
from pool.placement.fragmentation.placement_costs import PlacementCosts
from reconciler.pool.index_changes import NodeValues
from tests.support.allocation_state import a_bound_pod, some_allocation_state, some_devices
from tests.support.builders import a_pod_facts, a_pool, at

PACKED = a_pool("packed", strategy=Strategy.BIN_PACK)


def observe(allocation_state: AllocationState, count: int, units: int, *, name: str) -> None:
    for number in range(count):
        pod = a_pod_facts(f"{name}{number}", units, created="2026-01-01T00:00:00Z")
        allocation_state.observe_pod(pod, at(0))


async def ranked(allocation_state: AllocationState, values: NodeValues) -> PlacementCosts:
    await values.refresh()
    ranking = allocation_state.index.state(a_pool().name).ranking
    assert ranking is not None
    return ranking.costs


async def test_nodes_are_ranked_again_when_much_of_the_demand_is_new():
    allocation_state = some_allocation_state(a_pool(), PACKED, devices=some_devices(8))
    values = NodeValues(allocation_state.index)
    usual = await ranked(allocation_state, values)
    assert {shape.devices for shape, _ in usual.target.shapes} == {1, 2, 4, 8}
    assert await ranked(allocation_state, values) is usual
    assert allocation_state.index.state(PACKED.name).ranking is None

    observe(allocation_state, 100, 2, name="pair")
    pairs = await ranked(allocation_state, values)
    assert {shape.devices for shape, _ in pairs.target.shapes} == {2}
    observe(allocation_state, 1, 8, name="large")
    assert await ranked(allocation_state, values) is pairs
    observe(allocation_state, 30, 4, name="four")
    mixed = await ranked(allocation_state, values)
    assert {shape.devices for shape, _ in mixed.target.shapes} == {2, 4, 8}


async def test_a_pool_that_changed_is_ranked_again():
    allocation_state = some_allocation_state(a_pool(), devices=some_devices(8))
    values = NodeValues(allocation_state.index)
    before = await ranked(allocation_state, values)
    allocation_state.index.replace_pool(a_pool(ttl_s=60))
    assert (await ranked(allocation_state, values)).pool != before.pool


async def test_nodes_are_ranked_again_when_room_for_large_pods_becomes_scarce():
    allocation_state = some_allocation_state(
        a_pool(), devices=[*some_devices(8), *some_devices(8, "n2")]
    )
    observe(allocation_state, 8, 1, name="one")
    observe(allocation_state, 8, 8, name="eight")
    values = NodeValues(allocation_state.index)
    costs = await ranked(allocation_state, values)
    state = allocation_state.index.state(a_pool().name)
    ranking = state.ranking
    await values.refresh()
    assert state.ranking is ranking
    for node in ("n1", "n2"):
        pod = a_bound_pod(f"on-{node}", UnitId(f"GPU-{node}-0"), node=node)
        allocation_state.observe_pod(pod, at(0))
    await values.refresh()
    assert state.ranking is not ranking
    assert (await ranked(allocation_state, values)) is costs
