"""Findings about the control plane, pools, nodes and devices, each with its cure, in the words of `kubectl gpu check`."""

from typing import TYPE_CHECKING, final

import msgspec

from api.names import NodeName
from console.rows import HealthRow, RowHealth
from inventory.assignment.device_decisions import pools_by_device
from manifests import constants
from telemetry.object_faults import (
    ObjectFault,
    device_fault,
    is_awaiting_decision,
    is_lease_old,
    leader_fault,
    node_fault,
    pool_fault,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from api.kinds.gpudevice import GPUDevice
    from api.names import DeviceName, PoolName
    from console.data.state.cluster import ClusterState

LEADER = "leader"
SCHEDULER = "kube-scheduler"


@final
class HealthEntry(msgspec.Struct, frozen=True):
    """A finding, and who may read what of it."""

    row: HealthRow
    gist: HealthRow | None = None
    """Row for those who may not see the pods of all namespaces: the text may name pods."""
    is_of_node: bool = False
    """It says what state a node is in."""


def control_plane_health(
    cluster: "ClusterState", interrupted: "Sequence[str]", unreadable: "Mapping[str, int]"
) -> "Iterator[tuple[str, HealthEntry]]":
    """Yield findings about the leader, kube-scheduler, and the watches of this process.

    Args:
        cluster: as this process knows it.
        interrupted: resources that are not watched at the moment.
        unreadable: numbers of objects that cannot be decoded, by resource.
    """
    for resource in interrupted:
        text = f"{resource} are not watched at the moment: what is shown of them may be old"
        yield f"watch of {resource}", _entry(ObjectFault(text, "kubectl get --raw /readyz"))
    for resource, count in unreadable.items():
        text = (
            f"{count} {resource} cannot be decoded and are left out, or shown as they were before"
        )
        yield f"unreadable {resource}", _entry(ObjectFault(text, "kubectl gpu check"))
    if not cluster.scope.leases_in:
        return
    now, leases = cluster.now().utc, cluster.leases.by_name
    lease = leases.get(constants.LEASE_NAME)
    fault = leader_fault(lease, now, deployment=constants.NAME, namespace=cluster.scope.leases_in)
    if fault is not None:
        yield LEADER, _entry(fault)
    elif lease is not None:
        text = f"{lease.spec.holder_identity} leads"
        yield LEADER, HealthEntry(HealthRow(state=RowHealth.GOOD, text=text))
    scheduler = leases.get(constants.SCHEDULER_LEASE_NAME)
    if scheduler is not None and is_lease_old(scheduler, now):
        text = f"no kube-scheduler has renewed its Lease since {scheduler.spec.renew_time}"
        cure = (
            f"kubectl -n {cluster.scope.leases_in} logs deployment/{constants.SCHEDULER_DEPLOYMENT}"
        )
        yield SCHEDULER, _entry(ObjectFault(text, cure, is_severe=True))


def pool_subject(name: "PoolName") -> str:
    return f"GPUPool {name}"


def pool_health(cluster: "ClusterState", name: "PoolName") -> HealthEntry | None:
    pool = cluster.catalog.pools.get(name)
    fault = pool_fault(pool) if pool is not None else None
    return None if fault is None else _entry(fault)


def device_subject(name: "DeviceName") -> str:
    return f"GPUDevice {name}"


def device_health(cluster: "ClusterState", name: "DeviceName") -> HealthEntry | None:
    device = cluster.devices.get(name)
    fault = device_fault(device) if device is not None else None
    if device is None or fault is None:
        return None
    row = _row(fault)
    if is_awaiting_decision(device):
        row = msgspec.structs.replace(row, pools=_candidates(cluster, device))
    return HealthEntry(row)


def _candidates(cluster: "ClusterState", device: "GPUDevice") -> tuple[str, ...]:
    inventory = cluster.inventories.by_name.get(NodeName(device.node))
    return tuple(pools_by_device(inventory).get(device.name, ())) if inventory is not None else ()


def inventory_subject(name: "NodeName") -> str:
    return f"GPUNodeInventory {name}"


def inventory_health(cluster: "ClusterState", name: "NodeName") -> HealthEntry | None:
    """Return what is wrong with the GPU software of a node, or with its agent."""
    inventory = cluster.inventories.by_name.get(name)
    fault = node_fault(inventory) if inventory is not None else None
    if fault is None:
        return None
    gist = msgspec.structs.replace(fault, text=fault.gist)
    return HealthEntry(_row(fault), gist=_row(gist) if fault.gist else None)


def node_subject(name: "NodeName") -> str:
    return f"Node {name}"


def node_health(cluster: "ClusterState", name: "NodeName") -> HealthEntry | None:
    """Return what keeps pods from the devices of a node; None where nothing does, and for a node without devices."""
    devices = len(cluster.index.devices.on_node(name))
    if not cluster.scope.nodes or not devices:
        return None
    fault = _node_fault(cluster, name, "1 device" if devices == 1 else f"{devices} devices")
    return None if fault is None else HealthEntry(_row(fault), is_of_node=True)


def _node_fault(cluster: "ClusterState", name: "NodeName", devices: str) -> ObjectFault | None:
    facts = cluster.index.nodes.get(name)
    if facts is None:
        return ObjectFault(
            f"there is no such Node: no pod gets its {devices}",
            f"kubectl get node {name}",
            is_severe=True,
        )
    if not facts.is_ready:
        return ObjectFault(
            f"not ready: no pod gets its {devices}", f"kubectl describe node {name}", is_severe=True
        )
    pools = unaccounted_pools(cluster, name)
    if pools:
        return ObjectFault(
            f"a pod runs on unknown devices: the node takes no further pod of pool {', '.join(pools)}",
            "kubectl gpu check",
            is_severe=True,
        )
    if facts.is_cordoned:
        return ObjectFault(
            f"cordoned: no further pod gets its {devices}", f"kubectl uncordon {name}"
        )
    return None


def unaccounted_pools(cluster: "ClusterState", name: "NodeName") -> list[str]:
    """Return the pools of which a pod runs on unknown devices of a node."""
    if not cluster.is_exact or not len(cluster.index.unaccounted):
        return []
    return sorted(
        pool
        for pool in cluster.index.pools_on(name)
        if (facts := cluster.index.pool(pool)) is not None
        and cluster.index.unaccounted.at_any(facts.resources, name)
    )


def _entry(fault: ObjectFault) -> HealthEntry:
    return HealthEntry(_row(fault))


def _row(fault: ObjectFault) -> HealthRow:
    state = RowHealth.BAD if fault.is_severe else RowHealth.WARNING
    return HealthRow(state=state, text=fault.text, cure=fault.cure)
