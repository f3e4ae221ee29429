"""A copy of the allocation state, filled from lists as the server's sinks fill theirs.

Of the server's sinks it imports nothing: those log, count and publish. `tests/unit/kubectl_gpu` shows that both fill
the same state from the same objects.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from api.names import NodeName
from pool.allocation_state import AllocationState
from pool.facts import kubelet_of, pool_facts, reports_of
from pool.model import Instant, NodeFacts, PodFacts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from api.kinds.gpunodeinventory import GPUNodeInventory
    from api.kinds.gpupool import GPUPool
    from pool.model import DeviceFacts

_HOSTNAME = "kubernetes.io/hostname"


@final
@dataclass(slots=True, kw_only=True)
class PoolObjects:
    """Objects of some pools, reduced to what decides."""

    pools: "list[GPUPool]" = field(default_factory=list)
    devices: "list[DeviceFacts]" = field(default_factory=list)
    nodes: "list[NodeFacts] | None" = None
    """None where they may not be listed: then every node of a device counts as ready."""
    inventories: "list[GPUNodeInventory]" = field(default_factory=list)
    pods: "list[PodFacts]" = field(default_factory=list)


def allocation_of(objects: PoolObjects, now: Instant) -> AllocationState:
    """Return the state that a server has once it has started with these objects."""
    state = AllocationState()
    index = state.index
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
    for pod in sorted(objects.pods, key=lambda one: one.phase.turn):
        state.observe_pod(pod, now)
    return state


def _unseen(devices: "Iterable[DeviceFacts]") -> list[NodeFacts]:
    names = sorted({device.node for device in devices})
    return [NodeFacts(name=name, labels={_HOSTNAME: name}) for name in names]
