"""Fragmentation as FGD defines it (USENIX ATC'23): the milli that the next pod of a workload is expected not to use.

Sums of floats keep the order of the published program, since it truncates what it derives from them: by target
shape into the classes Q1, Q2, Q4, XL, XR, NA, then those.
"""

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pool.placement.fragmentation.target_workload import TargetShape, TargetWorkload

COVERED: Final = 0.95
"""Share of the pods that the target shapes cover, as published."""
_CACHED: Final = 100_000
"""States; a replay of 10,000 pods meets some 20,000."""


class ExpectedLoss:
    """F(node) for one target workload; states that were asked for are remembered."""

    def __init__(self, target: "TargetWorkload") -> None:
        self._shapes = target.frequent(COVERED)
        self._by_model: dict[str, _ModelLoss] = {}

    def of(self, model: str, cpu_milli: int, free: "Sequence[int]") -> float:
        """Return F of a node with these free milli of its devices, in any order."""
        loss = self._by_model.get(model)
        if loss is None:
            loss = self._by_model[model] = _ModelLoss(self._shapes, model)
        return loss.of(cpu_milli, free)


class _ModelLoss:
    """F of the nodes of one model."""

    def __init__(self, shapes: "Sequence[tuple[TargetShape, float]]", model: str) -> None:
        self._demands = [
            (shape.cpu_milli, shape.milli, shape.devices, p, shape.takes(model))
            for shape, p in shapes
        ]
        self._cpu_steps = sorted({shape.cpu_milli for shape, _ in shapes})
        self._sizes = sorted({shape.milli for shape, _ in shapes if shape.milli})
        self._cached: dict[tuple[int, ...], float] = {}

    def of(self, cpu_milli: int, free: "Sequence[int]") -> float:
        # More CPU makes no difference until one more shape has enough of it.
        key = (bisect_right(self._cpu_steps, cpu_milli), *sorted(free))
        cached = self._cached.get(key)
        if cached is None:
            if len(self._cached) >= _CACHED:
                self._cached.clear()
            cached = self._cached[key] = self._sum(cpu_milli, free)
        return cached

    def _sum(self, cpu_milli: int, free: "Sequence[int]") -> float:
        total = sum(free)
        if not total:
            return 0.0
        too_small = {
            size: sum(remaining for remaining in free if remaining < size) for size in self._sizes
        }
        enough = {size: sum(remaining >= size for remaining in free) for size in self._sizes}
        both = gpu = cpu = with_cpu = without_cpu = no_access = 0.0
        for needed_cpu, size, devices, p, is_taken in self._demands:
            has_cpu = cpu_milli >= needed_cpu
            if not size:
                if has_cpu:
                    with_cpu += p * total
                else:
                    without_cpu += p * total
            elif not is_taken:
                no_access += p * total
            elif has_cpu:
                gpu += p * (too_small[size] if enough[size] >= devices else total)
            elif enough[size] >= devices:
                cpu += p * total
            else:
                both += p * total
        return both + gpu + cpu + with_cpu + without_cpu + no_access
