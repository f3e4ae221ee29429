"""What happens on the Nodes that Karpenter's kwok provider makes, or that have STATIC_LABEL, apart from kubelet's pods,
which are kwok's.

Their agents tell of the devices, kubelet allocates the units of the pools whose lists name the node, and the pods of
DaemonSets go with it. It is the simulator's part of the demo, on the real API server.
"""

import asyncio
import contextlib
from typing import TYPE_CHECKING, final

from api.foreign.core import Node
from api.foreign.karpenter import NODE_POOL_LABEL
from http_edge.system_clock import SystemClock
from kube.client import KubeClient
from kube.config.discovery import load_configuration
from kube.informer import Informer, Selection
from kube.resources import NODES
from simulator.node.joining_nodes import JoiningNodes, NodeBehaviour
from simulator.node.nfd import NAMESPACE as NFD_NAMESPACE
from simulator.node.pool_plugins import PoolPlugins
from tests.cluster.environment import client
from tests.cluster.environment.nodes import REAL_PREFIX

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

STATIC_LABEL = "test.example.com/static"
"""On Nodes of no NodePool that are played; what they do is the behaviour of the empty name."""
_CLOSED_WITHIN_S = 0.2


@contextlib.asynccontextmanager
async def played(
    kubeconfig: "Path", *, namespace: str
) -> "AsyncIterator[dict[str, NodeBehaviour]]":
    """Play the Nodes for as long as the context lasts, and yield what those of a NodePool do, which may be changed.

    `namespace` is that of the lists of pools.
    """
    clock = SystemClock()
    configuration = await load_configuration(clock, kubeconfig=str(kubeconfig))
    behaviour: dict[str, NodeBehaviour] = {}
    async with (
        client.open_client(kubeconfig) as api,
        KubeClient(configuration, clock) as kube,
        asyncio.TaskGroup() as group,
    ):
        with contextlib.suppress(client.ApiRefusedError):
            await api.create("/api/v1/namespaces", {"metadata": {"name": NFD_NAMESPACE}})
        ends = _Ends(api, group)
        nodes = Selection(label_selector=NODE_POOL_LABEL)
        plugins = PoolPlugins(kube, clock, namespace=namespace, left_alone=REAL_PREFIX)
        tasks = [
            *(
                group.create_task(playing.run(), name="agents")
                for playing in (
                    JoiningNodes(kube, clock, behaviour),
                    JoiningNodes(kube, clock, behaviour, selector=STATIC_LABEL),
                )
            ),
            group.create_task(plugins.run(), name="plugins"),
            group.create_task(
                Informer(kube, NODES, Node, sink=ends, clock=clock, selection=nodes).run(),
                name="ends",
            ),
        ]
        yield behaviour
        for task in tasks:
            task.cancel()
    # Connections of watches that were cancelled close in the loop's next turns.
    await asyncio.sleep(_CLOSED_WITHIN_S)


@final
class _Ends:
    """Deletes the pods of DaemonSets with their node, which takes the pod garbage collector a minute."""

    def __init__(self, api: client.ApiClient, group: asyncio.TaskGroup) -> None:
        self._api = api
        self._group = group

    def replace_all(self, _items: "Sequence[Node]") -> None:
        """Nodes that were gone before are the garbage collector's."""

    def upsert(self, item: Node) -> None:
        """Nothing ends."""

    def discard(self, item: Node) -> None:
        self._group.create_task(self._end(item.metadata.name))

    async def _end(self, node: str) -> None:
        selector = f"spec.nodeName={node}"
        for pod in (await self._api.get("/api/v1/pods", fieldSelector=selector))["items"]:
            metadata = pod["metadata"]
            if any(item["kind"] == "DaemonSet" for item in metadata.get("ownerReferences") or []):
                path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
                with contextlib.suppress(client.ApiRefusedError):
                    await self._api.delete(path, options={"gracePeriodSeconds": 0})
