"""The change pump: what changed reaches the controllers, and sums reach their gauges."""

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from api.kinds.gpupool import GPUPool
from api.meta import ObjectMeta
from api.names import PoolName, ReservationId
from pool.catalog import Catalog
from reconciler.pool.index_changes import (
    DEVICE_DELAY_S,
    GAUGES_EVERY,
    NODE_CHECKS,
    PERIOD_S,
    IndexChangeDispatcher,
)
from reconciler.runtime.controller import Controller
from telemetry.metrics import REGISTRY
from tests.support.allocation_state import (
    a_reserved_pod,
    reserve,
    some_allocation_state,
    some_devices,
)
from tests.support.builders import a_demand, a_device, a_node, a_pod_facts, a_pool, at
from tests.support.loop_clock import LoopClock

if TYPE_CHECKING:
    from api.clock import Instant

pytestmark = pytest.mark.looptime


class Setup:
    """An allocation state with two devices, and controllers that note what they are given and when."""

    def __init__(self) -> None:
        self.allocation_state = some_allocation_state(
            a_pool(), devices=some_devices(2), nodes=("n1",)
        )
        self.catalog = Catalog()
        self.catalog.pools[PoolName("whole")] = GPUPool(metadata=ObjectMeta(name="whole"))
        kinds = ("pools", "waiting", "devices", "nodes")
        self.seen: dict[str, list[tuple[float, str]]] = {kind: [] for kind in kinds}
        self.controllers = {kind: self.controller(kind) for kind in self.seen}
        self.pump = IndexChangeDispatcher(
            self.allocation_state.index,
            self.catalog,
            self.now,
            reader=self.allocation_state.reader,
            device_of=lambda _: None,
        )
        self.pump.pools.subscribe(self.controllers["pools"].enqueue)
        self.pump.waiting.subscribe(self.controllers["waiting"].enqueue)
        self.pump.nodes.subscribe(self.controllers["nodes"].enqueue)
        self.pump.devices.subscribe(
            lambda device: self.controllers["devices"].enqueue(
                device, delay_s=self.pump.device_delay_s
            )
        )

    def controller(self, kind: str) -> Controller[str]:
        async def note(key: str) -> None:
            self.seen[kind].append((asyncio.get_running_loop().time(), key))

        return Controller(f"test.changes-{kind}", note, LoopClock())

    def now(self) -> "Instant":
        return at(asyncio.get_running_loop().time())

    async def run(self, *steps: tuple[float, Any], until: float) -> None:
        """Run the pump, and each step at its time."""
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(controller.run()) for controller in self.controllers.values()
            ]
            tasks.append(group.create_task(self.pump.run()))
            for when, step in steps:
                await asyncio.sleep(when - asyncio.get_running_loop().time())
                step()
            await asyncio.sleep(until - asyncio.get_running_loop().time())
            for task in tasks:
                task.cancel()

    def keys(self, kind: str, *, since: float = 0) -> list[str]:
        return sorted(key for when, key in self.seen[kind] if when >= since)


def sample(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, labels)


async def test_everything_is_looked_at_once_at_the_start():
    setup = Setup()
    await setup.run(until=5)
    assert setup.keys("pools") == ["whole"]
    assert setup.keys("devices") == ["n1-0", "n1-1"]
    assert setup.keys("nodes") == ["n1"]


async def test_everything_is_looked_at_though_somebody_took_the_changes_before():
    setup = Setup()
    setup.allocation_state.index.changes.take()
    await setup.run(until=5)
    assert setup.keys("pools") == ["whole"]
    assert setup.keys("devices") == ["n1-0", "n1-1"]


async def test_without_changes_nothing_is_looked_at_again():
    """Lesson 11."""
    setup = Setup()
    await setup.run(until=60)
    assert [len(seen) for seen in setup.seen.values()] == [1, 1, 2, 1]


