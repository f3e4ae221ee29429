"""Rows of devices and nodes."""

from typing import TYPE_CHECKING

from api.names import PodUid, ReservationId
from console.rows import DeviceRow, NodeRow, NodeRowState
from inventory.display_state import DeviceFigures, figures_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api.kinds.gpudevice import GPUDevice
    from api.names import DeviceName, NodeName
    from console.data.state.cluster import ClusterState
    from pool.index.devices import DeviceEntry


def device_row(cluster: "ClusterState", name: "DeviceName") -> DeviceRow | None:
    """Return the row of a device, with all of its holders that are known; None where there is none."""
    entry, device = cluster.index.devices.get(name), cluster.devices.get(name)
    if entry is None or device is None:
        return None
    figures = device_figures(cluster, entry, device)
    return DeviceRow(
        node=entry.facts.node,
        address=device.status.pci.address,
        look=figures.display.word,
        pool=entry.facts.pool or "",
        product=device.status.product,
        units=figures.units,
        used=figures.used,
        reserved=figures.reserved,
        holders=tuple(sorted(set(_holders(cluster, entry)))),
    )


def device_figures(
    cluster: "ClusterState", entry: "DeviceEntry", device: "GPUDevice"
) -> DeviceFigures:
    """Return the core's figures; where not all pods are known, those that the leader last wrote."""
    if not cluster.is_exact:
        return figures_of(device)
    return DeviceFigures(
        is_faulted=entry.facts.is_faulted or entry.is_duplicate,
        is_draining=entry.is_draining,
        is_in_pool=entry.facts.pool is not None,
        units=entry.layout.count,
        used=entry.observed.bit_count(),
        reserved=(entry.assumed & ~entry.observed).bit_count(),
    )


def node_row(cluster: "ClusterState", name: "NodeName") -> NodeRow | None:
    """Return the row of a node; None where it has no device."""
    names = cluster.index.devices.on_node(name)
    if not names:
        return None
    pools = {cluster.index.devices[item].facts.pool for item in names}
    products = {device.status.product for item in names if (device := cluster.devices.get(item))}
    return NodeRow(
        state=node_state(cluster, name),
        products=tuple(sorted(filter(None, products))),
        pools=tuple(sorted(filter(None, pools))),
    )


def node_state(cluster: "ClusterState", name: "NodeName") -> NodeRowState:
    if not cluster.scope.nodes:
        return NodeRowState.UNKNOWN
    facts = cluster.index.nodes.get(name)
    if facts is None:
        return NodeRowState.MISSING
    if not facts.is_ready:
        return NodeRowState.NOT_READY
    return NodeRowState.CORDONED if facts.is_cordoned else NodeRowState.READY


def _holders(cluster: "ClusterState", entry: "DeviceEntry") -> "Iterator[str]":
    for holder in cluster.index.claims.holders(entry):
        # A reservation's id is no pod's uid.
        pod = cluster.reader.holder(PodUid(holder))
        if pod is not None:
            yield pod.ref
            continue
        reservation = cluster.reader.ledger.get(ReservationId(holder))
        if reservation is not None:
            yield reservation.pod
