"""The first shape that serves a pod, or why none does."""

from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Final, final

from api.text import truncate
from api.well_known_labels import ZONE_LABEL
from autoscaling.device_use import shape_of_node
from autoscaling.node_selections import ShapeLabels
from autoscaling.packing import EmptyShapes
from autoscaling.scaling_model import PodWait, WaitReason

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence

    from autoscaling.packing import PodClass
    from autoscaling.scaling_limits import ScalingLimits
    from autoscaling.scaling_model import ScalingParameters, ShapeHistory, ShapeParameters, Supply
    from pool.index.reader import IndexReader
    from pool.model import Demand

_STAGES: Final = (
    WaitReason.CACHE_INCOMPATIBILITY,
    WaitReason.TOO_LARGE,
    WaitReason.NO_SHAPE,
    WaitReason.NODE_POOL_INVALID,
    WaitReason.BACKING_OFF,
    WaitReason.NODE_POOL_LIMIT,
    WaitReason.MAX_UNITS,
    WaitReason.MAX_IN_FLIGHT,
    WaitReason.BUDGET_HOUR,
    WaitReason.BUDGET_DAY,
    WaitReason.MAX_NODES_PER_HOUR,
)
"""Stages in the order in which shapes are examined: the reason given is that of the shape that came furthest."""
CAPPED: Final = frozenset(_STAGES[_STAGES.index(WaitReason.NODE_POOL_LIMIT) :])
"""A node would serve the pod, and a limit forbids it."""