async def test_a_reservation_reaches_its_pool_soon_and_its_device_once_the_burst_is_over():
    setup = Setup()
    await setup.run((10.1, lambda: reserve(setup.allocation_state, a_demand(1))), until=20)
    (pool,) = [when for when, _ in setup.seen["pools"] if when > 10]
    (device,) = [when for when, _ in setup.seen["devices"] if when > 10]
    assert pool - 10.1 <= PERIOD_S
    assert DEVICE_DELAY_S <= device - 10.1 <= DEVICE_DELAY_S + PERIOD_S


async def test_changes_that_follow_each_other_look_at_the_device_once():
    setup = Setup()

    def reserve_units() -> None:
        reserve(setup.allocation_state, a_demand(1))

    def withdraw() -> None:
        setup.allocation_state.withdraw(ReservationId("r"))

    await setup.run((10.1, reserve_units), (10.4, withdraw), (10.7, reserve_units), until=20)
    assert setup.keys("devices", since=10) == ["n1-0"]


async def test_a_pool_is_looked_at_when_another_number_of_pods_waits_for_it():
    setup = Setup()
    pod = a_pod_facts()

    def appear() -> None:
        setup.allocation_state.observe_pod(pod, at(10))

    def go() -> None:
        setup.allocation_state.discard_pod(pod.uid)

    await setup.run((10.1, appear), (15, appear), (20.1, go), until=60)
    appeared, went = [when for when, _ in setup.seen["waiting"] if when > 1]
    assert appeared - 10.1 <= PERIOD_S
    assert went - 20.1 <= PERIOD_S
    assert setup.keys("pools", since=1) == []


async def test_a_device_that_moves_reaches_both_nodes():
    setup = Setup()

    def move() -> None:
        setup.allocation_state.index.replace_node(a_node("n2"))
        setup.allocation_state.index.replace_device(a_device("n2", 0, name="n1-0"))

    await setup.run((10, move), until=20)
    assert setup.keys("nodes", since=10) == ["n1", "n2"]


async def test_a_node_is_looked_at_soon():
    setup = Setup()

    def change() -> None:
        setup.allocation_state.index.replace_node(a_node("n2"))

    await setup.run((10.01, change), until=20)
    (node,) = [when for when, _ in setup.seen["nodes"] if when > 10]
    assert node - 10.01 <= PERIOD_S / NODE_CHECKS


async def test_a_pool_that_is_gone_is_looked_at_once_more():
    setup = Setup()

    def drop() -> None:
        del setup.catalog.pools[PoolName("whole")]
        setup.allocation_state.index.discard_pool(PoolName("whole"))

    await setup.run((10, drop), until=20)
    assert setup.keys("pools", since=10) == ["whole"]
    assert setup.keys("nodes", since=10) == ["n1"]


async def test_the_gauges_count_reserved_and_unassigned_devices_and_the_age_of_the_oldest_reservation():
    setup = Setup()
    setup.allocation_state.index.replace_device(a_device("n1", 7, pool=None))
    a_reserved_pod(setup.allocation_state)
    period = GAUGES_EVERY * PERIOD_S
    await setup.run(until=2 * period + 0.1)
    assert sample("gpu_device_reserved_total", pool="whole") == 1
    assert sample("gpu_device_unassigned_total") == 1
    assert sample("gpu_device_reservation_age_seconds", pool="whole") == pytest.approx(2 * period)
    assert sample("gpu_index_generation") == setup.allocation_state.index.generation


async def test_the_gauges_fall_to_zero_when_nothing_is_reserved_any_more():
    setup = Setup()
    reservation = reserve(setup.allocation_state, a_demand(1))
    await setup.run((1, lambda: setup.allocation_state.withdraw(reservation.id)), until=6)
    assert sample("gpu_device_reserved_total", pool="whole") == 0
    assert sample("gpu_device_reservation_age_seconds", pool="whole") == 0


async def test_a_pool_that_is_gone_gets_no_gauges_though_its_devices_are_still_there():
    setup = Setup()
    setup.allocation_state.index.replace_device(a_device("n1", 8, pool="gone"))
    await setup.run(until=6)
    names = ("gpu_device_reserved_total", "gpu_device_reservation_age_seconds")
    assert [sample(name, pool="gone") for name in names] == [None, None]
