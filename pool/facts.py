"""Conversion of API kinds to facts.

Names that many facts share are interned: 40,000 devices of 5,000 nodes keep 5,000 node names.
"""

import contextlib
import functools
from dataclasses import replace
from sys import intern
from typing import TYPE_CHECKING, Final

import msgspec

from api import driver_upgrade, names
from api.annotations import decode_access, decode_devices, decode_reservation
from api.field_errors import UNDECODABLE
from api.foreign.karpenter import DISRUPTED_TAINT, DO_NOT_DISRUPT_ANNOTATION
from api.kinds.gpupool import Strategy
from api.quantity import parse_count
from pool import model
from pool.compute_resources import NOTHING, allocatable, most_pods, requested
from pool.demand import demand_of, named_resources, units_by_resource
from pool.layout import most_units_of_a_device
from pool.pods.selection import peer_of, selection_of

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping

    from api.foreign.core import Node, Pod
    from api.kinds.gpudevice import GPUDevice
    from api.kinds.gpunodeinventory import ContainerDevices, GPUNodeInventory
    from api.kinds.gpupool import GPUPool
    from pool.peer_rules import Peer
    from pool.pods.reported import PodReport


_limits: Final = msgspec.json.Decoder(driver_upgrade.UpgradeTimeLimit)
_OUR_GATES: Final = {names.CAPACITY_GATE}
_MOST_INADMISSIBLE: Final = 64
"""Pools that a pod which bypassed admission is counted in: more than a node has devices."""


def pool_facts(pool: "GPUPool") -> model.PoolFacts:
    facts = _facts_of_pool(pool)
    parts = (
        replace(facts, name=name, resource=resource, mig_profile=share[0], mig=(share,))
        for (name, resource), share in zip(pool.parts.items(), facts.mig, strict=False)
    )
    return replace(facts, parts=tuple(parts), largest_shape=_largest_shape(pool, facts))


def _facts_of_pool(pool: "GPUPool") -> model.PoolFacts:
    allocation = pool.allocation
    return model.PoolFacts(
        name=pool.name,
        uid=pool.metadata.uid,
        resource=pool.resource_name,
        mode=allocation.mode,
        strategy=pool.strategy,
        ttl_s=pool.ttl_s,
        when_exhausted=pool.spec.reservation.when_exhausted,
        mig_profile=allocation.mig_profile,
        mig=allocation.shares if allocation.mig else (),
        slices_per_device=allocation.slices_per_device,
        slice_placement=pool.slice_placement,
        device_topology=pool.spec.scheduling.device_topology,
        reserve=pool.spec.scheduling.reserve,
        spread_key=pool.spec.scheduling.topology_key if pool.strategy is Strategy.SPREAD else "",
        created=pool.metadata.creation_timestamp or "",
        is_terminating=pool.metadata.deletion_timestamp is not None,
        is_in_maintenance=pool.is_in_maintenance,
        drift="" if pool.is_changing or pool.drift is None else pool.drift.message,
    )


def _largest_shape(pool: "GPUPool", facts: model.PoolFacts) -> int:
    """Return the most units of a node that may be added; 0 where none is."""
    scaling = pool.spec.autoscaling
    if scaling is None or not pool.scales:
        return 0
    most = most_units_of_a_device(facts)
    return max(
        (shape.devices * (shape.units_per_device or most) for shape in scaling.shapes or ()),
        default=0,
    )


def device_facts(device: "GPUDevice") -> model.DeviceFacts:
    """Return the facts of a device; an ignored or unmanaged one leaves its pool."""
    status = device.status
    is_kept_out = device.is_ignored or not status.managed
    return model.DeviceFacts(
        name=device.name,
        node=names.NodeName(intern(device.node)),
        uuid=status.uuid,
        pool=None if status.pool_ref is None else names.PoolName(intern(status.pool_ref.name)),
        is_faulted=device.is_faulted,
        needed_action=intern(device.needed_action),
        is_draining=device.is_draining or is_kept_out,
        mig_instances=tuple(
            (instance.profile, instance.uuid) for instance in status.mig.instances or ()
        ),
        mig_capacities=_shared_counts(tuple((status.mig.capacities or {}).items())),
        is_partitioned=status.mig.is_partitioned,
        created=intern(device.metadata.creation_timestamp or ""),
        compute_capability=intern(status.compute_capability),
        numa_node=status.numa_node,
        links=tuple(_link(link.peer, link.type, link.count) for link in status.links or ()),
    )


