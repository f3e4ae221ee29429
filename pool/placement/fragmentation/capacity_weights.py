"""Weights of free capacity for pods of several devices: how many of each shape nodes can still take, and its value.

A price of capacity, in milli, grows with its scarcity: the pods of the shape, or of larger ones, that what is free in
the pool is expected to be asked for, over the capacity that is left. Prices move in steps, so that nodes keep their
scores between them.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pool.placement.fragmentation.target_workload import TargetShape, TargetWorkload

_PRICE: Final = 500.0
"""Price in milli where as much is expected to be requested as is free; twice or half of it differ little."""
_SCARCITY: Final = (0.01, 20.0)
"""Lower and upper bound of scarcity."""
_STEP: Final = 2.0
"""A price is kept until scarcity has moved by this factor."""
_FIXED_PRICE: Final = 100.0
_FIXED_EXPONENT: Final = 0.25


class WeightedShape:
    """A shape of several devices."""

    __slots__ = ("cpu_milli", "devices", "memory_mib", "models", "price")

    def __init__(self, shape: "TargetShape", price: float) -> None:
        self.devices = shape.devices
        self.cpu_milli = shape.cpu_milli
        self.memory_mib = shape.memory_mib
        self.models = shape.models
        self.price = price
        """Value, in milli, of the capacity for one such pod."""

    def pod_count(self, idle: int, cpu_milli: int | None, memory_mib: int | None = None) -> int:
        """Return how many such pods idle devices, CPU and memory are enough for; None: that is unknown."""
        pods = idle // self.devices
        if pods and cpu_milli is not None and cpu_milli < pods * self.cpu_milli:
            pods = cpu_milli // self.cpu_milli
        if pods and memory_mib is not None and memory_mib < pods * self.memory_mib:
            pods = memory_mib // self.memory_mib
        return pods


class CapacityWeights:
    """Prices of capacity in one pool: fixed ones until `observe` gets what is left."""

    def __init__(self, target: "TargetWorkload") -> None:
        demand = sum(shape.demand * count for shape, count in target.shapes)
        large = [(shape, count) for shape, count in target.shapes if shape.devices > 1]
        of_large = sum(shape.demand * count for shape, count in large)
        self._shares = [shape.demand * count / of_large for shape, count in large]
        fixed = _FIXED_PRICE * (of_large / demand) ** _FIXED_EXPONENT if demand else 0.0
        self.shapes: Sequence[WeightedShape] = [
            WeightedShape(shape, fixed * share)
            for (shape, _), share in zip(large, self._shares, strict=True)
        ]
        self._pods_per_milli = [
            sum(
                other.demand * count / demand / other.demand
                for other, count in large
                if other.devices >= shape.devices
                and other.cpu_milli >= shape.cpu_milli
                and other.memory_mib >= shape.memory_mib
            )
            for shape, _ in large
        ]
        self._scarcity = [0.0] * len(large)

    def pod_counts(
        self, model: str, idle: int, cpu_milli: int | None, *, memory_mib: int | None = None
    ) -> tuple[int, ...]:
        """Return how many pods of each shape fit on a node."""
        return tuple(
            [
                shape.pod_count(idle, cpu_milli, memory_mib)
                if not shape.models or model in shape.models
                else 0
                for shape in self.shapes
            ]
        )

    def observe(self, free_milli: int, pod_counts: "Iterable[int]") -> list[int]:
        """Renew the prices; return the indices of those that have changed.

        Args:
            free_milli: of all devices of the pool.
            pod_counts: of all nodes together, by shape.
        """
        least, most = _SCARCITY
        changed = []
        for index, pod_count in enumerate(pod_counts):
            expected = free_milli * self._pods_per_milli[index]
            scarcity = min(max(expected / pod_count, least), most) if pod_count > 0 else most
            cached = self._scarcity[index]
            if cached / _STEP <= scarcity <= cached * _STEP:
                continue
            self._scarcity[index] = scarcity
            self.shapes[index].price = _PRICE * scarcity * self._shares[index]
            changed.append(index)
        return changed
