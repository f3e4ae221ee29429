"""Objects of nodes that are gone go with them; those of nodes that exist are left alone."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from api.kinds.gkmcache import CacheConditionType
from api.kinds.gkmcachenode import CachedDigest, GKMCacheNode
from api.names import NodeName
from kube.errors import UnexpectedStatus
from kube.resources import GKM_CACHE_NODES, NODES
from tests.component.reconciler.cache_world import LEADER, LLAMA, CacheWorld, a_cache_world
from tests.support.kernel_caches import D1, a_digest

pytestmark = pytest.mark.looptime

RUNNING: dict[str, dict[str, CachedDigest]] = {
    "llama": {D1: a_digest(CacheConditionType.RUNNING, pods=1)}
}


@pytest.fixture
async def world() -> AsyncIterator[CacheWorld]:
    async with a_cache_world() as found:
        await found.add_node("a")
        await found.add_node("b")
        await found.add_cache(digest=D1)
        await found.report("a", RUNNING)
        await found.report("b", RUNNING)
        await found.report("b", {"shared": {D1: a_digest()}}, namespace="")
        await found.until_stable()
        yield found


async def test_a_node_that_is_gone_takes_its_objects_along(world: CacheWorld):
    """G1."""
    await world.remove_node("b")
    await world.until_stable()
    assert await world.node_objects() == ["team/a"]
    counts = (await world.cache()).status.counts
    assert (counts.nodes, counts.pods_running) == (1, 1)
    assert world.process.stores.kernel_caches.warm_nodes(LLAMA) == {NodeName("a")}


async def test_a_cache_that_only_a_gone_node_had_can_be_deleted(world: CacheWorld):
    await world.report("a", {})
    await world.delete()
    await world.until_stable()
    assert await world.is_there()
    await world.remove_node("b")
    await world.until_stable()
    assert not await world.is_there()


async def test_a_node_that_the_watch_has_not_shown_yet_keeps_its_objects(world: CacheWorld):
    """Its agent writes as soon as it starts, and the two watches are not in step."""
    await world.observe()
    world.process.stores.node_sink.replace_all([])
    world.api.requests.clear()
    assert await world.process.cleanup.reconcile(NodeName("b")) is None
    assert not world.api.requests.writes(user=LEADER)
    assert any(request.path.endswith("/nodes/b") for request in world.api.requests)


async def test_a_404_that_names_no_node_removes_nothing(world: CacheWorld):
    """A proxy answers so."""
    await world.observe()
    world.process.stores.node_sink.replace_all([])
    world.api.faults.fail("GET", "/nodes/b$", 404)
    world.api.requests.clear()
    with pytest.raises(UnexpectedStatus):
        await world.process.cleanup.reconcile(NodeName("b"))
    assert not world.api.requests.writes(user=LEADER)


async def test_an_object_that_came_again_meanwhile_is_left_alone(world: CacheWorld):
    """Judged by its uid: another object of the name is another agent's."""
    await world.observe()
    await world.remove_node("b")
    await world.forget_node_object("b")
    await world.report("b", RUNNING)
    world.process.stores.node_sink.replace_all([])
    assert await world.process.cleanup.reconcile(NodeName("b")) is not None
    assert "team/b" in await world.node_objects()


async def test_finalizers_of_others_are_waited_for_without_a_write(world: CacheWorld):
    theirs = "example.com/theirs"
    await world.report("b", RUNNING, finalizers=["gkm.io.llama/finalizer", theirs])
    await world.remove_node("b")
    await world.until_stable()
    left = await world.admin.get(GKM_CACHE_NODES, GKMCacheNode, "b", namespace="team")
    assert left.metadata.finalizers == [theirs]
    assert left.metadata.deletion_timestamp is not None
    world.api.requests.clear()
    assert await world.process.cleanup.reconcile(NodeName("b")) is None
    assert not world.api.requests.writes()


async def test_a_node_that_exists_costs_no_request(world: CacheWorld):
    await world.observe()
    world.api.requests.clear()
    for name in ("a", "b"):
        assert await world.process.cleanup.reconcile(NodeName(name)) is None
    assert len(world.api.requests) == 0
    assert await world.admin.get(NODES, dict[str, Any], "a")
