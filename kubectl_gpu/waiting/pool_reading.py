"""What is read of a pool: its devices, nodes and pods by their selectors, and nothing of anybody else's."""

from typing import TYPE_CHECKING, Final

from api.foreign.core import Node, Pod
from api.kinds.gpudevice import GPUDevice
from api.kinds.gpunodeinventory import GPUNodeInventory
from api.kinds.gpupool import GPUPool
from api.names import POOL_LABEL, pool_node_label
from kube.resources import GPU_DEVICES, GPU_NODE_INVENTORIES, GPU_POOLS, NODES, PODS
from kubectl_gpu.cluster_source import ListQuery
from kubectl_gpu.errors import BadSelectorError
from pool.facts import device_facts, node_facts, pod_facts

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from kubectl_gpu.cluster_lists import ClusterLists
    from kubectl_gpu.waiting.allocation_copy import PoolObjects
    from pool.model import DeviceFacts

    P = TypeVar("P")

_NO_NODES: Final = "every node with a device counts as ready, without taints and labels"
_NO_INVENTORIES: Final = "topology policies and reports of kubelets are unknown"


def read_pools(lists: "ClusterLists", *, labels: str = "") -> "list[GPUPool]":
    """Return the pools with these labels, in alphabetical order."""
    pools = lists.read(ListQuery(GPU_POOLS, labels=labels), GPUPool, lambda pool: pool)
    return sorted(pools, key=lambda pool: pool.name)


def read_pool(lists: "ClusterLists", pool: GPUPool, objects: "PoolObjects") -> None:
    """Add the objects of a pool to those that are read already.

    Raises:
        ForbiddenError: devices, or pods of all namespaces, may not be listed.
    """
    known = {device.name for device in objects.devices}
    objects.pools.append(pool)
    objects.devices += [
        device for device in read_devices(lists, pool.name, _facts) if device.name not in known
    ]
    pods = ListQuery(PODS, labels=f"{POOL_LABEL}={pool.name}")
    objects.pods += lists.read(pods, Pod, pod_facts)
    nodes = lists.read_if_allowed(
        ListQuery(NODES, labels=pool_node_label(pool.name)), Node, node_facts, without=_NO_NODES
    )
    if nodes is not None:
        seen = {node.name for node in objects.nodes or ()}
        objects.nodes = [
            *(objects.nodes or ()),
            *(node for node in nodes if node.name not in seen),
        ]


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
