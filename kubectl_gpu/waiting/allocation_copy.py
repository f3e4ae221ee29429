"""A copy of the allocation state, filled from lists as the server's sinks fill theirs.

Of the server's sinks it imports nothing: those log, count and publish. `tests/unit/kubectl_gpu` shows that both fill
the same state from the same objects.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from api.clock import Instant
from api.names import NodeName
from api.well_known_labels import HOSTNAME_LABEL
from kernelcache.cache_index import CacheIndex
from pool.allocation_state import AllocationState
from pool.facts import kubelet_of, pool_facts, reports_of
from pool.index.device_index import DeviceIndex
from pool.model import NodeFacts, UnitlessPod

if TYPE_CHECKING:
    from collections.abc import Iterable

    from api.kinds.gpunodeinventory import GPUNodeInventory
    from api.kinds.gpupool import GPUPool
    from api.names import PodUid
    from pool.model import AnyPod, DeviceFacts


@final
@dataclass(slots=True, kw_only=True)
class PoolObjects:
    """Objects of some pools, reduced to what decides."""

    pools: "list[GPUPool]" = field(default_factory=list)
    devices: "list[DeviceFacts]" = field(default_factory=list)
    nodes: "list[NodeFacts] | None" = None
    """None where they may not be listed: then every node of a device counts as ready."""
    inventories: "list[GPUNodeInventory]" = field(default_factory=list)
    pods: "dict[PodUid, AnyPod]" = field(default_factory=dict)
    """Pods of the pools, and all pods of the nodes, or of the cluster."""
    are_pods_whole: bool = True
    """Whether all pods of the nodes are read, those without units included."""
    caches: "CacheIndex" = field(default_factory=CacheIndex)
    """Kernel caches that the pods in question mount; those that may not be read are reported as a gap."""


def allocation_of(objects: PoolObjects, now: Instant) -> AllocationState:
    """Return the state that a server has once it has started with these objects."""
    index = DeviceIndex(caches=objects.caches, has_all_pods=objects.are_pods_whole)
    state = AllocationState(index)
    for device in objects.devices:
        index.replace_device(device)
    for pool in objects.pools:
        index.replace_pool(pool_facts(pool))
    nodes = objects.nodes if objects.nodes is not None else _unseen(objects.devices)
    for node in nodes:
        index.replace_node(node)
    for inventory in objects.inventories:
        name = NodeName(inventory.metadata.name)
        index.replace_kubelet(name, kubelet_of(inventory))
        state.observe_reports(name, reports_of(inventory))
    pods = [pod for pod in objects.pods.values() if not isinstance(pod, UnitlessPod)]
    for pod in sorted(pods, key=lambda pod: pod.phase.observe_order):
        state.observe_pod(pod, now)
    for other in objects.pods.values():
        if isinstance(other, UnitlessPod):
            state.observe_unitless(other)
    return state


def _unseen(devices: "Iterable[DeviceFacts]") -> list[NodeFacts]:
    names = sorted({device.node for device in devices})
    return [NodeFacts(name=name, labels={HOSTNAME_LABEL: name}) for name in names]
