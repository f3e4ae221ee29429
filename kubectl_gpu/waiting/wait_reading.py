"""What a waiting pod's pool, and others that it may use, say about why it waits."""

from itertools import chain
from typing import TYPE_CHECKING, Final

from api.clock import Instant
from api.names import NodeName, owner_of
from inventory.assignment.joining_devices import could_join, joining_obstacle
from kubectl_gpu.waiting import pool_reading
from kubectl_gpu.waiting.allocation_copy import PoolObjects, allocation_of
from pool.facts import device_facts, pool_facts
from pool.serving import serving_pool
from pool.what_if.explain import explain
from pool.what_if.question import JoinableDevice, WaitQuestion
from pool.what_if.usable_pools import tolerations_by_pool, usable_pools

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.foreign.core import Pod
    from api.kinds.gpudevice import GPUDevice
    from api.kinds.gpupool import GPUPool
    from kubectl_gpu.cluster_lists import ClusterLists
    from pool.model import NodeFacts, PodFacts
    from pool.what_if.explanation import Explanation

_MOST_NODES: Final = 16
"""Nodes whose devices in no pool are tried."""


def explain_wait(
    lists: "ClusterLists", pod: "Pod", facts: "PodFacts", *, pools: "Sequence[GPUPool]"
) -> "Explanation":
    """Return why the pod waits.

    Raises:
        ForbiddenError: devices, or pods of all namespaces, may not be listed.
    """
    served = chain.from_iterable(pool_facts(pool).served for pool in pools)
    serving = serving_pool(served, facts.demand.resource)
    own = next((pool for pool in pools if serving and pool.name == owner_of(serving.name)), None)
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
            pool_reading.read_pool(lists, pool, objects)
    candidates = _candidates(lists, own) if own is not None else []
    objects.devices += map(device_facts, candidates)
    are_caches_read = _read_beside(lists, [facts], objects)
    now = Instant(0.0, lists.source.now())
    state = allocation_of(objects, now)
    question = WaitQuestion(
        pod=facts,
        other_pools=[facts for pool in others for facts in pool_facts(pool).served],
        tolerated=tolerations_by_pool(others),
        joinable=_joinable(own, candidates, objects.nodes or ()) if own is not None else [],
        now=now.monotonic,
    )
    return explain(state.reader, state.index, question, with_remedies=are_caches_read)


def explain_waits(lists: "ClusterLists", pods: "Sequence[PodFacts]") -> "dict[str, Explanation]":
    """Return why each of several pods waits, without remedies, by namespace/name.

    Raises:
        ForbiddenError: pools, devices, or pods of all namespaces, may not be listed.
    """
    if not pods:
        return {}
    resources = {pod.demand.resource for pod in pods}
    objects = PoolObjects()
    for pool in pool_reading.read_pools(lists):
        if not resources.isdisjoint(pool.resources):
            pool_reading.read_pool(lists, pool, objects)
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


def _read_beside(lists: "ClusterLists", pods: "Sequence[PodFacts]", objects: PoolObjects) -> bool:
    """Add what decides beside the objects of the pools, and the pods in question; say whether their caches could be read."""
    pool_reading.read_inventories(lists, objects)
    pool_reading.read_nodes_without_label(lists, objects)
    pool_reading.read_pods(lists, objects)
    pool_reading.read_nodes_of_peers(lists, pods, objects)
    if not objects.are_pods_whole:
        lists.gaps.append(pool_reading.ONLY_POOLS)
    for pod in pods:
        objects.pods.setdefault(pod.uid, pod)
    return pool_reading.read_caches(lists, pods, objects)


def _candidates(lists: "ClusterLists", pool: "GPUPool") -> "list[GPUDevice]":
    """Return devices in no pool that this one could take, those of the first nodes by name."""
    devices = pool_reading.read_devices(
        lists, "", lambda device: device if could_join(device, pool) else None
    )
    nodes = sorted({device.node for device in devices})[:_MOST_NODES]
    return [device for device in devices if device.node in nodes]


def _joinable(
    pool: "GPUPool", devices: "Sequence[GPUDevice]", nodes: "Sequence[NodeFacts]"
) -> list[JoinableDevice]:
    """Return the devices whose nodes are read, with what keeps each out of the pool."""
    labels = {node.name: node.labels for node in nodes}
    return [
        JoinableDevice(
            device=device_facts(device),
            obstacle=joining_obstacle(device, pool, labels[NodeName(device.node)]),
        )
        for device in devices
        if device.node in labels
    ]
