"""Gauges of what a pool's free devices are still good for."""

import functools
from collections import Counter
from typing import TYPE_CHECKING, Final, final

from kube.batches import steps
from pool.fitting_pods import SIZES, FittingPods
from pool.placement.aligned_sets import largest_aligned
from pool.placement.device_sets import best_set
from pool.placement.fragmentation.expected_loss import ExpectedLoss
from pool.placement.fragmentation.recent_demand import unit_milli
from telemetry import metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api.names import NodeName, PoolName
    from pool.catalog import Catalog
    from pool.index.figures import IndexFigures
    from pool.model import PoolFacts
    from pool.placement.fragmentation.target_workload import TargetWorkload
    from pool.placement.topology import Topology

NODES_A_STEP: Final = 200
"""Nodes of 8 devices each; they take 2 ms."""
ANY, ALIGNED = "any", "aligned"
"""Values of the label `topology`."""
_PLENTY_OF_CPU: Final = 2**31
_ANY_MODEL: Final = ""


@final
class FragmentationGauges:
    """Sets the gauges of all pools."""

    def __init__(self, index: "IndexFigures") -> None:
        self._index = index
        self._losses: dict[PoolName, tuple[TargetWorkload, ExpectedLoss]] = {}
        # pool -> its demand, and what was derived from it
        self._fitting: dict[PoolName, FittingPods] = {}

    def showing(self, catalog: "Catalog") -> "Iterator[None]":
        """Set them pool by pool, in steps of a few milliseconds."""
        for gone in self._losses.keys() - catalog.pools.keys():
            del self._losses[gone]
        for gone in self._fitting.keys() - catalog.pools.keys():
            del self._fitting[gone]
        for name in list(catalog.pools):
            facts = self._index.pool(name)
            if facts is not None:
                yield from self._showing_pool(facts)

    def _showing_pool(self, pool: "PoolFacts") -> "Iterator[None]":
        loss, unit, state = self._loss(pool), unit_milli(pool), self._index.state(pool.name)
        free = lost = 0.0
        pods: Counter[tuple[int, str]] = Counter()
        largest = {ANY: 0, ALIGNED: 0}
        for item in steps(list(state.nodes().items()), NODES_A_STEP):
            for name, node in item:
                if not node.is_reservable or not node.free:
                    continue
                entries = self._index.devices_on(pool.name, name)
                remaining = tuple(unit * entry.free.bit_count() for entry in entries)
                cpu, _ = self._index.free_cpu_and_memory(name)
                free += sum(remaining)
                lost += loss.of(_ANY_MODEL, _PLENTY_OF_CPU if cpu is None else cpu, remaining)
                idle = sum(
                    1 << position
                    for position, entry in enumerate(entries)
                    if entry.free and entry.free == entry.layout.full
                )
                self._count(pool.name, name, idle, pods=pods, largest=largest)
            yield
        fitting = self._fitting.setdefault(pool.name, FittingPods(self._index, pool.name))
        yield from fitting.count_in_steps(NODES_A_STEP)
        fits = fitting.counts()
        metrics.POOL_FRAGMENTATION.labels(pool.name).set(lost / free if free else 0.0)
        for size in SIZES:
            metrics.POOL_FITTING_PODS.labels(pool.name, str(size)).set(fits[size])
            for topology in (ANY, ALIGNED):
                count = pods[size, topology]
                metrics.POOL_PLACEABLE_PODS.labels(pool.name, str(size), topology).set(count)
        for topology, size in largest.items():
            metrics.POOL_LARGEST_DEMAND.labels(pool.name, topology).set(size)

    def _count(
        self,
        pool: "PoolName",
        node: "NodeName",
        idle: int,
        *,
        pods: "Counter[tuple[int, str]]",
        largest: dict[str, int],
    ) -> None:
        """Count the pods for which a node has idle devices."""
        if not idle:
            return
        topology = self._index.device_rules(pool, node).topology
        for size, count in zip(SIZES, _aligned_pods(topology, idle), strict=True):
            pods[size, ANY] += idle.bit_count() // size
            pods[size, ALIGNED] += count
        largest[ANY] = max(largest[ANY], idle.bit_count())
        largest[ALIGNED] = max(largest[ALIGNED], largest_aligned(topology, idle))

    def _loss(self, pool: "PoolFacts") -> ExpectedLoss:
        target = self._index.demands.of(pool)
        cached = self._losses.get(pool.name)
        if cached is None or cached[0] is not target:
            cached = self._losses[pool.name] = target, ExpectedLoss(target)
        return cached[1]


@functools.lru_cache(maxsize=4096)
def _aligned_pods(topology: "Topology", idle: int) -> tuple[int, ...]:
    """Return how many disjoint aligned sets of each size there are, as placement would choose them."""
    counts = []
    for size in SIZES:
        left, count = idle, 0
        while (found := best_set(topology, left, size, aligned_only=True)) is not None:
            left &= ~found
            count += 1
        counts.append(count)
    return tuple(counts)
