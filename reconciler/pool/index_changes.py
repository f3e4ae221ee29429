"""`index.changes`: changes of the device index as sources of pools, nodes and devices.

Every key is published once when a term begins, which covers the changes before it. The loop also sets the
gauges that belong to no single pool, and counts units over time.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

from api.kinds.gpupool import Strategy
from kube.batches import steps
from kube.event_source import EventSource
from pool.index.change_log import Changes
from pool.placement.fragmentation.placement_costs import PlacementCosts
from pool.value_ranking import demand_on, free_capacity
from reconciler.controller_spec import ControllerContext, TaskSpec, Trigger
from reconciler.pool.fragmentation_gauges import FragmentationGauges
from reconciler.pool.gauges import showing_sums
from reconciler.pool.namespace_usage import NamespaceUsage
from reconciler.pool.unit_seconds import UnitSeconds
from reconciler.pool.usage import waiting_pods
from telemetry.metrics import DEVICE_INFO

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from api.clock import Instant
    from api.kinds.gpudevice import GPUDevice
    from api.names import DeviceName, NodeName, PoolName
    from pool.allocation_reader import AllocationReader
    from pool.catalog import Catalog
    from pool.index.device_index import DeviceIndex
    from pool.index.figures import IndexFigures
    from pool.model import PoolFacts

NODES_A_STEP: Final = 500
"""They take a millisecond."""


@final
class NodeValues:
    """Ranks the nodes of pools with strategy LeastFragmentation by their recent demand.

    Tables are derived again when a part of a pool's demand is new, off the event loop: with many sizes that takes tens
    of milliseconds. Until the first ones a pool goes by the free units of its nodes alone.
    """

    def __init__(self, index: "DeviceIndex") -> None:
        self._index = index

    async def refresh(self) -> None:
        """Rank again the nodes of pools whose demand has changed, or the price of capacity for large pods."""
        for pool in self._index.pools():
            if pool.strategy is Strategy.LEAST_FRAGMENTATION:
                await self._refresh(pool)

    async def _refresh(self, pool: "PoolFacts") -> None:
        ranking = self._index.state(pool.name).ranking
        target = demand_on(pool, self._index)
        costs = None if ranking is None else ranking.costs
        is_new = costs is None or costs.target != target
        if costs is None or is_new:
            costs = await asyncio.to_thread(PlacementCosts, pool, target)
        if await self._is_repriced(costs) or is_new:
            self._index.rank(costs)

    async def _is_repriced(self, costs: PlacementCosts) -> bool:
        free, pod_counts = 0, costs.no_capacity()
        nodes = list(self._index.state(costs.pool.name).nodes().values())
        for node in steps(nodes, NODES_A_STEP):
            node_free, node_counts = free_capacity(costs, node)
            free += node_free
            pod_counts = [a + b for a, b in zip(pod_counts, node_counts, strict=True)]
            await asyncio.sleep(0)
        return costs.reprice(free, pod_counts)


@final
class DeviceInfo:
    """Sets `gpu_device_info` of one device at a time: its pool and node, for joins with the series of DCGM."""

    def __init__(
        self, index: "IndexFigures", device_of: "Callable[[DeviceName], GPUDevice | None]"
    ) -> None:
        self._index = index
        self._device_of = device_of

    def update(self, devices: "Iterable[DeviceName]") -> None:
        """Show these devices as they are now; those that are gone have no series."""
        for name in devices:
            values = self._values(name)
            if values is None:
                DEVICE_INFO.discard(name)
            else:
                DEVICE_INFO.put(name, values)

    def _values(self, name: "DeviceName") -> tuple[str, ...] | None:
        entry = self._index.devices.get(name)
        if entry is None or not entry.facts.uuid:
            return None
        facts, device = entry.facts, self._device_of(name)
        product = "" if device is None else device.status.product
        return facts.uuid, name, facts.node, facts.pool or "", product


PERIOD_S: Final = 0.25
NODE_CHECKS: Final = 5
"""Looks for changed nodes in a period: they change seldom, and pods wait for a node that starts."""
DEVICE_DELAY_S: Final = 1.0
"""A pod's reservation, commitment and binding follow each other within this; the device is written once."""
GAUGES_EVERY: Final = 20
"""Periods between two settings of the gauges: 5 s."""
PUBLISHED_A_TURN: Final = 1_000
"""Keys published before other tasks get their turn: a change of a pool is one of all of its devices."""
SERIES_A_TURN: Final = 200
"""Devices whose series are set before other tasks get their turn; they take 2 ms."""


