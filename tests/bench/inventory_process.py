"""The inventory alone, with its informers, in a process of its own.

    python -m tests.bench.inventory_process --url URL --nodes N

Starts, waits until every node's devices and inventory are there, and prints its figures as a line of JSON.
Then it reads commands: `again` looks at every node once more, `labels N` changes one label of one node N
times; each prints its figures.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import structlog
import uvloop

from api.foreign.core import Node
from api.foreign.nodefeature import NodeFeature
from api.kinds.gpudevice import GPUDevice
from api.kinds.gpunodeinventory import GPUNodeInventory
from api.names import MANAGED_LABEL, NodeName
from inventory.discovery.node import InventoryTerms
from kube.client import KubeClient
from kube.config.connection import StaticConnection
from kube.event_recorder import EventRecorder
from kube.informer import Informer
from kube.resources import GPU_DEVICES, GPU_NODE_INVENTORIES, NODE_FEATURES, NODES
from kube.store import Store
from pool.facts import node_facts
from pool.index.device_index import DeviceIndex
from reconciler.inventory.controller import KnownDevices, NodeInventory
from reconciler.runtime.controller import Controller
from reconciler.sinks.device_sink import DeviceSink, observe_device
from reconciler.sinks.node_feature_sink import NodeFeatureSink, observe_feature
from reconciler.sinks.node_sink import NodeSink
from server.system_clock import SystemClock
from server.tuning import freeze_garbage_collector
from tests.bench.report import rss_mib
from tests.bench.world import DEVICES, node_name

if TYPE_CHECKING:
    from collections.abc import Callable

WORKERS = 8
POLL_S = 0.05


class InventoryProcess:
    """What the server runs of the inventory."""

    def __init__(self, client: KubeClient, clock: SystemClock, nodes: int) -> None:
        self.client = client
        self.nodes = nodes
        self.index = DeviceIndex()
        self.devices = DeviceSink(self.index)
        self.features = NodeFeatureSink()
        self.inventories: Store[GPUNodeInventory] = Store()
        self.recorder = EventRecorder(
            client, clock, reporting_controller="bench", reporting_instance="bench"
        )
        inventory = NodeInventory(
            client,
            KnownDevices(
                index=self.index,
                devices=self.devices.store,
                inventories=self.inventories,
                features=self.features,
            ),
            self.recorder,
            now=clock.instant,
            terms=InventoryTerms(),
        )
        self.controller: Controller[NodeName] = Controller(
            "node.inventory", inventory.reconcile, clock, workers=WORKERS
        )
        self.informers: list[Informer[Any]] = [
            Informer(
                client, NODES, Node, sink=NodeSink(self.index), clock=clock, project=node_facts
            ),
            Informer(
                client,
                NODE_FEATURES,
                NodeFeature,
                sink=self.features,
                clock=clock,
                project=observe_feature,
                is_optional=True,
            ),
            Informer(
                client,
                GPU_DEVICES,
                GPUDevice,
                sink=self.devices,
                clock=clock,
                project=observe_device,
            ),
            Informer(
                client, GPU_NODE_INVENTORIES, GPUNodeInventory, sink=self.inventories, clock=clock
            ),
        ]

    def enqueue(self, name: str) -> None:
        self.controller.enqueue(NodeName(name))

    def all_nodes(self) -> list[NodeName]:
        return [NodeName(node_name(number)) for number in range(self.nodes)]

    def is_converged(self) -> bool:
        shown = self.inventories.by_name.values()
        return (
            len(self.devices.store) == self.nodes * DEVICES
            and len(shown) == self.nodes
            and all(len(one.status.devices or ()) == DEVICES for one in shown)
            and all(one.status.uuid for name in self.all_nodes() for one in self.on(name))
        )

    def on(self, name: NodeName) -> list[GPUDevice]:
        return self.devices.store.on_node(name)

    async def pump(self) -> None:
        """Queue nodes whose object changed, as the server's pump does."""
        while True:
            for name in self.index.changes.take().nodes:
                self.controller.enqueue(name)
            await asyncio.sleep(POLL_S)

    async def look_again(self) -> dict[str, float]:
        """Reconcile every node that is as it should be."""
        began = time.process_time()
        self.controller.enqueue_all(self.all_nodes())
        await until(lambda: not self.controller._running and not self._due())
        return {"cpu_s": time.process_time() - began}

    def _due(self) -> bool:
        now = self.controller._clock.monotonic()
        return any(due <= now for due in self.controller._due_by_key.values())

    async def change_labels(self, count: int) -> dict[str, float]:
        """Have one node after the other opt out, each seen by its devices before the next."""
        spent = []
        for turn in range(count):
            name = NodeName(node_name(turn % self.nodes))
            is_out = turn // self.nodes % 2 == 0
            began = time.process_time()
            labels = {MANAGED_LABEL: "false" if is_out else None}
            await self.client.merge_patch(NODES, {"metadata": {"labels": labels}}, name=name)

            def is_shown(name: NodeName = name, is_out: bool = is_out) -> bool:
                managed = {one.status.managed for one in self.on(name)}
                return managed == {not is_out} == {self.inventories.by_name[name].status.managed}

            await until(is_shown)
            spent.append(time.process_time() - began)
        return {"cpu_ms": sorted(spent)[len(spent) // 2] * 1e3}


async def until(holds: "Callable[[], bool]") -> None:
    while not holds():  # noqa: ASYNC110  # what it waits for has no event
        await asyncio.sleep(POLL_S)


async def main(options: argparse.Namespace) -> None:
    clock = SystemClock()
    before_mib = rss_mib(os.getpid())
    with contextlib.ExitStack() as stack:
        async with KubeClient(StaticConnection(options.url), clock) as client:
            run = InventoryProcess(client, clock, options.nodes)
            for one in (run.features, run.devices.store, run.inventories):
                stack.enter_context(one.changes.subscribed(run.enqueue))
            async with asyncio.TaskGroup() as group:
                began, cpu_s = time.perf_counter(), time.process_time()
                tasks: list[asyncio.Task[Any]] = []
                works = (*(one.run() for one in run.informers), run.recorder.run())
                tasks += [group.create_task(work) for work in works]
                async with asyncio.timeout(60):
                    for informer in run.informers:
                        await informer.synced.wait()
                freeze_garbage_collector()
                works_of_leader = (run.pump(), run.controller.run())
                tasks += [group.create_task(work) for work in works_of_leader]
                await until(run.is_converged)
                say(
                    cpu_s=time.process_time() - cpu_s,
                    wall_s=time.perf_counter() - began,
                    rss_mib=rss_mib(os.getpid()),
                    growth_mib=rss_mib(os.getpid()) - before_mib,
                )
                await obey(run)
                for task in tasks:
                    task.cancel()


async def obey(run: InventoryProcess) -> None:
    """Do what standard input says, until it ends."""
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    async for line in reader:
        match line.decode().split():
            case ["again"]:
                say(**await run.look_again())
            case ["labels", count]:
                say(**await run.change_labels(int(count)))
            case other:
                raise ValueError(f"no such command: {other}")


def say(**figures: float) -> None:
    sys.stdout.write(json.dumps(figures) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--nodes", type=int, required=True)
    uvloop.run(main(parser.parse_args()))
