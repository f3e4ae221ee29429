"""Gauges of pools, pods and reservations: exported by the leader only, or sums over replicas would be wrong."""

import datetime as dt
from collections import Counter
from typing import TYPE_CHECKING, Final

from api.names import owner_of
from kube.batches import steps
from pool.fitting_pods import SIZES
from pool.reservations.reservation import ReservationPhase
from reconciler.pool.fragmentation_gauges import ALIGNED, ANY
from reconciler.pool.namespace_usage import forget_namespace_usage
from reconciler.pool.unit_seconds import forget_unit_seconds
from reconciler.pool.usage import waiting_pods
from scheduler.outcome import PlacementQuality
from telemetry import metrics
from telemetry.conditions import PoolCondition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from api.clock import Instant
    from api.kinds.gpupool import PoolCapacity
    from api.meta import Condition
    from api.names import NodeName, PoolName
    from pool.allocation_reader import AllocationReader
    from pool.catalog import Catalog
    from pool.index.figures import IndexFigures
    from pool.model import Capacity

_OF_POOLS: Final = (
    metrics.ALLOCATION_MISMATCHES,
    metrics.POOL_CAPACITY_TOTAL,
    metrics.POOL_CAPACITY_RESERVED,
    metrics.POOL_CAPACITY_USED,
    metrics.POOL_CAPACITY_AVAILABLE,
    metrics.POOL_CAPACITY_UNHEALTHY,
    metrics.POOL_CAPACITY_MISSING,
    metrics.POOL_LARGEST_FREE,
    metrics.POOL_ASSIGNMENTS,
    metrics.DEVICES_RESERVED,
    metrics.RESERVATION_AGE,
    metrics.AGEING_ACCESS,
    metrics.PODS_WAITING,
    metrics.PODS_LONGEST_WAIT,
    metrics.POOL_FRAGMENTATION,
)
_OF_PARTS: Final = (
    metrics.DEVICE_INFO,
    metrics.POOL_CONDITION,
    metrics.POOL_FITTING_PODS,
    metrics.POOL_LARGEST_DEMAND,
    metrics.POOL_NODE_SLOTS,
    metrics.POOL_PLACEABLE_PODS,
)
DEVICES_A_STEP: Final = 5_000
_OF_ALL: Final = (
    metrics.DEVICES_UNASSIGNED,
    metrics.INDEX_GENERATION,
    metrics.PODS_UNACCOUNTED,
    metrics.UNITS_HELD_TWICE,
)


def show_capacity(
    pool: "PoolName", capacity: "Capacity | PoolCapacity", largest_free: int, *, missing: int
) -> None:
    """Set the gauges of a pool's units."""
    metrics.POOL_CAPACITY_TOTAL.labels(pool).set(capacity.total)
    metrics.POOL_CAPACITY_RESERVED.labels(pool).set(capacity.reserved)
    metrics.POOL_CAPACITY_USED.labels(pool).set(capacity.used)
    metrics.POOL_CAPACITY_AVAILABLE.labels(pool).set(capacity.available)
    metrics.POOL_CAPACITY_UNHEALTHY.labels(pool).set(capacity.unhealthy)
    metrics.POOL_CAPACITY_MISSING.labels(pool).set(missing)
    metrics.POOL_LARGEST_FREE.labels(pool).set(largest_free)


def show_conditions(pool: "PoolName", conditions: "Iterable[Condition]") -> None:
    """Set the gauges of a pool's conditions; one that is not there is not True."""
    true = {condition.type for condition in conditions if condition.status == "True"}
    for type_ in PoolCondition:
        metrics.POOL_CONDITION.labels(pool, type_.value).set(type_.value in true)


def show_slots(
    pool: "PoolName", units: "Mapping[NodeName, int]", before: "Mapping[NodeName, int]"
) -> None:
    """Set the gauges of a pool's units by node, given the exported ones; removed nodes lose theirs."""
    for node in before.keys() - units.keys():
        metrics.POOL_NODE_SLOTS.remove(pool, node)
    for node, count in units.items():
        if before.get(node) != count:
            metrics.POOL_NODE_SLOTS.labels(pool, node).set(count)


def show_assignments(pool: "PoolName", devices: int) -> None:
    """Set the gauge of a pool's devices."""
    metrics.POOL_ASSIGNMENTS.labels(pool).set(devices)


