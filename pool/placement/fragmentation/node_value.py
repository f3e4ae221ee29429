"""What a node will still take in, given that many pods are to come: the value behind LeastFragmentation.

    V = H - S + B, in milli of devices
    H = sum over devices of v(rest): the expected fill of each rest
    S = E[(X - c)+] / r: what will be stranded because CPU runs out; X ~ Normal(r H, s^2 H) is the CPU that pods
        filling H ask, c the free CPU, r the target workload's CPU per device, s its deviation
    B = room for pods of several devices, which become rare first

Everything is in closed form or in tables that one target workload and one model have; no node is looked at but the
one that is asked for.
"""

from collections import defaultdict
from math import erfc, exp, gcd, pi, sqrt
from typing import TYPE_CHECKING, Final

import msgspec

from pool.placement.fragmentation.target_workload import WHOLE_DEVICE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pool.placement.fragmentation.target_workload import TargetShape, TargetWorkload

_OFFERS: Final = 64
"""Random pods that a rest is offered one after another; 32 to 200 differ little."""
_ROOM: Final = 350
"""Weight of room for large pods; four times as much costs allocation, none refuses large pods early."""
_RAREST: Final = 40.0
"""Most that the rarity of nodes that can host a shape multiplies its room by."""
_SQRT_2 = sqrt(2)
_SQRT_2_PI = sqrt(2 * pi)


class HostCounts(msgspec.Struct, frozen=True):
    """How many nodes there are, and how many could ever host a shape when they are empty."""

    nodes: int
    hosts: "Mapping[TargetShape, int]"

    def rarity(self, shape: "TargetShape") -> float:
        hosts = self.hosts.get(shape, self.nodes)
        return min(_RAREST, self.nodes / hosts) if hosts else 0.0


class NodeValue:
    """V of nodes of one model."""

    def __init__(
        self, target: "TargetWorkload", model: str, hosts: HostCounts | None = None
    ) -> None:
        shapes = [
            (shape, count) for shape, count in target.shapes if shape.devices and shape.takes(model)
        ]
        self._fill = expected_fill(shapes)
        self._cpu_rate, self._deviation = _cpu_per_device(shapes)
        self._large = _large_shapes(target, shapes, hosts)

    def fill(self, rest: int) -> float:
        """Return v of the free milli of one device."""
        return self._fill[rest]

    def of_state(self, rests: "Sequence[int]", cpu_milli: int | None) -> float:
        """Return V of free milli by device and free CPU; None where CPU is unknown."""
        fill = self._fill
        return self.of(
            sum(fill[rest] for rest in rests),
            sum(rest >= WHOLE_DEVICE for rest in rests),
            cpu_milli,
        )

    def of(self, filled: float, idle: int, cpu_milli: int | None) -> float:
        """Return V of an expected fill H, a number of idle devices and free CPU."""
        if cpu_milli is None:
            return filled + sum(weight * (idle // devices) for weight, devices, _ in self._large)
        value = filled
        if filled > 0 and self._cpu_rate > 0:
            value -= self._stranded(filled, cpu_milli)
        for weight, devices, cpu in self._large:
            if idle >= devices:
                value += weight * min(idle // devices, cpu_milli // cpu if cpu else idle)
        return value

    def _stranded(self, filled: float, cpu_milli: int) -> float:
        mean = self._cpu_rate * filled - cpu_milli
        deviation = self._deviation * sqrt(filled)
        if mean < -6 * deviation:
            return 0.0
        if mean > 6 * deviation:
            return mean / self._cpu_rate
        z = mean / deviation
        excess = deviation * (exp(-z * z / 2) / _SQRT_2_PI + z * erfc(-z / _SQRT_2) / 2)
        return excess / self._cpu_rate


def expected_fill(shapes: "Sequence[tuple[TargetShape, float]]") -> "Sequence[float]":
    """Return v by milli, 0 to 1000: what a rest takes of pods that are offered at random, each taken if it fits.

    A pod of several devices counts once for each of them. Without shapes v is the rest itself.
    """
    weights: dict[int, float] = defaultdict(float)
    for shape, count in shapes:
        weights[shape.milli] += count * shape.devices
    total = sum(weights.values())
    if not total:
        return range(WHOLE_DEVICE + 1)
    step = gcd(WHOLE_DEVICE, *weights)
    sizes = sorted((size // step, weight / total) for size, weight in weights.items())
    values = [0.0] * (WHOLE_DEVICE // step + 1)
    for _ in range(_OFFERS):
        values = [_after_offer(values, rest, sizes) for rest in range(len(values))]
    return [values[milli // step] * step for milli in range(WHOLE_DEVICE + 1)]


def _after_offer(
    values: "Sequence[float]", rest: int, sizes: "Sequence[tuple[int, float]]"
) -> float:
    kept = 1.0
    value = 0.0
    for size, weight in sizes:
        if size > rest:
            break
        value += weight * (size + values[rest - size])
        kept -= weight
    return value + kept * values[rest]


def _cpu_per_device(shapes: "Sequence[tuple[TargetShape, float]]") -> tuple[float, float]:
    """Return CPU milli for a milli of devices, and its deviation at one milli."""
    pods = sum(count for _, count in shapes)
    demand = sum(shape.demand * count for shape, count in shapes)
    if not demand:
        return 0.0, 0.0
    rate = sum(shape.cpu_milli * count for shape, count in shapes) / demand
    squares = sum(count * (shape.cpu_milli - rate * shape.demand) ** 2 for shape, count in shapes)
    variance = (squares / pods) / (demand / pods)
    return rate, sqrt(max(variance, 1e-9))


def _large_shapes(
    target: "TargetWorkload",
    shapes: "Sequence[tuple[TargetShape, float]]",
    hosts: HostCounts | None,
) -> list[tuple[float, int, int]]:
    """Return (weight, devices, CPU milli) of the shapes of several devices."""
    demand = sum(shape.demand * count for shape, count in target.shapes)
    return [
        (
            _ROOM * shape.demand * count / demand * (hosts.rarity(shape) if hosts else 1.0),
            shape.devices,
            shape.cpu_milli,
        )
        for shape, count in shapes
        if shape.devices > 1
    ]