@final
class IndexChangeDispatcher:
    """Publishes the keys that the index's change log gathers."""

    def __init__(
        self,
        index: "DeviceIndex",
        catalog: "Catalog",
        now: "Callable[[], Instant]",
        *,
        reader: "AllocationReader",
        device_of: "Callable[[DeviceName], GPUDevice | None]",
    ) -> None:
        self._index = index
        self._reader = reader
        self._catalog = catalog
        self._now = now
        self.pools: EventSource[PoolName] = EventSource()
        self.nodes: EventSource[NodeName] = EventSource()
        self.devices: EventSource[DeviceName] = EventSource()
        self.waiting: EventSource[PoolName] = EventSource()
        """Pools for which another number of pods waits: of that the index knows nothing."""
        self._waiting: dict[PoolName, int] = {}
        # pool -> the number that was published last
        self._values = NodeValues(index)
        self._useful = FragmentationGauges(index)
        self._unit_seconds = UnitSeconds(index)
        self._usage = NamespaceUsage(index, reader)
        self._device_info = DeviceInfo(index, device_of)
        self.device_delay_s = 0.0
        """Seconds after which a published device is written: none in the initial list."""

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            await self._run()
        finally:
            self._count()
            self._index.changes.leave()

    async def _run(self) -> NoReturn:
        self._index.changes.take()
        everything = Changes(
            frozenset(entry.facts.name for entry in self._index.devices.all()),
            frozenset(self._catalog.pools),
            frozenset(node.name for node in self._index.nodes.values())
            | frozenset(entry.facts.node for entry in self._index.devices.all()),
        )
        self._usage.begin()
        self._unit_seconds.count_changes(self._catalog.pools, self._now().monotonic)
        await self._publish(everything)
        await self._show_devices(everything.devices)
        self.device_delay_s = DEVICE_DELAY_S
        round_ = 0
        while True:
            changes = self._index.changes.take()
            self._unit_seconds.count_changes(self._catalog.pools, self._now().monotonic)
            await self._publish(changes)
            await self._show_devices(changes.devices)
            self._publish_waiting()
            if round_ % GAUGES_EVERY == 0:
                self._count()
                await self._values.refresh()
                await self._set_gauges()
            round_ += 1
            for _ in range(NODE_CHECKS - 1):
                await asyncio.sleep(PERIOD_S / NODE_CHECKS)
                await self._publish_nodes(self._index.changes.take_nodes())
            await asyncio.sleep(PERIOD_S / NODE_CHECKS)

    def _count(self) -> None:
        now = self._now().monotonic
        self._unit_seconds.count(self._catalog.pools, now)
        self._usage.count(now)

    async def _show_devices(self, devices: "Collection[DeviceName]") -> None:
        for device in steps(list(devices), SERIES_A_TURN):
            self._device_info.update(device)
            self._usage.update(device, self._now().monotonic)
            await asyncio.sleep(0)

    async def _set_gauges(self) -> None:
        """Set the gauges that are sums; other tasks get their turn meanwhile."""
        for _ in showing_sums(self._reader, self._catalog, self._now(), index=self._index):
            await asyncio.sleep(0)
        for _ in self._useful.showing(self._catalog):
            await asyncio.sleep(0)

    def _publish_waiting(self) -> None:
        """Compare a number a pool, which costs less than to follow every pod that tries again."""
        before, self._waiting = self._waiting, {}
        for name, pool in self._catalog.pools.items():
            count = self._waiting[name] = waiting_pods(self._reader, self._index, pool)
            if count != before.get(name):
                self.waiting.publish(name)

    async def _publish_nodes(self, changed: "frozenset[NodeName]") -> None:
        for nodes in steps(list(changed), PUBLISHED_A_TURN):
            for node in nodes:
                self.nodes.publish(node)
            await asyncio.sleep(0)

    async def _publish(self, changes: Changes) -> None:
        """Publish pools first: their validity decides about nodes and devices."""
        for pool in changes.pools:
            self.pools.publish(pool)
        await self._publish_nodes(changes.nodes)
        for devices in steps(list(changes.devices), PUBLISHED_A_TURN):
            for device in devices:
                self.devices.publish(device)
            await asyncio.sleep(0)


def index_changes(context: ControllerContext) -> IndexChangeDispatcher:
    return IndexChangeDispatcher(
        context.stores.index,
        context.catalog,
        context.now,
        reader=context.reader,
        device_of=context.stores.devices.get,
    )


SPEC: Final = TaskSpec(
    name="index.changes", build=lambda context: context.shared(index_changes).run
)
WAITING: Final[Trigger[Any]] = Trigger(source=lambda context: context.shared(index_changes).waiting)
NODES: Final[Trigger[Any]] = Trigger(source=lambda context: context.shared(index_changes).nodes)
"""Nodes whose object changed, or on which a pool won or lost a device."""