@functools.lru_cache(maxsize=64)
def _shared_counts(counts: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """Return counts that the devices of a model share."""
    return counts


@functools.lru_cache(maxsize=1024)
def _link(peer: str, type_: str, count: int) -> model.DeviceLink:
    """Return a link; the devices of a node, which are read together, share those to one peer."""
    return model.DeviceLink(names.DeviceName(intern(peer.replace(":", "-"))), intern(type_), count)


def node_facts(node: "Node") -> model.NodeFacts:
    cpu_milli, memory_mib = allocatable(node.status.allocatable)
    taints = {taint.key for taint in node.spec.taints or ()}
    return model.NodeFacts(
        name=names.NodeName(intern(node.metadata.name)),
        is_ready=node.is_ready,
        is_cordoned=node.spec.unschedulable,
        is_leaving=node.metadata.deletion_timestamp is not None or DISRUPTED_TAINT in taints,
        is_starting=names.AGENT_NOT_READY_TAINT in taints,
        is_withheld=node.metadata.annotation(driver_upgrade.UNITS_WITHHELD_ANNOTATION)
        == driver_upgrade.DRIVER_UPGRADE,
        returns_by=_returns_by(node),
        labels=_shared(node.metadata.labels),
        taints=tuple(node.spec.taints or ()),
        pool_taints=node.metadata.annotation(names.POOL_TAINTS_ANNOTATION) or "",
        do_not_disrupt=node.metadata.annotation(DO_NOT_DISRUPT_ANNOTATION) or "",
        keep_until=node.metadata.annotation(names.KEEP_UNTIL_ANNOTATION) or "",
        resource_version=node.metadata.resource_version,
        uid=node.metadata.uid,
        owns_present_label=node.metadata.owns_label(
            names.PRESENT_LABEL_MANAGER, names.PRESENT_LABEL
        ),
        owns_reboot_cordon=node.metadata.owns_cordon(names.REPAIR_MANAGER),
        cpu_milli=cpu_milli,
        memory_mib=memory_mib,
        most_pods=most_pods(node.status.allocatable),
        kernel=intern(node.status.node_info.kernel_version),
        runtime=intern(node.status.node_info.container_runtime_version),
        # Nodes of one kind have the same.
        deploy_labels=intern(node.metadata.annotation(names.DEPLOY_LABELS_ANNOTATION) or ""),
        upgrade_enabled=intern(node.metadata.annotation(names.UPGRADE_ENABLED_ANNOTATION) or ""),
        pool_units=_pool_units(node.status.allocatable),
    )


def _returns_by(node: "Node") -> "dt.datetime | None":
    """Return until when the upgrade of the node's driver may take its present step; a cordon of others outlasts it."""
    state = node.metadata.label(driver_upgrade.UPGRADE_STATE_LABEL)
    if state not in driver_upgrade.IN_PROGRESS_VALUES:
        return None
    if node.spec.unschedulable and not node.metadata.owns_cordon(driver_upgrade.CORDON_MANAGER):
        return None
    try:
        limit = _limits.decode(
            node.metadata.annotation(driver_upgrade.UPGRADE_RECORD_ANNOTATION) or ""
        )
    except UNDECODABLE:
        return None
    has_zone = limit.until is not None and limit.until.tzinfo is not None
    return limit.until if has_zone and limit.state == state else None


def _shared(labels: "Mapping[str, str] | None") -> "Mapping[str, str]":
    """Return labels whose texts nodes share: those of feature discovery and of operands are the same on most."""
    return {intern(key): intern(value) for key, value in (labels or {}).items()}


def _pool_units(
    quantities: "Mapping[str, str | int | float] | None",
) -> tuple[tuple[str, int], ...]:
    found: list[tuple[str, int]] = []
    for name, value in (quantities or {}).items():
        if not name.startswith(names.RESOURCE_PREFIX):
            continue
        with contextlib.suppress(ValueError):  # kubelet writes whole numbers
            found.append((intern(name), parse_count(str(value))))
    return tuple(sorted(found))


def observed_pod(pod: "Pod") -> "model.AnyPod | None":
    """Return the facts of a pod that requests units, or takes CPU and memory of a node; None for any other."""
    facts = pod_facts(pod)
    if facts is not None or not pod.spec.node_name:
        return facts
    return model.UnitlessPod(
        names.PodUid(pod.metadata.uid),
        names.NodeName(intern(pod.spec.node_name)),
        NOTHING if pod.is_terminal else requested(pod),
        None if pod.is_terminal else _peer(pod),
    )


def _peer(pod: "Pod") -> "Peer":
    return peer_of(pod.spec, pod.metadata.namespace, pod.metadata.labels or {})


def pod_facts(pod: "Pod") -> model.PodFacts | None:
    """Return the facts of a pod; None when it asks for no unit of a pool.

    A pod that admission would have denied is ignored until it is bound by another scheduler. A bound pod with an
    unreadable demand or annotation is unaccounted: it has units, whatever is wrong with it.
    """
    try:
        return _facts_of(pod)
    except Exception:
        facts = _unaccounted(pod)
        if facts is None:
            raise
        return facts


def _facts_of(pod: "Pod") -> model.PodFacts | None:
    demand = demand_of(pod.spec, pod.metadata.namespace)
    inadmissible_units: tuple[tuple[str, int], ...] = ()
    if demand is None:
        return None
    if not isinstance(demand, model.Demand):
        inadmissible_units = tuple(sorted(units_by_resource(pod.spec).items())[:_MOST_INADMISSIBLE])
        if not inadmissible_units or not pod.spec.node_name:
            return None
        resource, units = inadmissible_units[0]
        demand = model.Demand(resource, (), units)
    phase = _phase_of(pod)
    gates = {gate.name for gate in pod.spec.scheduling_gates or ()}
    return model.PodFacts(
        uid=names.PodUid(pod.metadata.uid),
        namespace=intern(pod.metadata.namespace),
        name=pod.metadata.name,
        demand=demand,
        phase=phase,
        node=names.NodeName(intern(pod.spec.node_name)) if pod.spec.node_name else None,
        devices=(
            None
            if inadmissible_units
            else decode_devices(pod.metadata.annotation(names.DEVICES_ANNOTATION))
        ),
        reservation=decode_reservation(pod.metadata.annotation(names.RESERVATION_ANNOTATION)),
        access=decode_access(pod.metadata.annotation(names.ACCESS_ANNOTATION)),
        nominated_node=(
            names.NodeName(pod.status.nominated_node_name)
            if pod.status.nominated_node_name
            else None
        ),
        created=pod.metadata.creation_timestamp or "",
        priority=pod.spec.priority or 0,
        is_gated=not gates <= _OUR_GATES,
        awaits_capacity=names.CAPACITY_GATE in gates,
        selection=selection_of(pod) if phase is model.PodPhase.PENDING else None,
        inadmissible_units=inadmissible_units,
        requests=requested(pod),
        peer=_peer(pod),
        units_condition=_units_condition(pod, phase),
        finalizers=(
            tuple(map(intern, pod.metadata.finalizers or ()))
            if pod.is_contradicted and pod.metadata.deletion_timestamp
            else ()
        ),
    )


def _units_condition(pod: "Pod", phase: model.PodPhase) -> model.UnitsCondition | None:
    for condition in pod.status.conditions or ():
        if condition.type != names.UNITS_CONDITION:
            continue
        is_true = condition.status == "True"
        if is_true and phase is not model.PodPhase.PENDING:
            return None
        return model.UnitsCondition(
            is_true,
            intern(condition.reason),
            # Pods that wait for the same thing say the same.
            intern(condition.message),
            condition.last_transition_time or "",
            condition.last_probe_time or "",
        )
    return None


def _unaccounted(pod: "Pod") -> model.PodFacts | None:
    """Return a bound pod of which only its pools are known; None for any other."""
    resources = named_resources(pod.spec)
    if not resources or not pod.spec.node_name:
        return None
    return model.PodFacts(
        uid=names.PodUid(pod.metadata.uid),
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        demand=model.Demand(resources[0], (), 1),
        phase=_phase_of(pod),
        node=names.NodeName(pod.spec.node_name),
        # As many as anything that names a pool has at least; one is enough to close the node.
        inadmissible_units=tuple((resource, 1) for resource in resources),
    )


def kubelet_of(inventory: "GPUNodeInventory") -> model.KubeletTopology | None:
    """Return the settings of the node's kubelet; None where they are unknown."""
    current = inventory.status.kubelet
    if current is None:
        return None
    return model.KubeletTopology(
        current.topology_manager_policy,
        current.topology_manager_scope,
        knows_numa_nodes=bool(current.aligned_resources),
    )


def reports_of(inventory: "GPUNodeInventory") -> "dict[names.PodUid, PodReport]":
    """Return a node's report of each pod; entries without a uid are dropped, since no pod matches them."""
    found: dict[names.PodUid, list[ContainerDevices]] = {}
    for entry in inventory.status.allocations or ():
        found.setdefault(names.PodUid(entry.uid), []).append(entry)
    return {uid: tuple(entries) for uid, entries in found.items()}


def _phase_of(pod: "Pod") -> model.PodPhase:
    if pod.has_ended:
        return model.PodPhase.ENDED
    if pod.spec.node_name:
        return model.PodPhase.BOUND
    # kube-scheduler skips a pod that is being deleted, and the API server refuses its Binding.
    return model.PodPhase.ENDED if pod.metadata.deletion_timestamp else model.PodPhase.PENDING
