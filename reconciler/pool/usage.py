"""Pods with units of a pool, by the allocation state: the pool is not empty before they end."""

from typing import TYPE_CHECKING

from api.names import owner_of
from inventory.pools.maintenance import PodUsage, PoolUsage
from pool.model import PodPhase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api.kinds.gpupool import GPUPool
    from api.names import PodUid, PoolName
    from pool.allocation_reader import AllocationReader
    from pool.index.figures import IndexFigures


def usage_of(reader: "AllocationReader", index: "IndexFigures", name: "PoolName") -> PoolUsage:
    """Return the pods with units of the pool, and its reserved units; reads its devices and nodes."""
    state, facts = index.state(name), index.pool(name)
    held: dict[PodUid, int] = {}
    devices = partitioned = 0
    for node in state.devices_by_node:
        entries = index.devices_on(name, node)
        whole = [item for item in entries if item.facts.uuid and not item.facts.is_faulted]
        devices += len(whole)
        partitioned += sum(1 for item in whole if item.layout.count and not item.layout.differs)
        for entry in entries:
            for uid, units in index.claims.occupants(entry).items():
                held[uid] = held.get(uid, 0) + len(units)
        if facts is not None:
            for uid, count in index.unaccounted.at_any(facts.resources, node).items():
                held[uid] = held.get(uid, 0) + count
    pods = sorted(_occupants(reader, held))
    reserved = state.capacity().reserved
    return PoolUsage(
        pods=tuple(pods), reserved=reserved, devices=devices, partitioned_devices=partitioned
    )


def waiting_pods(reader: "AllocationReader", index: "IndexFigures", pool: "GPUPool") -> int:
    """Return the number of pods that wait for units of the pool; a resource that another pool serves has none."""
    served = ((resource, index.pool_of(resource)) for resource in pool.resources)
    return sum(
        reader.pods.waiting_count(resource)
        for resource, serving in served
        if serving is not None and owner_of(serving.name) == pool.name
    )


def _occupants(reader: "AllocationReader", held: "dict[PodUid, int]") -> "Iterator[PodUsage]":
    for uid, count in held.items():
        pod = reader.holder(uid)
        if pod is not None and pod.phase is PodPhase.BOUND:
            yield PodUsage(namespace=pod.namespace, name=pod.name, uid=uid, units=count)