@final
class ShapeChoice:
    """Examines the shapes of a pool for classes of pods."""

    def __init__(
        self,
        parameters: "ScalingParameters",
        index: "IndexReader",
        supply: "Supply",
        *,
        now: "dt.datetime",
    ) -> None:
        self._index = index
        self._parameters = parameters
        self._supply = supply
        self._now = now
        self._empty = EmptyShapes(parameters.pool)
        zones = {zone for node in index.nodes.values() if (zone := node.labels.get(ZONE_LABEL))}
        self._zones = supply.zones | zones if zones else frozenset()
        self._labels = {
            shape.name: ShapeLabels(
                shape, supply.node_pools.get(shape.node_pool), zones=self._zones
            )
            for shape in parameters.shapes
        }
        self._faults: dict[tuple[int, str], PodWait | None] = {}

    def labels(self, shape: "ShapeParameters") -> ShapeLabels:
        return self._labels.get(shape.name) or ShapeLabels(
            shape, self._supply.node_pools.get(shape.node_pool), zones=self._zones
        )

    def unserved(self, pod_class: "PodClass") -> PodWait | None:
        """Return why no shape can ever serve these pods, whatever limits and failures are; None where one can."""
        furthest = self._cache_incompatibility(pod_class.demand)
        for shape in self.fitting(pod_class.demand):
            wait = self._fault_of_pods(shape, pod_class)
            if wait is None:
                return None
            furthest = _later_stage(wait, furthest)
        return furthest or self._without_shapes()

    def first(
        self, pod_class: "PodClass | None", limits: "ScalingLimits"
    ) -> "ShapeParameters | PodWait":
        """Return the first shape in the order of the spec that serves these pods, or why none does.

        Args:
            pod_class: the class of the pods; None for warm units, which any shape serves.
            limits: what may still be added.
        """
        if self._supply.backend_fault:
            return PodWait(WaitReason.BACKEND_MISSING, self._supply.backend_fault)
        demand = pod_class.demand if pod_class is not None else None
        furthest = self._cache_incompatibility(demand)
        for shape in self.fitting(demand):
            wait = self._lasting_fault(shape, pod_class) or limits.refusal(shape)
            if wait is None:
                return shape
            furthest = _later_stage(wait, furthest)
        return furthest or self._without_shapes()

    def _without_shapes(self) -> PodWait:
        return PodWait(
            WaitReason.NO_SHAPE,
            f"spec.autoscaling of pool {self._parameters.pool.name} has no shapes: name one",
        )

    def _lasting_fault(
        self, shape: "ShapeParameters", pod_class: "PodClass | None"
    ) -> PodWait | None:
        """Return what one plan does not change: examined once for a class of pods."""
        key = (id(pod_class), shape.name)
        if key not in self._faults:
            self._faults[key] = (
                (self._fault_of_pods(shape, pod_class) if pod_class is not None else None)
                or self._fault_of_node_pool(shape)
                or self._back_off(shape, pod_class)
            )
        return self._faults[key]

    def _fault_of_pods(self, shape: "ShapeParameters", pod_class: "PodClass") -> PodWait | None:
        if not self._empty.take(shape, pod_class.demand):
            most = max(self._parameters.shapes, key=lambda item: item.units)
            return PodWait(
                WaitReason.TOO_LARGE,
                f"the pod needs {pod_class.demand.units} units of one node, and the largest shape of pool "
                f"{self._parameters.pool.name}, {most.name}, has {most.units}, {most.units_per_device} a device: "
                "name a larger shape in spec.autoscaling.shapes, or request fewer",
            )
        mismatch = self._labels[shape.name].mismatch(pod_class.selection)
        if mismatch:
            return PodWait(WaitReason.NO_SHAPE, mismatch)
        requests = pod_class.requests
        for resource, amount, limit, unit in (
            ("CPU", requests.cpu_milli, shape.cpu_milli, "m"),
            ("memory", requests.memory_mib, shape.memory_mib, "Mi"),
        ):
            if limit is not None and amount > limit:
                return PodWait(
                    WaitReason.NO_SHAPE,
                    f"the pod requests {amount}{unit} of {resource}, and a node of shape {shape.name} has "
                    f"{limit}{unit}: name a larger shape in spec.autoscaling.shapes, or request less",
                )
        return None

    def fitting(self, demand: "Demand | None") -> "Sequence[ShapeParameters]":
        """Return the shapes whose devices fit a pod's kernel caches, and after them those of unknown devices.

        A shape of several kinds of devices, of which some do not fit, is none: another node of it may not fit either.
        """
        preference = self._index.cache_demand_of(demand) if demand is not None else None
        if preference is None:
            return self._parameters.shapes
        fits = [
            (not capabilities, shape)
            for shape in self._parameters.shapes
            for capabilities in [self._capabilities_of(shape)]
            if all(map(preference.devices.fits, capabilities))
        ]
        return [shape for _, shape in sorted(fits, key=itemgetter(0))]

    def _cache_incompatibility(self, demand: "Demand | None") -> PodWait | None:
        """Return why the kernel caches of a pod fit no device of any shape."""
        preference = self._index.cache_demand_of(demand) if demand is not None else None
        if preference is None or not self._parameters.shapes or self.fitting(demand):
            return None
        unfit = {
            capability
            for shape in self._parameters.shapes
            for capability in self._capabilities_of(shape)
            if not preference.devices.fits(capability)
        }
        subject, reason = preference.devices.incompatibility(sorted(unfit))
        return PodWait(
            WaitReason.CACHE_INCOMPATIBILITY,
            f"{subject} no device of the shapes of pool {self._parameters.pool.name}: {reason}; name a shape with other devices"
            " and their computeCapability in spec.autoscaling.shapes, or use an image with kernels for these",
        )

    def _capabilities_of(self, shape: "ShapeParameters") -> tuple[str, ...]:
        """Return the compute capabilities of a shape's devices: as its nodes have them, or else as the spec says."""
        reported = (item.capabilities for item in self._supply.history if item.shape == shape.name)
        declared = (shape.compute_capability,) if shape.compute_capability else ()
        return next(filter(None, reported), declared)

    @cached_property
    def most_pods(self) -> "dict[str, int]":
        """Shape -> how many pods kubelet runs on a node of it, by those that are there."""
        found: dict[str, int] = {}
        for name in self._index.state(self._parameters.pool.name).nodes():
            node = self._index.nodes.get(name)
            shape = shape_of_node(self._parameters, node)
            if node is not None and node.most_pods is not None and shape is not None:
                found[shape.name] = max(node.most_pods, found.get(shape.name, 0))
        return found

    def _fault_of_node_pool(self, shape: "ShapeParameters") -> PodWait | None:
        fault = self._supply.node_pool_faults.get(shape.node_pool)
        return PodWait(WaitReason.NODE_POOL_INVALID, fault) if fault else None

    def _back_off(self, shape: "ShapeParameters", pod_class: "PodClass | None") -> PodWait | None:
        zone = pod_class.selection.zone if pod_class is not None else ""
        for item in self._supply.history:
            if item.shape != shape.name or item.zone not in {"", zone}:
                continue
            if item.excluded_at and item.excluded_at == self._parameters.generation:
                return PodWait(
                    WaitReason.BACKING_OFF,
                    f"shape {shape.name} is left out, since {item.without_devices} nodes in a row came without what it "
                    f"promises{_details(item)}: look into the driver and the devices of its nodes, correct what the shape "
                    "says of its devices, then change spec.autoscaling to have it tried again",
                )
            if item.retry_after is not None and item.retry_after > self._now:
                place = f" in zone {item.zone}" if item.zone else ""
                times = "once" if item.failures <= 1 else f"{item.failures} times in a row"
                return PodWait(
                    WaitReason.BACKING_OFF,
                    f"shape {shape.name} failed {times}{place} ({item.reason or 'no reason given'}{_details(item)}) "
                    f"and is asked for again at {item.retry_after:%H:%M:%S} UTC: name another shape in "
                    "spec.autoscaling.shapes to have that tried at once",
                )
        return None


def _later_stage(wait: PodWait, furthest: PodWait | None) -> PodWait:
    """Return the reason of the shape that came further."""
    if furthest is None or _STAGES.index(wait.reason) > _STAGES.index(furthest.reason):
        return wait
    return furthest


def _details(entry: "ShapeHistory") -> str:
    return f": {truncate(entry.message)}" if entry.message else ""
