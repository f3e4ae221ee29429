"""A snapshot as the cluster of a workload simulation: what is free now, and what pods have now stays taken."""

from collections import Counter
from typing import TYPE_CHECKING

from api.kinds.gpupool import AllocationMode, SlicePlacement
from pool.placement.simulation.model import (
    Cluster,
    SimulatedDevice,
    SimulatedNode,
    SimulatedPool,
)

if TYPE_CHECKING:
    from api.names import NodeName
    from cli.simulation.snapshot import Snapshot
    from pool.model import PoolFacts


def cluster_of(snapshot: "Snapshot") -> tuple[Cluster, list[str]]:
    """Return the cluster, and what of it is left out and why."""
    index = snapshot.index
    pools: dict[str, SimulatedPool] = {}
    notes: list[str] = []
    for facts in sorted(index.pools(), key=lambda pool: pool.name):
        if facts.closed is not None:
            notes.append(f"pool {facts.name} is left out: it allocates no units now")
        else:
            pools[facts.name] = _pool(facts, snapshot)
    nodes: list[SimulatedNode] = []
    left_out = 0
    for name in sorted(index.nodes):
        devices = _devices(name, pools, snapshot)
        if devices and index.nodes[name].is_placeable:
            nodes.append(_node(name, devices, snapshot))
        elif devices:
            left_out += 1
    if left_out:
        notes.append(f"nodes that are cordoned or not ready are left out: {left_out}")
    return Cluster(tuple(pools.values()), tuple(nodes)), notes


def _pool(facts: "PoolFacts", snapshot: "Snapshot") -> SimulatedPool:
    match facts.mode:
        case AllocationMode.EXCLUSIVE:
            return SimulatedPool(facts.name)
        case AllocationMode.TIME_SLICE:
            return SimulatedPool(facts.name, facts.slices_per_device, facts.slice_placement)
        case AllocationMode.MIG:  # pragma: no branch  # mypy proves that none is missing
            counts = [
                entry.layout.count
                for node in snapshot.index.state(facts.name).devices_by_node
                for entry in snapshot.index.devices_on(facts.name, node)
            ]
            most = max(counts, default=1)
            return SimulatedPool(facts.name, max(1, most), SlicePlacement.DISTINCT_DEVICES)


def _devices(
    node: "NodeName", pools: "dict[str, SimulatedPool]", snapshot: "Snapshot"
) -> tuple[SimulatedDevice, ...]:
    return tuple(
        SimulatedDevice(pool, entry.layout.count, entry.free.bit_count())
        for pool in sorted(snapshot.index.pools_on(node) & pools.keys())
        for entry in snapshot.index.devices_on(pool, node)
        if entry.layout.count
    )


def _node(
    name: "NodeName", devices: tuple[SimulatedDevice, ...], snapshot: "Snapshot"
) -> SimulatedNode:
    free = snapshot.free.get(name)
    return SimulatedNode(
        name,
        devices,
        cpu_milli=max(0, free.cpu_milli) if free is not None else None,
        memory_mib=max(0, free.memory_mib) if free is not None else None,
        pods=max(0, free.pods) if free is not None else None,
        model=_model(name, snapshot),
    )


def _model(node: "NodeName", snapshot: "Snapshot") -> str:
    """Return the product of most of the node's devices."""
    products = Counter(
        device.status.product
        for name in sorted(snapshot.index.devices.on_node(node))
        if (device := snapshot.caches.devices.get(name)) is not None
    )
    return products.most_common(1)[0][0] if products else ""
