"""What is read of a pool: its devices and nodes, pods, the nodes of pods that rules are about, and the kernel caches that matter."""

from typing import TYPE_CHECKING, Final

from api.foreign.core import Node, Pod
from api.kinds.gkmcache import ClusterGKMCache, GKMCache
from api.kinds.gpudevice import GPUDevice
from api.kinds.gpunodeinventory import GPUNodeInventory
from api.kinds.gpupool import GPUPool
from api.names import POOL_LABEL, NodeName, pool_node_label
from api.well_known_labels import HOSTNAME_LABEL
from kernelcache.cache_index import resolved_cache
from kube.resources import (
    CLUSTER_GKM_CACHES,
    GKM_CACHES,
    GPU_DEVICES,
    GPU_NODE_INVENTORIES,
    GPU_POOLS,
    NODES,
    PODS,
)
from kubectl_gpu.cluster_source import ListQuery
from kubectl_gpu.dumped.dump_source import DumpSource
from kubectl_gpu.errors import BadSelectorError
from pool.facts import device_facts, node_facts, observed_pod, pod_facts
from pool.index.peers import Peers
from telemetry.explanation_texts import CACHES_NOT_READ

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from typing import TypeVar

    from kube.resources import Resource
    from kubectl_gpu.cluster_lists import ClusterLists
    from kubectl_gpu.waiting.allocation_copy import PoolObjects
    from pool.model import AnyPod, DeviceFacts, NodeFacts, PodFacts

    P = TypeVar("P")

MOST_NODES: Final = 64
"""Nodes that are read, or whose pods are, with one list each."""
ONLY_POOLS: Final = (
    "a dump has pods of pools alone: what CPU and memory nodes have left is unknown, and a pod that"
    " requests them gets neither a node nor a remedy"
)
_NO_NODES: Final = "every node with a device counts as ready, without taints and labels"
_NO_INVENTORIES: Final = "topology policies and reports of kubelets are unknown"


def read_pools(lists: "ClusterLists", *, labels: str = "") -> "list[GPUPool]":
    """Return the pools with these labels, in alphabetical order."""
    pools = lists.read(ListQuery(GPU_POOLS, labels=labels), GPUPool, lambda pool: pool)
    return sorted(pools, key=lambda pool: pool.name)


def read_pool(lists: "ClusterLists", pool: GPUPool, objects: "PoolObjects") -> None:
    """Add a pool, its devices and its nodes to what is read already.

    Raises:
        ForbiddenError: devices may not be listed.
    """
    read_names = {device.name for device in objects.devices}
    objects.pools.append(pool)
    objects.devices += [
        device for device in read_devices(lists, pool.name, _facts) if device.name not in read_names
    ]
    nodes = lists.read_if_allowed(
        ListQuery(NODES, labels=pool_node_label(pool.name)), Node, node_facts, without=_NO_NODES
    )
    if nodes is not None:
        seen = {node.name for node in objects.nodes or ()}
        objects.nodes = [
            *(objects.nodes or ()),
            *(node for node in nodes if node.name not in seen),
        ]


def read_nodes_without_label(lists: "ClusterLists", objects: "PoolObjects") -> None:
    """Add the nodes of the devices that do not have the label of a pool, yet or any more."""
    _read_nodes(lists, {device.node for device in objects.devices}, objects)


def read_nodes_of_peers(
    lists: "ClusterLists", pods: "Iterable[PodFacts]", objects: "PoolObjects"
) -> None:
    """Add the nodes outside the pools with pods that decide by a label of nodes, such as a zone, where these pods may go."""
    peers, nodes = Peers(), set[NodeName]()
    for found in objects.pods.values():
        peers.replace(found.uid, found.node, found.peer)
    for pod in pods:
        rules = pod.selection.peers if pod.selection is not None else ()
        for rule in rules:
            if rule.key != HOSTNAME_LABEL:
                nodes |= peers.selected([rule]).keys()
        for rule, other in peers.keeping_away(pod.peer) if pod.peer is not None else ():
            if rule.key != HOSTNAME_LABEL:
                nodes |= peers.nodes_of(other).keys()
    _read_nodes(lists, nodes, objects)


