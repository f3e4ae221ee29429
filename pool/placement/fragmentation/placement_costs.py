"""What a placement takes from the value of its node, for strategy LeastFragmentation of a live pool.

The same value as in simulations (`pool.placement.fragmentation.node_value`), of the pool's demand. A pod's CPU and
memory are taken to be the means of pods of its size.
"""

import functools
from typing import TYPE_CHECKING, Final, final

import msgspec

from api.kinds.gpupool import SlicePlacement
from pool.layout import most_units_of_a_device
from pool.placement.fragmentation.capacity_weights import CapacityWeights
from pool.placement.fragmentation.node_value import NodeValue
from pool.placement.fragmentation.recent_demand import RequestedShape, target_shape, unit_milli
from pool.placement.fragmentation.target_workload import TargetShape, TargetWorkload
from pool.placement.unit_request import UnitRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pool.model import PoolFacts

    FreeMilli = tuple[int, ...]
    """Free milli of each device, in ascending order."""

STEP: Final = 10
"""Milli to which costs are rounded, so that nodes of nearly one value are filled in their order."""
INSUFFICIENT: Final = 1 << 24
"""Cost above every other cost: kube-scheduler is likely to refuse the node."""
_CPU_STEP: Final = 500
_MEMORY_STEP: Final = 1024
"""Milli and MiB to which free CPU and memory are rounded down where a loss is kept: what pods without units request
differs a little from node to node. The difference of two values hardly moves with it.
"""
_ANY_MODEL: Final = ""
_STATES: Final = 1 << 14
_USUAL_SIZES: Final = (1, 2, 4, 8)


class RemainingCapacity(msgspec.Struct, frozen=True, gc=False):
    """What is left of a node."""

    devices: "FreeMilli"
    cpu_milli: int | None
    """CPU that no pod requests; None where it is unknown."""
    memory_mib: int | None = None
    """Memory that no pod requests; None where it is unknown."""


@final
class PlacementCosts:
    """Costs for one demand on a pool."""

    def __init__(self, pool: "PoolFacts", target: TargetWorkload) -> None:
        """Derive tables of the target, which takes milliseconds with many sizes."""
        self.pool = pool
        self.target = target
        self._whole = unit_milli(pool) * most_units_of_a_device(pool)
        self._prices = CapacityWeights(target)
        self._value = NodeValue(target, _ANY_MODEL, self._prices, whole=self._whole)
        self._means = _means_by_size(target)
        self._of_state = functools.lru_cache(maxsize=_STATES)(self._value.of_state)
        self._lost = functools.lru_cache(maxsize=_STATES)(self._lost_in_steps)

    def shape(self, request: UnitRequest) -> TargetShape:
        """Return a request in devices, with the CPU and memory that pods of its size ask for."""
        shape = target_shape(self.pool, RequestedShape(request))
        cpu, memory = self._means.get((shape.milli, shape.devices), (0, 0))
        return TargetShape(cpu, shape.milli, shape.devices, memory_mib=memory)

    def no_capacity(self) -> list[int]:
        """Return zeros for the sizes of `pod_counts`."""
        return [0] * len(self._prices.shapes)

    def pod_counts(self, remaining: RemainingCapacity) -> tuple[int, ...]:
        """Return how many pods of each size of several devices a node has capacity for."""
        idle = remaining.devices.count(self._whole)
        return self._prices.pod_counts(
            _ANY_MODEL, idle, remaining.cpu_milli, memory_mib=remaining.memory_mib
        )

    def reprice(self, free_milli: int, pod_counts: "Iterable[int]") -> bool:
        """Price the capacity that all nodes have together; say whether costs have changed by that."""
        if not self._prices.observe(free_milli, pod_counts):
            return False
        self._of_state.cache_clear()
        self._lost.cache_clear()
        return True

    def lost(self, remaining: RemainingCapacity, shape: TargetShape) -> int:
        """Return what the value of a node loses by a pod, in steps of `STEP` milli."""
        cpu, memory = remaining.cpu_milli, remaining.memory_mib
        return self._lost(
            remaining.devices,
            None if cpu is None else cpu // _CPU_STEP,
            None if memory is None else memory // _MEMORY_STEP,
            shape,
        )

    def of(self, remaining: RemainingCapacity, shape: TargetShape) -> int:
        """Return the cost by which nodes are ordered: the loss, and whether CPU and memory are enough."""
        cpu, memory = remaining.cpu_milli, remaining.memory_mib
        is_enough = (cpu is None or cpu >= shape.cpu_milli) and (
            memory is None or memory >= shape.memory_mib
        )
        return self.lost(remaining, shape) + (0 if is_enough else INSUFFICIENT)

    def _lost_in_steps(  # noqa: PLR0917  # the key of what is kept
        self, free: "FreeMilli", cpu: int | None, memory: int | None, shape: TargetShape
    ) -> int:
        cpu_milli = None if cpu is None else cpu * _CPU_STEP
        memory_mib = None if memory is None else memory * _MEMORY_STEP
        before = self._of_state(free, cpu_milli, memory_mib)
        after = self._of_state(
            free_after(free, shape),
            None if cpu_milli is None else cpu_milli - shape.cpu_milli,
            None if memory_mib is None else memory_mib - shape.memory_mib,
        )
        return round((before - after) / STEP)


def free_after(free: "FreeMilli", shape: TargetShape) -> "FreeMilli":
    """Return the rests without a pod's devices: distinct ones while there are any, the fullest first."""
    after = list(free)
    left = shape.devices
    while left:
        before = left
        for position, remaining in enumerate(after):
            if left and remaining and remaining >= shape.milli:
                after[position] -= shape.milli
                left -= 1
        if left == before:
            break
    return tuple(sorted(after))


def usual_workload(pool: "PoolFacts") -> TargetWorkload:
    """Return the demand on a pool of which none is known: as many pods of each usual size.

    With slicePlacement SameDevice these are parts of a device, and whole ones.
    """
    sizes: Iterable[int] = _USUAL_SIZES
    if pool.slice_placement is SlicePlacement.SAME_DEVICE:
        size = most_units_of_a_device(pool)
        sizes = sorted({max(1, size * eighths // 8) for eighths in _USUAL_SIZES})
    return TargetWorkload.of(
        target_shape(pool, RequestedShape(UnitRequest(units))) for units in sizes
    )


def _means_by_size(target: TargetWorkload) -> dict[tuple[int, int], tuple[int, int]]:
    """Return the mean CPU and memory of pods by (milli, devices)."""
    sums: dict[tuple[int, int], tuple[float, float, float]] = {}
    for shape, weight in target.shapes:
        size = shape.milli, shape.devices
        pods, cpu, memory = sums.get(size, (0.0, 0.0, 0.0))
        sums[size] = (
            pods + weight,
            cpu + weight * shape.cpu_milli,
            memory + weight * shape.memory_mib,
        )
    return {
        size: (round(cpu / pods), round(memory / pods))
        for size, (pods, cpu, memory) in sums.items()
    }
