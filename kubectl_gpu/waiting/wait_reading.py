"""What a waiting pod's pool, and others that it may use, say about why it waits."""

from typing import TYPE_CHECKING, Final

from api.foreign.core import Node
from inventory.assignment.joining_devices import could_join, joining_obstacle
from kube.resources import NODES
from kubectl_gpu.cluster_lists import read_object
from kubectl_gpu.errors import ForbiddenError, NotFoundError
from kubectl_gpu.waiting.allocation_copy import PoolObjects, allocation_of
from kubectl_gpu.waiting.pool_reading import (
    read_caches,
    read_devices,
    read_inventories,
    read_pods_of_nodes,
    read_pool,
    read_pools,
)
from pool.facts import device_facts, node_facts, pool_facts
from pool.model import Instant
from pool.serving import serving_pool
from pool.what_if.explain import explain
from pool.what_if.question import JoinableDevice, WaitQuestion
from pool.what_if.usable_pools import tolerations_by_pool, usable_pools

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.foreign.core import Pod
    from api.kinds.gpupool import GPUPool
    from kubectl_gpu.cluster_lists import ClusterLists
    from pool.model import NodeFacts, PodFacts
    from pool.what_if.explanation import Explanation

_MOST_NODES: Final = 16
"""Nodes of devices in no pool that are read, one by one."""


def explain_wait(
    lists: "ClusterLists", pod: "Pod", facts: "PodFacts", *, pools: "Sequence[GPUPool]"
) -> "Explanation":
    """Return why the pod waits.

    Raises:
        ForbiddenError: devices, or pods of all namespaces, may not be listed.
    """
    serving = serving_pool(map(pool_facts, pools), facts.demand.resource)
    own = next((pool for pool in pools if serving and pool.name == serving.name), None)
    others = (
        []
        if own is None
        else usable_pools(
            pools,
            facts,
            service_account=pod.spec.service_account_name,
            largest_free=lambda pool: pool.status.capacity.largest_free,
        )
    )
    objects = PoolObjects()
    for pool in (own, *others):
        if pool is not None:
            read_pool(lists, pool, objects)
    joinable = [] if own is None else _joinable(lists, own, objects)
    _read_beside(lists, [facts], objects)
    now = Instant(0.0, lists.source.now())
    state = allocation_of(objects, now)
    question = WaitQuestion(
        pod=facts,
        other_pools=[pool_facts(pool) for pool in others],
        tolerated=tolerations_by_pool(others),
        joinable=joinable,
        now=now.monotonic,
    )
    return explain(state.reader, state.index, question)


def explain_waits(lists: "ClusterLists", pods: "Sequence[PodFacts]") -> "dict[str, Explanation]":
    """Return why each of several pods waits, without remedies, by namespace/name.

    Raises:
        ForbiddenError: pools, devices, or pods of all namespaces, may not be listed.
    """
    if not pods:
        return {}
    resources = {pod.demand.resource for pod in pods}
    objects = PoolObjects()
    for pool in read_pools(lists):
        if pool.resource_name in resources:
            read_pool(lists, pool, objects)
    _read_beside(lists, pods, objects)
    now = Instant(0.0, lists.source.now())
    state = allocation_of(objects, now)
    return {
        pod.ref: explain(
            state.reader,
            state.index,
            WaitQuestion(pod=pod, now=now.monotonic),
            with_remedies=False,
        )
        for pod in pods
    }


def _read_beside(lists: "ClusterLists", pods: "Sequence[PodFacts]", objects: PoolObjects) -> None:
    """Add what decides beside the objects of the pools, and the pods in question."""
    read_inventories(lists, objects)
    read_pods_of_nodes(lists, objects)
    read_caches(lists, pods, objects)
    for pod in pods:
        objects.pods.setdefault(pod.uid, pod)


def _joinable(lists: "ClusterLists", pool: "GPUPool", objects: PoolObjects) -> list[JoinableDevice]:
    """Return devices in no pool that this one could take, and add them and their nodes to what was read."""
    devices = read_devices(lists, "", lambda device: device if could_join(device, pool) else None)
    nodes: dict[str, Node] = {}
    for name in sorted({device.node for device in devices})[:_MOST_NODES]:
        node = _node(lists, name)
        if node is not None:
            nodes[name] = node
    known = {node.name for node in objects.nodes or ()}
    seen: list[NodeFacts] = [node_facts(node) for node in nodes.values()]
    if objects.nodes is not None:
        objects.nodes += [node for node in seen if node.name not in known]
    found: list[JoinableDevice] = []
    for device in devices:
        if device.node in nodes:
            labels = nodes[device.node].metadata.labels or {}
            facts = device_facts(device)
            objects.devices.append(facts)
            found.append(
                JoinableDevice(device=facts, obstacle=joining_obstacle(device, pool, labels))
            )
    return found


def _node(lists: "ClusterLists", name: str) -> Node | None:
    try:
        return read_object(lists.source.object(NODES, name), Node, what=f"Node {name}")
    except (ForbiddenError, NotFoundError):
        return None