def _read_nodes(
    lists: "ClusterLists", names: "Collection[NodeName]", objects: "PoolObjects"
) -> None:
    """Add nodes that are not read yet; those of many from one list."""
    if objects.nodes is None:
        return
    missing = {*names} - {node.name for node in objects.nodes}

    def keep(node: Node) -> "NodeFacts | None":
        return node_facts(node) if node.metadata.name in missing else None

    for query in _queries(NODES, "metadata.name", missing):
        objects.nodes += lists.read(query, Node, keep)


def read_pods(lists: "ClusterLists", objects: "PoolObjects") -> None:
    """Add all pods: those of any node may keep others out of its zone, and no selector finds them.

    A dump has pods of pools alone.

    Raises:
        ForbiddenError: pods of all namespaces may not be listed.
    """
    objects.are_pods_whole = not isinstance(lists.source, DumpSource)
    found: list[AnyPod] = lists.read(ListQuery(PODS), Pod, observed_pod)
    objects.pods |= {pod.uid: pod for pod in found}


def read_pods_of_nodes(lists: "ClusterLists", objects: "PoolObjects") -> None:
    """Add the pods that name the pools, and all pods of the devices' nodes, some of which have no label.

    Those without units take CPU, memory and places. Those of many nodes are taken from one list of all pods. A dump has
    pods of pools alone.

    Raises:
        ForbiddenError: pods of all namespaces may not be listed.
    """
    nodes = {device.node for device in objects.devices}
    objects.are_pods_whole = not isinstance(lists.source, DumpSource)
    for pool in objects.pools:
        pods = lists.read(ListQuery(PODS, labels=f"{POOL_LABEL}={pool.name}"), Pod, pod_facts)
        objects.pods |= {pod.uid: pod for pod in pods}

    def keep(pod: Pod) -> "AnyPod | None":
        return observed_pod(pod) if pod.spec.node_name in nodes else None

    for query in _queries(PODS, "spec.nodeName", nodes):
        found: list[AnyPod] = lists.read(query, Pod, keep)
        objects.pods |= {pod.uid: pod for pod in found}


def _queries(resource: "Resource", field: str, nodes: "Collection[NodeName]") -> list[ListQuery]:
    """Return a list for each node, or one of all objects where there are many."""
    if len(nodes) > MOST_NODES:
        return [ListQuery(resource)]
    return [ListQuery(resource, fields=f"{field}={node}") for node in sorted(nodes)]


def read_caches(lists: "ClusterLists", pods: "Iterable[PodFacts]", objects: "PoolObjects") -> bool:
    """Add the kernel caches that the pods mount; False where some may not be read."""
    is_whole = True
    cache_names = {name for pod in pods for name in pod.demand.caches}

    def keep(cache: GKMCache) -> GKMCache | None:
        return cache if cache.cache_name in cache_names else None

    for resource, type_ in ((GKM_CACHES, GKMCache), (CLUSTER_GKM_CACHES, ClusterGKMCache)):
        if not any(bool(name.namespace) is (resource is GKM_CACHES) for name in cache_names):
            continue
        found = lists.read_if_allowed(ListQuery(resource), type_, keep, without=CACHES_NOT_READ)
        is_whole = is_whole and found is not None
        for cache in found or ():
            objects.caches.set_cache(cache.cache_name, resolved_cache(cache))
    return is_whole


def read_inventories(lists: "ClusterLists", objects: "PoolObjects") -> None:
    """Add what the agents of the devices' nodes report of their kubelets."""
    names = {device.node for device in objects.devices}
    objects.inventories = (
        lists.read_if_allowed(
            ListQuery(GPU_NODE_INVENTORIES),
            GPUNodeInventory,
            lambda inventory: inventory if inventory.metadata.name in names else None,
            without=_NO_INVENTORIES,
        )
        or []
    )


def read_devices(
    lists: "ClusterLists", pool: str, keep: "Callable[[GPUDevice], P | None]"
) -> "list[P]":
    """Return what is kept of a pool's devices; with an empty name of those that are in none."""

    def of_pool(device: GPUDevice) -> "P | None":
        ref = device.status.pool_ref
        return keep(device) if (ref.name if ref is not None else "") == pool else None

    try:
        query = ListQuery(GPU_DEVICES, fields=f"status.poolRef.name={pool}")
        return lists.read(query, GPUDevice, of_pool)
    except BadSelectorError:  # Kubernetes 1.30 cannot select by fields of custom resources
        return lists.read(ListQuery(GPU_DEVICES), GPUDevice, of_pool)


def _facts(device: GPUDevice) -> "DeviceFacts":
    return device_facts(device)
