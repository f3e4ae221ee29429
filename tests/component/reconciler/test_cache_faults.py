"""Every request of the cache controllers fails once, in every way; the leader may change at that moment.

The end is the same as without the fault: status by what nodes report, finalizers, and nothing left over.
"""

import re
from collections.abc import Callable

import pytest

from api.cache_name import CacheName
from api.kinds.gkmcache import CacheConditionType
from api.names import CACHE_FINALIZER
from simulator.apiserver.injection import Breakage, ErrorInjection, InjectedError
from tests.component.reconciler import cache_world
from tests.support.kernel_caches import D1, D2, a_digest

pytestmark = pytest.mark.looptime

Break = Callable[[ErrorInjection, int], InjectedError]

STATUSES = (403, 409, 422, 429, 500)
QWEN = CacheName(namespace="team", name="qwen")


def broken(breakage: Breakage, status: int = 500) -> Break:
    return lambda faults, nth: faults.add(
        InjectedError(breakage, "", re.compile(""), user=cache_world.LEADER, nth=nth, status=status)
    )


BREAKS: dict[str, Break] = {
    **{str(status): broken(Breakage.STATUS, status) for status in STATUSES},
    "reset before": broken(Breakage.RESET_BEFORE),
    "reset after": broken(Breakage.RESET_AFTER),
}


async def lives(world: cache_world.CacheWorld) -> None:
    """A cache is made, used, changed and signed again; a second one goes; a node goes with its object."""
    await world.add_node("a")
    await world.add_node("gone")
    await world.add_cache(digest=D1)
    await world.add_cache(QWEN, digest=D1)
    running = a_digest(CacheConditionType.RUNNING, pods=1)
    for node in ("a", "gone"):
        await world.report(node, {"llama": {D1: running}, "qwen": {D1: running}})
    await world.until_stable()
    await world.change_image(image="registry.example/llama:2", digest=D2)
    await world.until_stable()
    await world.remove_node("gone")
    await world.delete(QWEN)
    await world.until_stable()
    await world.report("a", {"llama": {D1: a_digest(CacheConditionType.OUTDATED, pods=1)}})
    world.admission_keys = world.proof.keys = cache_world.NEXT_KEYS
    await world.until_stable()


async def ends_well(world: cache_world.CacheWorld) -> None:
    world.api.faults.clear()
    for _ in range(3):
        # Longer than anything waits: for an admission that refused, and for writes that were not seen.
        world.time.seconds += 400
        await world.until_stable()
    cache = await world.cache()
    (current,) = cache.status.conditions or []
    counts = cache.status.counts
    assert (cache.status.resolved_digest, current.type) == (D2, "Outdated")
    assert (counts.nodes, counts.pods_outdated, counts.pods_running) == (1, 1, 0)
    assert cache.metadata.finalizers == [CACHE_FINALIZER]
    assert not await world.is_there(QWEN)
    assert await world.node_objects() == ["team/a"]
    assert world.process.stores.kernel_caches.resolved().keys() == {cache_world.LLAMA}


async def fails_at(nth: int, way: str, *, changes_leader: bool) -> bool:
    """Let the nth request fail; return False where there are not so many."""
    async with cache_world.a_cache_world() as world:
        rule = BREAKS[way](world.api.faults, nth)

        async def hit() -> None:
            if changes_leader and rule.seen >= nth and world.terms == 1:
                await world.change_leader()

        world.after_step = hit
        await lives(world)
        was_hit = rule.seen >= nth
        await ends_well(world)
    return was_hit


@pytest.mark.parametrize("way", BREAKS)
async def test_a_failure_of_any_request_changes_nothing_in_the_end(way: str):
    failed = 0
    while await fails_at(failed + 1, way, changes_leader=False):
        failed += 1
    assert failed >= 10


@pytest.mark.parametrize("way", ["500", "reset before", "reset after"])
async def test_a_leader_that_ends_at_any_request_leaves_the_next_one_nothing_to_repair(way: str):
    failed = 0
    while await fails_at(failed + 1, way, changes_leader=True):
        failed += 1
    assert failed >= 10
