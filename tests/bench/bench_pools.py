"""What pools run: the start, the steady state, and one device that changes, by the number of pools.

Correct: as many objects as the mode has, a write for each of them, none when all is looked at again, and
one for a device that changed where its pool has a list.
"""

import asyncio
import logging
import time
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Self

import structlog

from api.foreign.workload_kinds import ConfigMap, DaemonSet
from api.kinds.gpudevice import GPUDevice
from api.kinds.gpupool import GPUPool
from api.names import DeviceName, NodeName, PoolName
from kube.client import KubeClient
from kube.config.connection import StaticConnection
from kube.event_recorder import EventRecorder
from kube.informer import Informer
from kube.resources import CONFIG_MAPS, DAEMON_SETS, GPU_DEVICES, GPU_POOLS
from manifests import constants
from manifests.node.device_plugin import PluginMode, WorkloadSettings
from pool.catalog import Catalog
from pool.index.device_index import DeviceIndex
from reconciler.pool.plugin_config import NodePluginConfigs, PluginConfigFacts
from reconciler.pool.workloads import PoolWorkloads
from reconciler.runtime.controller import Controller
from reconciler.sinks.device_sink import DeviceSink, observe_device
from reconciler.sinks.live_workloads import ALL_POOLS, live_workloads, selection
from reconciler.sinks.pool_sink import PoolSink
from server.system_clock import SystemClock
from tests.bench.processes import api_server
from tests.bench.report import Result, at_most, checked
from tests.bench.sizes import ClusterSize
from tests.bench.world import DEVICES, node_name
from tests.support import polling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from tests.bench.sizes import Sizes

PATIENCE_S = 120.0


