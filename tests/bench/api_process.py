"""A full in-memory API server in a process of its own.

    python -m tests.bench.api_process --nodes N --pods M

Objects go straight into its store: creating 70,000 of them over HTTP would take longer than what is
measured. Prints its URL when everything is there, and then reads commands: `change N` makes N changes
a second, and `expire` ends the watches so that they list again.
"""

import argparse
import asyncio
import itertools
import random
import sys
import time
from typing import TYPE_CHECKING, Any

import uvloop

from api.names import GROUP, VERSION
from http_edge.system_clock import SystemClock
from kube.client import KubeClient
from kube.config.connection import StaticConnection
from kube.resources import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES
from manifests import constants
from manifests.install.crds import build_crds
from simulator.apiserver.apply.ownership import Ownership
from simulator.apiserver.server import InMemoryApiServer
from simulator.node.nfd import node_feature_crd
from tests.bench.world import SEED, World

if TYPE_CHECKING:
    from collections.abc import Iterable

    from simulator.apiserver.resource_types import ResourceType
    from simulator.apiserver.store.objects import Collection

PODS = ("", "v1", "pods")
NODES = ("", "v1", "nodes")
DEVICES = (GROUP, VERSION, "gpudevices")
STEP_S = 0.01
HISTORY = 100_000
"""Half a minute of three watchers' changes may wait, so that only `expire` ends a watch."""


class Stock:
    """The objects, put in and changed as if by API requests."""

    def __init__(self, api: InMemoryApiServer) -> None:
        self._api = api
        self._rng = random.Random(SEED)
        self._numbers = itertools.count(1)
        self._bound: list[tuple[str, dict[str, Any]]] = []
        # name and body of pods that run
        self._gone: list[dict[str, Any]] = []
        self._devices: list[str] = []
        self._nodes: list[str] = []
        self.changes = 0
        self.per_s = 0

    def put(self, path: tuple[str, str, str], objects: "Iterable[dict[str, Any]]") -> None:
        """Store objects as if they had been created."""
        resource, collection = self._at(path)
        for number, body in enumerate(objects):
            body["metadata"].setdefault("uid", f"{path[2]}-{number}")
            body["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
            body["metadata"]["generation"] = 1
            collection.add(resource, body, Ownership())
            name = body["metadata"]["name"]
            if path == PODS:
                self._put_pod(body)
            elif path == DEVICES:
                self._devices.append(name)
            elif path == NODES:
                self._nodes.append(name)

    def _put_pod(self, body: dict[str, Any]) -> None:
        """Let a pod that runs end at some time."""
        if body["spec"].get("nodeName") is not None:
            self._bound.append((body["metadata"]["name"], body))

    async def change_steadily(self) -> None:
        """Make as many changes a second as are required now."""
        owed, before = 0.0, time.perf_counter()
        while True:
            await asyncio.sleep(STEP_S)
            now = time.perf_counter()
            owed += (now - before) * self.per_s
            before = now
            while owed >= 1:
                owed -= 1
                self.changes += 1
                self._change()

    def _change(self) -> None:
        """One event: of pods half of the time, else of a device or a node."""
        kind = self._rng.random()
        if kind < 0.5:
            self._change_pod()
        elif kind < 0.8:
            state = self._rng.choice(("Assigned", "Assigned", "Faulted"))
            self._edit(DEVICES, self._rng.choice(self._devices), {"state": state})
        else:
            name = self._rng.choice(self._nodes)
            condition = {"type": "Ready", "status": "True", "message": f"{self.changes}"}
            self._edit(NODES, name, {"conditions": [condition]})

    def _change_pod(self) -> None:
        """A pod ends, is deleted, or another one appears with the same devices."""
        resource, collection = self._at(PODS)
        is_due = len(self._gone) > len(self._bound) // 4 or self._rng.random() < 1 / 3
        if self._gone and is_due:
            body = self._gone.pop()
            name = f"next-{next(self._numbers)}"
            body = {**body, "status": {"phase": "Running"}}
            body["metadata"] = {**body["metadata"], "name": name, "uid": f"uid-{name}"}
            collection.add(resource, body, Ownership())
            self._bound.append((name, body))
            return
        place = self._rng.randrange(len(self._bound))
        name, body = self._bound[place]
        stored = collection.get("ml-team", name)
        assert stored is not None
        if stored.body["status"]["phase"] == "Running":
            self._edit(PODS, name, {"phase": "Succeeded"})
            return
        collection.remove(stored)
        self._bound[place] = self._bound[-1]
        self._bound.pop()
        self._gone.append(body)

    def _edit(self, path: tuple[str, str, str], name: str, status: dict[str, Any]) -> None:
        resource, collection = self._at(path)
        stored = collection.get("ml-team" if path == PODS else "", name)
        assert stored is not None
        body = {**stored.body, "status": {**stored.body["status"], **status}}
        collection.replace(resource, stored, body, ownership=stored.ownership)

    def _at(self, path: tuple[str, str, str]) -> "tuple[ResourceType, Collection]":
        resource = self._api._frontend._backend.registry.find(*path)
        assert resource is not None, path
        return resource, self._api._store.collection(resource)


async def main(options: argparse.Namespace) -> None:
    clock = SystemClock()
    world = World(nodes=options.nodes, pods=options.pods, pool_count=options.pool_count)
    async with InMemoryApiServer(clock, history_limit=HISTORY) as api:
        async with KubeClient(StaticConnection(api.url), clock) as client:
            for crd in (*build_crds(), node_feature_crd()):
                await client.create(CUSTOM_RESOURCE_DEFINITIONS, crd)
            for name in (constants.DEFAULT_NAMESPACE, "ml-team"):
                namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
                await client.create(NAMESPACES, namespace)
        stock = Stock(api)
        stock.put((GROUP, VERSION, "gpupools"), world.pools())
        stock.put(NODES, world.node_objects())
        stock.put(DEVICES, world.devices())
        stock.put(PODS, world.bound_pods())
        api.forget_history()
        say(api.url)
        async with asyncio.TaskGroup() as group:
            group.create_task(stock.change_steadily())
            group.create_task(obey(api, stock))


async def obey(api: InMemoryApiServer, stock: Stock) -> None:
    """Do what standard input says."""
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    async for line in reader:
        match line.decode().split():
            case ["change", per_s]:
                stock.per_s = int(per_s)
            case ["expire"]:
                expire_watches(api)
            case other:
                raise ValueError(f"no such command: {other}")
    await asyncio.Event().wait()


def expire_watches(api: InMemoryApiServer) -> None:
    """Make every version that a watch has seen too old, and end the watches."""
    api.forget_history()
    for collection in api._store.collections():
        collection.history.floor = api._store.revision.advance()
    api.drop_watches()


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--pods", type=int, required=True)
    parser.add_argument("--pool-count", type=int, default=2)
    uvloop.run(main(parser.parse_args()))
