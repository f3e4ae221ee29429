"""What is known of one device."""

from collections import Counter
from typing import TYPE_CHECKING

from api.names import DeviceName
from console.data.tables.device_rows import device_row
from console.rows import ConditionEntry, DeviceDetail, LinkEntry
from pool.what_if.node_figures import units_holder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api.kinds.gpudevice import MIG, GPUDevice
    from api.meta import Condition
    from console.data.state.cluster import ClusterState
    from console.data.tables.visible_rows import RowViewer
    from console.rows import HolderEntry


def device_detail(cluster: "ClusterState", name: str, viewer: "RowViewer") -> DeviceDetail | None:
    """Return what a viewer sees of a device; None where there is none."""
    row, device = device_row(cluster, DeviceName(name)), cluster.devices.get(DeviceName(name))
    if row is None or device is None:
        return None
    status = device.status
    return DeviceDetail(
        name=name,
        row=viewer.device(row),
        uuid=status.uuid,
        memory_mib=status.memory_mib,
        compute_capability=status.compute_capability,
        numa_node=status.numa_node,
        mig=mig_text(status.mig),
        assignment=device.assignment or "",
        last_xid=status.last_xid.code if status.last_xid is not None else 0,
        last_xid_at=status.last_xid.time if status.last_xid is not None else "",
        links=tuple(_links(cluster, device)),
        conditions=tuple(map(_condition, status.conditions or ())),
        holders=tuple(_holders(cluster, device, viewer)),
    )


def mig_text(mig: "MIG") -> str:
    """Return mode and instances; empty for a device without MIG."""
    if not mig.capable:
        return ""
    profiles = Counter(instance.profile for instance in mig.instances or ())
    instances = ", ".join(f"{count} of {profile}" for profile, count in sorted(profiles.items()))
    return f"{mig.mode or 'mode unknown'}, {instances or 'no instance'}"


def _links(cluster: "ClusterState", device: "GPUDevice") -> "Iterator[LinkEntry]":
    entry = cluster.index.devices.get(device.name)
    names = [item.peer for item in entry.facts.links] if entry is not None else []
    for link, name in zip(device.status.links or (), names, strict=False):
        is_known = cluster.index.devices.get(name) is not None
        kind = link.type if link.count == 1 else f"{link.type} x{link.count}"
        yield LinkEntry(peer=name if is_known else link.peer, kind=kind)


def _condition(condition: "Condition") -> ConditionEntry:
    return ConditionEntry(
        type=condition.type,
        status=condition.status,
        reason=condition.reason,
        message=condition.message,
        since=condition.last_transition_time,
    )


def _holders(
    cluster: "ClusterState", device: "GPUDevice", viewer: "RowViewer"
) -> "Iterator[HolderEntry]":
    entry = cluster.index.devices.get(device.name)
    if entry is None:
        return
    now = cluster.now().monotonic
    found = [
        units_holder(cluster.reader, holder, len(units), now=now)
        for holder, units in cluster.index.claims.holders(entry).items()
    ]
    for element in sorted(found, key=lambda item: (-item.units, item.ref)):
        yield viewer.holder(element, now)