class Fleet:
    """What the server runs of the pools' workloads; an async context manager."""

    def __init__(self, url: str, mode: PluginMode) -> None:
        self._clock = clock = SystemClock()
        self.client = client = KubeClient(StaticConnection(url), clock)
        self._settings = WorkloadSettings(image="gpu-control-plane:1.0", mode=mode)
        self.catalog = Catalog()
        index = DeviceIndex()
        self.devices = DeviceSink(index)
        self.config_maps = live_workloads(ConfigMap)
        self.daemon_sets = live_workloads(DaemonSet)
        self.exported = exported = PluginConfigFacts(self.devices.store, self.catalog)
        recorder = EventRecorder(
            client, clock, reporting_controller="bench", reporting_instance="bench"
        )
        workloads = PoolWorkloads(
            client,
            self.catalog,
            exported,
            config_maps=self.config_maps,
            daemon_sets=self.daemon_sets,
            settings=self._settings,
            recorder=recorder,
            now=clock.instant,
        )
        self.pools: Controller[PoolName] = Controller("pool.workloads", workloads.reconcile, clock)
        self.nodes: Controller[NodeName] = Controller(
            "node.exports",
            NodePluginConfigs(exported).reconcile,
            clock,
        )
        ours = selection(constants.DEFAULT_NAMESPACE)
        self._informers: list[Informer[Any]] = [
            Informer(client, GPU_POOLS, GPUPool, sink=PoolSink(index, self.catalog), clock=clock),
            Informer(
                client,
                GPU_DEVICES,
                GPUDevice,
                sink=self.devices,
                clock=clock,
                project=observe_device,
            ),
            Informer(
                client, CONFIG_MAPS, ConfigMap, sink=self.config_maps, clock=clock, selection=ours
            ),
            Informer(
                client, DAEMON_SETS, DaemonSet, sink=self.daemon_sets, clock=clock, selection=ours
            ),
        ]
        exported.changes.subscribe(
            lambda pool: self.pools.enqueue(pool, delay_s=exported.coalesce_s(pool))
        )
        self._stack = AsyncExitStack()
        self._tasks: list[asyncio.Task[Any]] = []

    async def __aenter__(self) -> Self:
        """Follow the cluster; nothing is reconciled yet."""
        await self._stack.enter_async_context(self.client)
        group = await self._stack.enter_async_context(asyncio.TaskGroup())
        self._tasks = [group.create_task(one.run()) for one in self._informers]
        async with asyncio.timeout(PATIENCE_S):
            for informer in self._informers:
                await informer.synced.wait()
        for live in (self.config_maps, self.daemon_sets):
            told = live.changes.subscribed(lambda pool: self.pools.enqueue(PoolName(pool)))
            self._stack.enter_context(told)
        told = self.devices.store.changes.subscribed(
            lambda node: self.nodes.enqueue(NodeName(node))
        )
        self._stack.enter_context(told)
        self._tasks += [group.create_task(self.pools.run()), group.create_task(self.nodes.run())]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: "TracebackType | None",
    ) -> None:
        """Stop."""
        for task in self._tasks:
            task.cancel()
        await self._stack.__aexit__(kind, error, trace)

    @property
    def objects(self) -> int:
        """Return how many of ours there are."""
        return sum(
            len(live.of(pool))
            for live in (self.config_maps, self.daemon_sets)
            for pool in live.groups()
        )

    async def look_at_everything(self) -> float:
        """Reconcile every pool and every node; return the processor time in seconds."""
        began = time.process_time()
        self.nodes.enqueue_all(self.devices.store.nodes())
        self.pools.enqueue_all([*self.catalog.pools, ALL_POOLS])
        await until(lambda: not self.nodes._running and not self.nodes._due_by_key)
        await until(lambda: not self.pools._running and not self._is_due())
        return time.process_time() - began

    def _is_due(self) -> bool:
        now = self._clock.monotonic()
        return any(due <= now for due in self.pools._due_by_key.values())

    async def change_device(self, number: int) -> None:
        """Have a device fail, or work again, as its health is written."""
        name = DeviceName(f"{node_name(number)}-0")
        before = self.devices.store.get(name)
        assert before is not None
        condition = {
            "type": "Healthy",
            "status": "True" if before.is_faulted else "False",
            "reason": "XIDError",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        await self.client.merge_patch(
            GPU_DEVICES, {"status": {"conditions": [condition]}}, name=name, subresource="status"
        )

        def is_seen() -> bool:
            now = self.devices.store.get(name)
            return now is not None and now.is_faulted is not before.is_faulted

        await until(is_seen)


async def until(holds: "Callable[[], bool]") -> None:
    await polling.until(holds, within_s=PATIENCE_S)


@contextmanager
def quiet() -> "Iterator[None]":
    """Write no lines but errors: what informers list is no figure."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    try:
        yield
    finally:
        structlog.configure(**before)


async def measure(sizes: "Sizes") -> list[Result]:
    """Measure both modes for every number of pools."""
    results = []
    for mode in (PluginMode.PER_POOL, PluginMode.PER_NODE):
        for count in sizes.pool_counts:
            with quiet():
                results += await _at(sizes, count, mode)
    return results


async def _at(sizes: "Sizes", count: int, mode: PluginMode) -> list[Result]:
    nodes = sizes.pool_nodes
    # The node agent is there in both.
    expected = 1 + (2 * count if mode is PluginMode.PER_POOL else 0)
    pools = "1 pool" if count == 1 else f"{count:,} pools"
    where = f"{mode.value}, {pools}, {nodes * DEVICES:,} GPUs"
    with api_server(ClusterSize(nodes=nodes, pods=0, pool_count=count)) as api:
        api.take_writes()
        async with Fleet(api.url, mode) as fleet:
            began = time.process_time()
            await fleet.look_at_everything()
            await until(lambda: fleet.objects == expected)
            start_s = time.process_time() - began
            start_writes = api.take_writes()
            assert start_writes == expected, start_writes
            checked("writes of the start")
            # What was just written is looked at once more before long; that is not the steady state.
            await fleet.look_at_everything()
            steady_s = await fleet.look_at_everything()
            steady_writes = api.take_writes()
            change_ms, change_writes = await _change(fleet, api, sizes)
    return [
        Result(
            subject="pool_reconcile",
            case=f"start, {where}",
            samples=1,
            cpu_s=start_s,
            writes=start_writes,
        ),
        Result(
            subject="pool_reconcile",
            case=f"everything again, {where}",
            samples=1,
            cpu_s=steady_s,
            writes=steady_writes,
            aims=(at_most("writes", 0),),
        ),
        Result(
            subject="pool_reconcile",
            case=f"one device changes, {where}",
            samples=sizes.device_changes,
            p50_ms=change_ms,
            writes=change_writes,
            aims=(at_most("writes", 1 if mode is PluginMode.PER_POOL else 0),),
        ),
    ]


async def _change(fleet: Fleet, api: Any, sizes: "Sizes") -> tuple[float, int]:
    """Return the median processor time of a change in milliseconds, and its writes."""
    spent, written = [], set()
    wait_s = max(fleet.exported.coalesce_s(pool) for pool in fleet.catalog.pools)
    for number in range(sizes.device_changes):
        began = time.process_time()
        await fleet.change_device(number % sizes.pool_nodes)
        await until(lambda: not fleet.nodes._due_by_key and not fleet.nodes._running)
        # The change is written together with what else changes meanwhile.
        await asyncio.sleep(wait_s)
        await until(lambda: not fleet.pools._running and not fleet._is_due())
        await asyncio.sleep(polling.EVERY_S)
        spent.append(time.process_time() - began)
        # One write is the change of the device itself.
        written.add(api.take_writes() - 1)
    assert len(written) == 1, written
    checked("writes of a change")
    return sorted(spent)[len(spent) // 2] * 1e3, written.pop()