def forget_slots(pool: "PoolName", nodes: "Iterable[NodeName]") -> None:
    """Drop the gauges of a pool's units by node."""
    for node in nodes:
        metrics.POOL_NODE_SLOTS.remove(pool, node)


def showing_sums(
    reader: "AllocationReader", catalog: "Catalog", now: "Instant", *, index: "IndexFigures"
) -> "Iterator[None]":
    """Set them in steps of a millisecond: one pass over all devices takes ten.

    Each gauge is set at once; the objects may change while they are counted.
    """
    metrics.INDEX_GENERATION.set(index.generation)
    metrics.UNITS_HELD_TWICE.set(len(reader.shared_units()))
    metrics.PODS_UNACCOUNTED.set(len(index.unaccounted))
    yield from _showing_devices(index, catalog)
    _show_reservations(reader, catalog, now)
    for name, pool in catalog.pools.items():
        # Also when it changes; its status, with which that comes, waits for a slow API server.
        state = index.state(name)
        missing = sum(state.differing.values())
        show_capacity(name, state.capacity(), state.largest_free(), missing=missing)
        waiting = waiting_pods(reader, index, pool)
        metrics.PODS_WAITING.labels(name).set(waiting)
        times = filter(None, map(reader.pods.waiting_since, pool.resources if waiting else ()))
        since = min(times, default="")
        metrics.PODS_LONGEST_WAIT.labels(name).set(_age_s(since, now.utc))
        metrics.ALLOCATION_MISMATCHES.labels(name)
        metrics.POD_WAIT.labels(name)
        metrics.POD_RESERVED_WAIT.labels(name)
        for quality in PlacementQuality:
            metrics.PLACEMENTS.labels(name, quality.value)


def forget_pool(name: "PoolName") -> None:
    """Drop the gauges of a pool that is gone."""
    for gauge in _OF_POOLS:
        gauge.remove(name)
    for type_ in PoolCondition:
        metrics.POOL_CONDITION.remove(name, type_.value)
    metrics.POD_WAIT.remove(name)
    metrics.POD_RESERVED_WAIT.remove(name)
    forget_unit_seconds(name)
    for quality in PlacementQuality:
        metrics.PLACEMENTS.remove(name, quality.value)
    for size in SIZES:
        metrics.POOL_FITTING_PODS.remove(name, str(size))
    for topology in (ANY, ALIGNED):
        metrics.POOL_LARGEST_DEMAND.remove(name, topology)
        for size in SIZES:
            metrics.POOL_PLACEABLE_PODS.remove(name, str(size), topology)


def forget_all() -> None:
    """Remove the gauges of all pools, and reset the sums; what was counted at binds stays."""
    for gauge in (*_OF_POOLS, *_OF_PARTS):
        gauge.clear()
    for gauge in _OF_ALL:
        gauge.set(0)
    metrics.RESERVATIONS.clear()
    forget_namespace_usage()


def _showing_devices(index: "IndexFigures", catalog: "Catalog") -> "Iterator[None]":
    unassigned = 0
    reserved: Counter[PoolName] = Counter()
    for device in steps(list(index.devices.all()), DEVICES_A_STEP):
        for entry in device:
            pool = entry.facts.pool
            if pool is None:
                unassigned += 1
            elif entry.confirmed & ~entry.observed:
                reserved[pool] += 1
        yield
    metrics.DEVICES_UNASSIGNED.set(unassigned)
    for name in catalog.pools:
        metrics.DEVICES_RESERVED.labels(name).set(reserved[name])


def _show_reservations(reader: "AllocationReader", catalog: "Catalog", now: "Instant") -> None:
    phases = dict.fromkeys(ReservationPhase, 0)
    for reservation in reader.ledger.all():
        if reservation.has_units:
            phases[reservation.phase] += 1
    for phase, count in phases.items():
        metrics.RESERVATIONS.labels(phase.value).set(count)
    created: dict[PoolName, float] = {}
    for name, reservation in reader.ledger.oldest().items():
        pool = owner_of(name)
        created[pool] = min(reservation.created_at, created.get(pool, now.monotonic))
    for name in catalog.pools:
        age_s = now.monotonic - created.get(name, now.monotonic)
        metrics.RESERVATION_AGE.labels(name).set(age_s)


def _age_s(created_at: str, now: dt.datetime) -> float:
    try:
        created = dt.datetime.fromisoformat(created_at)
    except ValueError:
        return 0.0
    return max(0.0, (now - created).total_seconds()) if created.tzinfo is not None else 0.0
