"""What a waiting pod's pool, and others that it may use, say about why it waits."""

from typing import TYPE_CHECKING, Final

from api.foreign.core import Node
from api.kinds.gpudevice import GPUDevice
from api.names import ASSIGNMENT_ANNOTATION, NodeName
from inventory.assignment.eligibility import (
    exclusion_obstacles,
    incomplete,
    is_approved,
    node_selector_obstacles,
    selector_obstacles,
)
from kube.resources import NODES
from kubectl_gpu.cluster_lists import read_object
from kubectl_gpu.errors import ForbiddenError, NotFoundError
from kubectl_gpu.waiting.allocation_copy import PoolObjects, allocation_of
from kubectl_gpu.waiting.pool_reading import read_devices, read_inventories, read_pool, read_pools
from pool.explanation.explain import explain
from pool.explanation.question import JoinableDevice, WaitQuestion
from pool.facts import device_facts, node_facts, pool_facts
from pool.model import Instant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.foreign.core import Pod
    from api.kinds.gpupool import GPUPool
    from kubectl_gpu.cluster_lists import ClusterLists
    from pool.explanation.explanation import Explanation
    from pool.model import NodeFacts, PodFacts

_MOST_POOLS: Final = 4
"""Other pools that are read: those with a node that has enough free units, as their status says."""
_MOST_NODES: Final = 16
"""Nodes of devices in no pool that are read, one by one."""


def explain_wait(
    lists: "ClusterLists", pod: "Pod", facts: "PodFacts", *, pools: "Sequence[GPUPool]"
) -> "Explanation":
    """Return why the pod waits.

    Raises:
        ForbiddenError: devices, or pods of all namespaces, may not be listed.
    """
    own = next((one for one in pools if one.resource_name == facts.demand.resource), None)
    others = [] if own is None else other_pools(pools, pod, facts)
    objects = PoolObjects()
    for pool in (own, *others):
        if pool is not None:
            read_pool(lists, pool, objects)
    joinable = [] if own is None else _joinable(lists, own, objects)
    read_inventories(lists, objects)
    if all(one.uid != facts.uid for one in objects.pods):
        objects.pods.append(facts)
    now = Instant(0.0, lists.source.now())
    state = allocation_of(objects, now)
    question = WaitQuestion(
        pod=facts,
        other_pools=[pool_facts(one) for one in others],
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
    read_inventories(lists, objects)
    known = {pod.uid for pod in objects.pods}
    objects.pods += [pod for pod in pods if pod.uid not in known]
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


def other_pools(pools: "Sequence[GPUPool]", pod: "Pod", facts: "PodFacts") -> "list[GPUPool]":
    """Return pools that the pod may use and that seem to have room, the one with most room first."""
    found = [
        pool
        for pool in pools
        if pool.resource_name != facts.demand.resource
        and pool.metadata.deletion_timestamp is None
        and pool.status.capacity.largest_free >= facts.demand.units
        and may_certainly_use(pool, pod)
    ]
    found.sort(key=lambda pool: (-pool.status.capacity.largest_free, pool.name))
    return found[:_MOST_POOLS]


def may_certainly_use(pool: "GPUPool", pod: "Pod") -> bool:
    """Say whether a pool admits the pod by what the pod shows; labels of namespaces and groups it does not."""
    access = pool.spec.access
    namespace = pod.metadata.namespace
    account = f"{namespace}/{pod.spec.service_account_name or 'default'}"
    return (
        access.is_open
        or namespace in (access.namespaces or ())
        or account in (access.service_accounts or ())
    )


def _joinable(lists: "ClusterLists", pool: "GPUPool", objects: PoolObjects) -> list[JoinableDevice]:
    """Return devices in no pool that this one could take, and add them and their nodes to what was read."""
    devices = [one for one in read_devices(lists, "", _itself) if _is_of_kind(one, pool)]
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
            found.append(JoinableDevice(device=facts, obstacle=_obstacle(device, pool, labels)))
    return found


def _node(lists: "ClusterLists", name: str) -> Node | None:
    try:
        return read_object(lists.source.object(NODES, name), Node, what=f"Node {name}")
    except (ForbiddenError, NotFoundError):
        return None


def _itself(device: GPUDevice) -> GPUDevice:
    return device


def _is_of_kind(device: GPUDevice, pool: "GPUPool") -> bool:
    return not (
        device.is_faulted or any(incomplete(device)) or any(selector_obstacles(pool, device))
    )


def _obstacle(device: GPUDevice, pool: "GPUPool", labels: "dict[str, str]") -> str:
    """Return the first thing that keeps a device out of the pool, with the cure."""
    obstacles = (
        *exclusion_obstacles(device),
        *node_selector_obstacles(pool, NodeName(device.node), labels),
    )
    if obstacles:
        return obstacles[0].text
    if device.assignment not in {None, pool.name}:
        return f"annotation {ASSIGNMENT_ANNOTATION} gives it to pool {device.assignment}"
    if device.assignment is None and not is_approved(pool, device):
        return f"annotate each with {ASSIGNMENT_ANNOTATION}={pool.name}"
    return "the pool selects it, and does not have it yet: `kubectl describe gpudevice` says why"
