"""Gauges of what a pool's free devices are still good for."""

from typing import TYPE_CHECKING, Final, final

from kube.batches import steps
from pool.placement.fragmentation.expected_loss import ExpectedLoss
from pool.placement.fragmentation.recent_demand import unit_milli
from telemetry.metrics import POOL_FRAGMENTATION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api.names import PoolName
    from pool.catalog import Catalog
    from pool.index.device_index import DeviceIndex
    from pool.model import PoolFacts
    from pool.placement.fragmentation.target_workload import TargetWorkload

NODES_A_STEP: Final = 200
"""Of 8 devices each; they take 2 ms."""
_PLENTY_OF_CPU: Final = 2**31
_ANY_MODEL: Final = ""


@final
class UsefulDevices:
    """Sets the gauges of all pools."""

    def __init__(self, index: "DeviceIndex") -> None:
        self._index = index
        self._losses: dict[PoolName, tuple[TargetWorkload, ExpectedLoss]] = {}
        # pool -> its demand, and what was derived from it

    def showing(self, catalog: "Catalog") -> "Iterator[None]":
        """Set them pool by pool, in steps of a few milliseconds."""
        for gone in self._losses.keys() - catalog.pools.keys():
            del self._losses[gone]
        for name in list(catalog.pools):
            facts = self._index.pool(name)
            if facts is not None:
                yield from self._showing_fragmentation(facts)

    def _showing_fragmentation(self, pool: "PoolFacts") -> "Iterator[None]":
        loss = self._loss(pool)
        free = lost = 0.0
        unit = unit_milli(pool)
        state = self._index.state(pool.name)
        for some in steps(list(state.nodes().items()), NODES_A_STEP):
            for name, node in some:
                if node.is_placeable and node.is_open and node.free:
                    entries = self._index.devices_on(pool.name, name)
                    rests = tuple(unit * entry.free.bit_count() for entry in entries)
                    free += sum(rests)
                    cpu = self._index.free_cpu(name)
                    lost += loss.of(_ANY_MODEL, _PLENTY_OF_CPU if cpu is None else cpu, rests)
            yield
        POOL_FRAGMENTATION.labels(pool.name).set(lost / free if free else 0.0)

    def _loss(self, pool: "PoolFacts") -> ExpectedLoss:
        target = self._index.demands.of(pool)
        known = self._losses.get(pool.name)
        if known is None or known[0] is not target:
            known = self._losses[pool.name] = target, ExpectedLoss(target)
        return known[1]
