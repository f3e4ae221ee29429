"""What a node will still take in, given that many pods are to come: the value behind LeastFragmentation.

    V = H - S + B, in milli of devices
    H = sum over devices of v(rest): the expected fill of each rest
    S = E[(X - c)+] / r: what stays unusable because CPU runs out; X ~ Normal(r H, s^2 H) is the CPU that pods
        filling H ask, c the free CPU, r the target workload's CPU per device, s its deviation; the same with memory,
        and S is the larger of both
    B = capacity for pods of several devices (`capacity_weights`), which becomes rare first

Everything is in closed form or in tables that one target workload and one model have; no node is examined but the
one that is asked for.
"""

from collections import defaultdict
from math import erfc, exp, gcd, pi, sqrt
from typing import TYPE_CHECKING, Final

from pool.placement.fragmentation.capacity_weights import CapacityWeights
from pool.placement.fragmentation.target_workload import WHOLE_DEVICE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pool.placement.fragmentation.target_workload import TargetShape, TargetWorkload

_OFFERS: Final = 64
"""Random pods that a rest is offered one after another; 32 to 200 differ little."""
_ANYWHERE: Final = 0.012
"""The smallest pods, up to this share of the demand for parts of devices, find a place anywhere: a hole that only
they fit into is worth nothing. Half of the share and twice as much are worse on all derived workloads.
"""
_SQRT_2 = sqrt(2)
_SQRT_2_PI = sqrt(2 * pi)


class NodeValue:
    """V of nodes of one model."""

    def __init__(
        self,
        target: "TargetWorkload",
        model: str,
        prices: CapacityWeights | None = None,
        *,
        whole: int = WHOLE_DEVICE,
    ) -> None:
        """Compute the tables.

        Args:
            target: the demand.
            model: of the nodes.
            prices: of capacity in the pool, which may move; without them they are fixed.
            whole: milli of a free device, where its units do not make up 1000.
        """
        shapes = [
            (shape, count) for shape, count in target.shapes if shape.devices and shape.takes(model)
        ]
        self._whole = whole
        self.fill: Sequence[float] = expected_fill(shapes, whole)
        """v by free milli of one device."""
        self._cpu = _CompanionDemand(shapes, lambda shape: shape.cpu_milli)
        self._memory = _CompanionDemand(shapes, lambda shape: shape.memory_mib)
        weights = CapacityWeights(target) if prices is None else prices
        takes = [shape for shape in weights.shapes if not shape.models or model in shape.models]
        self._shapes = sorted(takes, key=lambda shape: shape.devices)
        self._least = self._shapes[0].devices if self._shapes else whole + 1

    def of_state(
        self, free: "Sequence[int]", cpu_milli: int | None, memory_mib: int | None = None
    ) -> float:
        """Return V of free milli by device, free CPU and free memory; None where one is unknown."""
        fill = self.fill
        filled = sum(fill[remaining] for remaining in free)
        return self.of(filled, free.count(self._whole), cpu_milli, memory_mib=memory_mib)

    def of(
        self, filled: float, idle: int, cpu_milli: int | None, *, memory_mib: int | None = None
    ) -> float:
        """Return V of an expected fill H, a number of idle devices, free CPU and free memory."""
        value = filled
        if cpu_milli is not None and filled > 0:
            value -= self._cpu.unusable(filled, cpu_milli)
        if memory_mib is not None and filled > 0:
            value = min(value, filled - self._memory.unusable(filled, memory_mib))
        if idle >= self._least:
            for shape in self._shapes:  # WeightedShape.pod_count, without its call
                pod_count = idle // shape.devices
                if not pod_count:
                    break
                if cpu_milli is not None and cpu_milli < pod_count * shape.cpu_milli:
                    pod_count = cpu_milli // shape.cpu_milli
                if memory_mib is not None and memory_mib < pod_count * shape.memory_mib:
                    pod_count = memory_mib // shape.memory_mib
                value += shape.price * pod_count
        return value


class _CompanionDemand:
    """What pods ask beside devices, CPU or memory: how much for a milli of devices, and its deviation."""

    __slots__ = ("_deviation", "_rate")

    def __init__(
        self, shapes: "Sequence[tuple[TargetShape, float]]", amount: "Callable[[TargetShape], int]"
    ) -> None:
        self._rate, self._deviation = _per_device(shapes, amount)

    def unusable(self, filled: float, free: int) -> float:
        """Return the milli of an expected fill that it is not enough for."""
        rate = self._rate
        if not rate:
            return 0.0
        mean = rate * filled - free
        deviation = self._deviation * sqrt(filled)
        if mean < -6 * deviation:
            return 0.0
        if mean > 6 * deviation:
            return mean / rate
        z = mean / deviation
        excess = deviation * (exp(-z * z / 2) / _SQRT_2_PI + z * erfc(-z / _SQRT_2) / 2)
        return excess / rate


def expected_fill(
    shapes: "Sequence[tuple[TargetShape, float]]", whole: int = WHOLE_DEVICE
) -> "Sequence[float]":
    """Return v by milli, 0 to a whole device: what a rest takes of pods that are offered at random, each taken if it fits.

    Pods that fit anywhere are not offered. A pod of several devices counts once for each of them. Without shapes v is the rest itself.
    """
    weights: dict[int, float] = defaultdict(float)
    for shape, count in shapes:
        weights[min(shape.milli, whole)] += count * shape.devices
    _drop_smallest(weights, whole)
    total = sum(weights.values())
    if not total:
        return range(whole + 1)
    step = gcd(whole, *weights)
    sizes = sorted((size // step, weight / total) for size, weight in weights.items())
    values = [0.0] * (whole // step + 1)
    for _ in range(_OFFERS):
        values = [_after_offer(values, remaining, sizes) for remaining in range(len(values))]
    return [values[milli // step] * step for milli in range(whole + 1)]


def _drop_smallest(weights: dict[int, float], whole: int) -> None:
    """Leave out the sizes of pods that fit anywhere."""
    parts = sorted(size for size in weights if size < whole)
    left = _ANYWHERE * sum(size * weights[size] for size in parts)
    for size in parts:
        left -= size * weights[size]
        if left < 0:
            break
        del weights[size]


def _after_offer(
    values: "Sequence[float]", remaining: int, sizes: "Sequence[tuple[int, float]]"
) -> float:
    kept = 1.0
    value = 0.0
    for size, weight in sizes:
        if size > remaining:
            break
        value += weight * (size + values[remaining - size])
        kept -= weight
    return value + kept * values[remaining]


def _per_device(
    shapes: "Sequence[tuple[TargetShape, float]]", amount: "Callable[[TargetShape], int]"
) -> tuple[float, float]:
    """Return the amount for a milli of devices, and its deviation at one milli."""
    pods = sum(count for _, count in shapes)
    demand = sum(shape.demand * count for shape, count in shapes)
    if not demand:
        return 0.0, 0.0
    rate = sum(amount(shape) * count for shape, count in shapes) / demand
    squares = sum(count * (amount(shape) - rate * shape.demand) ** 2 for shape, count in shapes)
    variance = (squares / pods) / (demand / pods)
    return rate, sqrt(max(variance, 1e-9))
