"""The recent demand of each pool: what its pods asked for, older pods counting less.

A pod's weight halves with each half-life between its creation and that of later pods. Weights are relative, so
they do not depend on the present time or on the order in which pods are observed, and a server that restarts
gets the same demand from the pods that still exist.
"""

import heapq
from typing import TYPE_CHECKING, Final, final

import msgspec

from api.kinds.gpupool import AllocationMode, SlicePlacement
from api.status_conditions import parse_time
from pool.compute_resources import NOTHING, ComputeResources
from pool.layout import most_units_of_a_device
from pool.placement.fragmentation.target_workload import WHOLE_DEVICE, TargetShape, TargetWorkload
from pool.placement.unit_request import UnitRequest, request_by_containers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pool.model import PodFacts, PoolFacts

HALF_LIFE_S: Final = 24 * 3600.0
"""A day: what ran yesterday at this hour counts half."""
MAX_SHAPES: Final = 256
"""Most shapes that are kept for a pool; of more the lightest are dropped, those of a few old pods."""
MAX_RESOURCES: Final = 1024
"""Most resource names that are counted; names that no pool serves come from pods that bypassed admission."""
_RENEWED_BY: Final = 1 / 16
"""A workload is derived again once so much of its weight is new: each time, nodes are valued again."""
_MOST_HALVINGS: Final = 512.0
"""Weights relative to one time stay within the range of a float."""


class RequestedShape(msgspec.Struct, frozen=True, cache_hash=True):
    """What a pod asked for, in units: a pool that is divided again measures it again."""

    request: UnitRequest
    requests: ComputeResources = NOTHING


@final
class RecentDemand:
    """The demand on one pool."""

    def __init__(self, half_life_s: float = HALF_LIFE_S) -> None:
        self._half_life_s = half_life_s
        self._weights: dict[RequestedShape, float] = {}
        # relative to a pod that is created at the reference time
        self._reference_s: float | None = None
        self._total = self._derived = 0.0
        # weight now, and when the workload was derived
        self._workload: tuple[PoolFacts, TargetWorkload] | None = None

    def observe(self, shape: RequestedShape, created_s: float) -> None:
        """Count a pod that was created at a time in seconds."""
        if self._reference_s is None:
            self._reference_s = created_s
        halvings = (created_s - self._reference_s) / self._half_life_s
        if halvings > _MOST_HALVINGS:
            self._move_reference(created_s, 0.5**halvings if halvings < 1000 else 0.0)
            halvings = 0.0
        weight = 2.0 ** max(halvings, -_MOST_HALVINGS)
        self._weights[shape] = self._weights.get(shape, 0.0) + weight
        self._total += weight
        if len(self._weights) > 2 * MAX_SHAPES:
            kept = heapq.nlargest(MAX_SHAPES, self._weights.items(), key=lambda item: item[1])
            self._weights = dict(kept)
            self._total = sum(self._weights.values())

    def workload(self, pool: "PoolFacts") -> TargetWorkload:
        """Return the shapes with their weights; the same object while little has changed."""
        cached = self._workload
        is_current = self._total <= self._derived * (1 + _RENEWED_BY)
        if cached is not None and is_current and cached[0] == pool:
            return cached[1]
        workload = _workload(pool, self._weights.items())
        self._workload, self._derived = (pool, workload), self._total
        return workload

    def _move_reference(self, to_s: float, factor: float) -> None:
        self._reference_s = to_s
        self._weights = {shape: weight * factor for shape, weight in self._weights.items()}
        self._total *= factor
        self._derived *= factor


@final
class RecentDemands:
    """The demand on each resource that pods have asked for."""

    def __init__(
        self,
        half_life_s: float = HALF_LIFE_S,
        *,
        usual: "Mapping[str, Sequence[tuple[RequestedShape, float]]] | None" = None,
    ) -> None:
        """Start without pods.

        Args:
            half_life_s: time after which a pod counts half.
            usual: what pods ask for, with weights, in a pool that has had none, by its name; `""` for others.
        """
        self._half_life_s = half_life_s
        self._usual = usual or {}
        self._by_resource: dict[str, RecentDemand] = {}

    def observe(self, pod: "PodFacts") -> None:
        """Count a pod that is observed for the first time; one of unknown age or demand does not count."""
        created = parse_time(pod.created)
        if created is None or not pod.demand.containers:
            return
        resource = pod.demand.resource
        if resource not in self._by_resource:
            if len(self._by_resource) >= MAX_RESOURCES:
                return
            self._by_resource[resource] = RecentDemand(self._half_life_s)
        shape = RequestedShape(request_by_containers(pod.demand), pod.requests)
        self._by_resource[resource].observe(shape, created.timestamp())

    def of(self, pool: "PoolFacts") -> TargetWorkload:
        """Return a pool's recent demand, or its usual one; without shapes where neither is known."""
        found = self._by_resource.get(pool.resource)
        if found is not None:
            return found.workload(pool)
        return _workload(pool, self._usual.get(pool.name) or self._usual.get("") or ())

    def forget(self, resource: str) -> None:
        """Forget the demand on the resource of a pool that is gone."""
        self._by_resource.pop(resource, None)


def _workload(pool: "PoolFacts", asked: "Iterable[tuple[RequestedShape, float]]") -> TargetWorkload:
    """Return the shapes with their shares, in the pool's devices."""
    shapes: dict[TargetShape, float] = {}
    for entry, weight in asked:
        shape = target_shape(pool, entry)
        shapes[shape] = shapes.get(shape, 0.0) + weight
    total = sum(shapes.values())
    in_order = sorted(shapes.items(), key=lambda item: (item[1], item[0]), reverse=True)
    return TargetWorkload(tuple((shape, weight / total) for shape, weight in in_order))


def unit_milli(pool: "PoolFacts") -> int:
    """Return a unit of the pool in milli of a device; all units of a device may be a few less than 1000."""
    return WHOLE_DEVICE // most_units_of_a_device(pool)


def target_shape(pool: "PoolFacts", asked: RequestedShape) -> TargetShape:
    """Return what a pod asks, in milli of devices.

    Slices and MIG instances count as if each were on another device, which is where they are placed while there
    are any. With slicePlacement SameDevice the largest container stands for all that ask for a part of a device.
    """
    request, size, unit = asked.request, most_units_of_a_device(pool), unit_milli(pool)
    is_same_device = (
        pool.mode is AllocationMode.TIME_SLICE
        and pool.slice_placement is SlicePlacement.SAME_DEVICE
    )
    cpu, memory = asked.requests.cpu_milli, asked.requests.memory_mib
    if not is_same_device:
        return TargetShape(cpu, unit, request.units, memory_mib=memory)
    largest = max((units for _, units in request.containers), default=request.units)
    of_one = min(largest, size)
    return TargetShape(cpu, unit * of_one, -(-request.units // of_one), memory_mib=memory)
