"""Informers that fill the state of a cluster, as far as its lists may be read.

Pods come last: a reservation that is restored from a pod's annotation must find its devices.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

from api.foreign.core import Node, Pod
from api.foreign.leases import PartialLease
from api.kinds.gpudevice import GPUDevice
from api.kinds.gpunodeinventory import GPUNodeInventory
from api.kinds.gpupool import GPUPool
from api.names import POOL_LABEL
from console.data.state.watched_pods import watched_pod
from kube.informer import Informer, Selection
from kube.resources import GPU_DEVICES, GPU_NODE_INVENTORIES, GPU_POOLS, LEASES, NODES, PODS
from pool.facts import node_facts
from reconciler.sinks.device import observe_device
from telemetry.tasks import start_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api.clock import Clock
    from console.data.state.cluster import ClusterState
    from kube.client import KubeClient

INTERRUPTED_AFTER_S: Final = 5.0
"""A watch that ends in time is opened again within this."""


@final
class ClusterInformers:
    """The informers of one cluster."""

    def __init__(self, client: "KubeClient", clock: "Clock", state: "ClusterState") -> None:
        self._clock = clock
        self._first = dict(_informers(client, clock, state))
        self._pods = _pod_informer(client, clock, state)
        self._silent_since: dict[str, float] = {}
        # resource -> since when it is known that no watch of it is open

    async def wait_until_synced(self) -> None:
        """Return once every list has been read."""
        for item in self._all().values():
            await item.synced.wait()

    def unread(self) -> "list[str]":
        """Return the resources whose first list has not been read yet."""
        return [name for name, item in self._all().items() if not item.synced.is_set()]

    async def run(self) -> NoReturn:
        """List and watch until cancelled; raises what a sink raises."""
        async with asyncio.TaskGroup() as group:
            start_all(group, {name: item.run() for name, item in self._first.items()})
            for item in self._first.values():
                await item.synced.wait()
            if self._pods is not None:
                start_all(group, {PODS.plural: self._pods.run()})
        raise AssertionError("informers do not return")

    def interrupted(self) -> "list[str]":
        """Return the resources of which nothing is heard: what is known of them may be old."""
        now = self._clock.monotonic()
        for name, item in self._all().items():
            if item.is_watching:
                self._silent_since.pop(name, None)
            else:
                self._silent_since.setdefault(name, now)
        return sorted(
            name for name, since in self._silent_since.items() if now - since >= INTERRUPTED_AFTER_S
        )

    def unreadable(self) -> "dict[str, int]":
        """Return the numbers of objects that cannot be decoded, by resource."""
        counts = {name: item.unreadable for name, item in self._all().items()}
        return {name: count for name, count in sorted(counts.items()) if count}

    def _all(self) -> "dict[str, Informer[Any]]":
        pods = {} if self._pods is None else {PODS.plural: self._pods}
        return {**self._first, **pods}


def _informers(
    client: "KubeClient", clock: "Clock", state: "ClusterState"
) -> "Iterator[tuple[str, Informer[Any]]]":
    stores, scope = state.stores, state.scope
    yield (
        GPU_POOLS.plural,
        Informer(client, GPU_POOLS, GPUPool, sink=stores.pool_sink, clock=clock),
    )
    yield (
        GPU_DEVICES.plural,
        Informer(
            client,
            GPU_DEVICES,
            GPUDevice,
            sink=state.watched_devices,
            clock=clock,
            project=observe_device,
        ),
    )
    if scope.nodes:
        yield (
            NODES.plural,
            Informer(client, NODES, Node, sink=stores.node_sink, clock=clock, project=node_facts),
        )
    if scope.inventories:
        yield (
            GPU_NODE_INVENTORIES.plural,
            Informer(
                client,
                GPU_NODE_INVENTORIES,
                GPUNodeInventory,
                sink=stores.inventory_sink,
                clock=clock,
            ),
        )
    if scope.leases_in:
        yield (
            LEASES.plural,
            Informer(
                client,
                LEASES,
                PartialLease,
                sink=state.leases,
                clock=clock,
                selection=Selection(namespace=scope.leases_in),
            ),
        )


def _pod_informer(
    client: "KubeClient", clock: "Clock", state: "ClusterState"
) -> "Informer[Any] | None":
    scope = state.scope
    if not scope.all_pods and not scope.namespace:
        return None
    return Informer(
        client,
        PODS,
        Pod,
        sink=state.pods,
        clock=clock,
        project=watched_pod,
        # Pods without units, or without the label, take CPU, memory and places of nodes, too.
        selection=Selection()
        if scope.all_pods
        else Selection(namespace=scope.namespace, label_selector=POOL_LABEL),
    )
