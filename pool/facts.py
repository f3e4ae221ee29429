"""From the API's kinds to the facts that the core keeps.

Names that many facts share are interned: 40,000 devices of 5,000 nodes hold 5,000 node names.
"""

from sys import intern
from typing import TYPE_CHECKING

from api.annotations import decode_devices, decode_reservation
from api.names import DEVICES_ANNOTATION, RESERVATION_ANNOTATION, NodeName, PodUid, PoolName
from pool.demand import demand_of, units_by_resource
from pool.model import Demand, DeviceFacts, NodeFacts, PodFacts, PodPhase, PoolFacts

if TYPE_CHECKING:
    from api.core import Node, Pod
    from api.gpudevice import GPUDevice
    from api.gpupool import GPUPool


def pool_facts(pool: "GPUPool") -> PoolFacts:
    """Return what the core knows of a pool."""
    allocation = pool.spec.allocation
    return PoolFacts(
        name=pool.name,
        uid=pool.metadata.uid,
        resource=pool.resource_name,
        mode=allocation.mode,
        strategy=pool.strategy,
        ttl_s=pool.ttl_s,
        when_exhausted=pool.spec.reservation.when_exhausted,
        mig_profile=allocation.mig_profile or "",
        slices_per_device=allocation.slices_per_device or 1,
        is_terminating=pool.metadata.deletion_timestamp is not None,
    )


def device_facts(device: "GPUDevice") -> DeviceFacts:
    """Return what the core knows of a device; an ignored or unmanaged one is in no pool."""
    status = device.status
    is_kept_out = device.is_ignored or not status.managed or status.pool_ref is None
    return DeviceFacts(
        name=device.name,
        node=NodeName(intern(device.node)),
        uuid=status.uuid,
        pool=None
        if is_kept_out or status.pool_ref is None
        else PoolName(intern(status.pool_ref.name)),
        is_faulted=device.is_faulted,
        mig_instances=tuple((one.profile, one.uuid) for one in status.mig.instances or ()),
    )


def node_facts(node: "Node") -> NodeFacts:
    """Return what the core knows of a node."""
    return NodeFacts(
        name=NodeName(intern(node.metadata.name)),
        is_ready=node.is_ready,
        is_cordoned=node.spec.unschedulable,
        labels=node.metadata.labels or {},
        taints=tuple(node.spec.taints or ()),
    )


def pod_facts(pod: "Pod") -> PodFacts | None:
    """Return what the core knows of a pod; None when it asks for no unit of a pool.

    A pod that admission would have refused takes part in nothing, until somebody binds it around us.
    """
    demand = demand_of(pod.spec)
    astray: tuple[tuple[str, int], ...] = ()
    if demand is None:
        return None
    if not isinstance(demand, Demand):
        astray = tuple(sorted(units_by_resource(pod.spec).items()))
        if not astray or not pod.spec.node_name:
            return None
        resource, units = astray[0]
        demand = Demand(resource, (), units)
    return PodFacts(
        uid=PodUid(pod.metadata.uid),
        namespace=intern(pod.metadata.namespace),
        name=pod.metadata.name,
        demand=demand,
        phase=_phase_of(pod),
        node=NodeName(intern(pod.spec.node_name)) if pod.spec.node_name else None,
        devices=(None if astray else decode_devices(pod.metadata.annotation(DEVICES_ANNOTATION))),
        reservation=decode_reservation(pod.metadata.annotation(RESERVATION_ANNOTATION)),
        nominated_node=(
            NodeName(pod.status.nominated_node_name) if pod.status.nominated_node_name else None
        ),
        created=pod.metadata.creation_timestamp or "",
        priority=pod.spec.priority or 0,
        astray=astray,
    )


def _phase_of(pod: "Pod") -> PodPhase:
    if pod.is_terminal:
        return PodPhase.ENDED
    return PodPhase.BOUND if pod.spec.node_name else PodPhase.PENDING
