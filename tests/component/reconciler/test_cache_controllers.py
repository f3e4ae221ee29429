"""The controllers of kernel caches as a leader runs them: informers, queues and triggers, in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from api.cache_name import CacheName
from api.foreign.core import Node
from api.kinds.gkmcache import CacheConditionType
from api.kinds.gpudevice import GPUDevice
from kube.informer import Informer
from kube.resources import GPU_DEVICES, NODES
from pool.facts import node_facts
from reconciler.informer_stores import InformerStores
from reconciler.kernelcache import cache_node_cleanup, cache_status
from reconciler.kernelcache.cache_gauges import forget_kernel_caches
from reconciler.pool import index_changes
from reconciler.sinks.device import observe_device
from server.controllers.manager import ControllerManager
from server.informers import build_cache_informers
from telemetry.metrics import REGISTRY
from tests.component.reconciler.cache_world import LEADER, LLAMA, CacheWorld, a_cache_world
from tests.support.controllers import a_context
from tests.support.kernel_caches import D1, D2, a_digest
from tests.support.loop_clock import ServerClock
from tests.support.recorded_events import RecordedEvents

pytestmark = pytest.mark.looptime

SPECS = (index_changes.SPEC, cache_status.SPEC, cache_node_cleanup.SPEC)
TEN_MINUTES_S = 600.0
WITHIN_S = 120.0
"""Virtual: several times what is gathered."""


@dataclass
class Replica:
    """A server that follows the world, and leads while `term` runs."""

    world: CacheWorld
    stores: InformerStores
    group: asyncio.TaskGroup
    term: asyncio.Task[None] | None = None

    async def follow(self) -> None:
        client, clock = self.world.client, ServerClock()
        informers: list[Informer[Any]] = [
            Informer(
                client, NODES, Node, sink=self.stores.node_sink, clock=clock, project=node_facts
            ),
            Informer(
                client,
                GPU_DEVICES,
                GPUDevice,
                sink=self.stores.device_sink,
                clock=clock,
                project=observe_device,
            ),
            *build_cache_informers(self.stores, client, clock=clock).values(),
        ]
        self.tasks = [self.group.create_task(item.run()) for item in informers]
        for informer in informers:
            await informer.synced.wait()

    def lead(self) -> None:
        self.term = self.group.create_task(self._lead())

    async def _lead(self) -> None:
        context = a_context(
            stores=self.stores,
            client=self.world.client,
            recorder=RecordedEvents(),
            clock=ServerClock(),
            cache_proof=self.world.proof,
        )
        async with context.ending, asyncio.TaskGroup() as group:
            await ControllerManager(context, SPECS).start(group)

    async def stop_leading(self) -> None:
        assert self.term is not None
        self.term.cancel()
        await asyncio.wait([self.term])
        forget_kernel_caches()


@asynccontextmanager
async def a_leader(world: CacheWorld) -> AsyncIterator[Replica]:
    async with asyncio.TaskGroup() as group:
        replica = Replica(world, world.process.stores, group)
        await replica.follow()
        replica.lead()
        yield replica
        await replica.stop_leading()
        for task in replica.tasks:
            task.cancel()


@pytest.fixture
async def world() -> AsyncIterator[CacheWorld]:
    async with a_cache_world() as found:
        yield found


async def until_true(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not await holds():  # noqa: ASYNC110  # virtual time
            await asyncio.sleep(0.5)


async def shows(world: CacheWorld, *, name: CacheName = LLAMA, **counts: int) -> None:
    async def holds() -> bool:
        found = (await world.cache(name)).status.counts
        return all(getattr(found, key) == value for key, value in counts.items())

    await until_true(holds)


async def is_resolved(world: CacheWorld, name: CacheName = LLAMA) -> None:
    async def holds() -> bool:
        return bool((await world.cache(name)).status.resolved_digest)

    await until_true(holds)


def gauge(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(f"gpu_kernel_cache_{name}", labels)


async def test_a_burst_of_node_objects_costs_one_write_of_a_cache(world: CacheWorld):
    for number in range(40):
        await world.add_node(f"n{number}")
    await world.add_cache(digest=D1)
    async with a_leader(world):
        await is_resolved(world)
        # The devices of new nodes are gathered, too.
        await asyncio.sleep(2 * cache_status.MAX_GATHER_S)
        world.api.requests.clear()
        for number in range(40):
            await world.report(f"n{number}", {"llama": {D1: a_digest()}})
        await shows(world, nodes=40, nodes_not_in_use=40)
        assert len(world.api.requests.writes(user=LEADER)) <= 2


async def test_a_quiet_cluster_costs_no_write_in_ten_minutes(world: CacheWorld):
    await world.add_node("a")
    await world.add_cache(digest=D1, warm=1)
    await world.report("a", {"llama": {D1: a_digest(CacheConditionType.RUNNING, pods=3)}})
    async with a_leader(world):
        await shows(world, pods_running=3)
        await asyncio.sleep(2 * cache_status.MAX_GATHER_S)
        world.api.requests.clear()
        await asyncio.sleep(TEN_MINUTES_S)
        assert not world.api.requests.writes(user=LEADER)


async def test_a_new_leader_continues_and_writes_nothing_that_is_right(world: CacheWorld):
    await world.add_node("a")
    await world.add_cache(digest=D1)
    async with a_leader(world) as replica:
        await is_resolved(world)
        await asyncio.sleep(2 * cache_status.MAX_GATHER_S)
        await replica.stop_leading()
        await world.report("a", {"llama": {D1: a_digest()}})
        await asyncio.sleep(2 * cache_status.MAX_GATHER_S)
        world.api.requests.clear()
        replica.lead()
        await shows(world, nodes_not_in_use=1)
        await asyncio.sleep(2 * cache_status.MAX_GATHER_S)
        assert len(world.api.requests.writes(user=LEADER)) == 1


async def test_devices_that_come_later_are_seen(world: CacheWorld):
    await world.add_cache(digest=D1)
    async with a_leader(world):
        await is_resolved(world)
        await world.add_node("a", devices=2)

        async def has_pools() -> bool:
            return [pool.nodes for pool in (await world.cache()).status.pools or ()] == [1]

        await until_true(has_pools)


async def test_a_cache_goes_with_the_last_node_that_is_gone(world: CacheWorld):
    await world.add_node("a")
    await world.add_cache(digest=D1)
    await world.report("a", {"llama": {D1: a_digest()}})
    async with a_leader(world):
        await shows(world, nodes=1)
        await world.delete()
        await asyncio.sleep(2 * cache_status.MAX_GATHER_S)
        assert await world.is_there()
        await world.remove_node("a")

        async def is_gone() -> bool:
            return not await world.is_there()

        await until_true(is_gone)


async def test_gauges_say_what_the_caches_do_and_since_when_one_is_outdated(world: CacheWorld):
    await world.add_node("a")
    await world.add_cache(digest=D1)
    running, outdated = CacheConditionType.RUNNING, CacheConditionType.OUTDATED
    await world.report("a", {"llama": {D1: a_digest(running, pods=3)}})
    async with a_leader(world) as replica:
        await shows(world, pods_running=3)
        assert (gauge("caches", state="Running"), gauge("caches", state="Pending")) == (1, 0)
        assert (gauge("cluster_pods", state="running"), gauge("cluster_nodes", state="in_use")) == (
            3,
            1,
        )
        assert gauge("outdated_since_seconds", cache=str(LLAMA)) is None
        await world.change_image(image="registry.example/llama:2", digest=D2)
        await world.report("a", {"llama": {D1: a_digest(outdated, pods=3)}})

        async def is_outdated() -> bool:
            (current,) = (await world.cache()).status.conditions or []
            return current.type == "Outdated"

        await until_true(is_outdated)
        since = gauge("outdated_since_seconds", cache=str(LLAMA))
        assert since is not None
        assert abs(since - ServerClock().utc_now().timestamp()) < WITHIN_S
        await asyncio.sleep(TEN_MINUTES_S)
        # An error that hides the condition does not begin the time again.
        error = a_digest(CacheConditionType.ERROR)
        await world.report("a", {"llama": {D1: a_digest(outdated, pods=3), D2: error}})
        await shows(world, nodes_in_error=1)
        assert gauge("outdated_since_seconds", cache=str(LLAMA)) == since
        await world.report("a", {"llama": {D2: a_digest()}})
        await shows(world, pods_outdated=0)
        assert gauge("outdated_since_seconds", cache=str(LLAMA)) is None
        await replica.stop_leading()
        assert gauge("caches", state="Extracted") == 0
        replica.lead()
