"""The demand for which free devices should stay useful: shapes of pods by frequency.

Sizes are in thousandths of one device (milli), so that whole devices, slices and MIG instances are measured alike.
"""

from collections import Counter
from typing import TYPE_CHECKING, Self

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WHOLE_DEVICE = 1000
"""Milli of one device."""


class TargetShape(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """What pods of one kind ask; the order of fields is the order of shapes of one frequency."""

    cpu_milli: int
    milli: int
    """Thousandths of each device: 1000 is a whole one; 0 with no devices."""
    devices: int
    models: tuple[str, ...] = ()
    """Device models that such a pod takes; empty: all."""
    memory_mib: int = 0
    """0 where memory is not weighed, as in published experiments."""

    @property
    def demand(self) -> int:
        """Milli of all its devices."""
        return self.milli * self.devices

    def takes(self, model: str) -> bool:
        """Say whether such a pod takes devices of a model."""
        return not self.models or model in self.models


class TargetWorkload(msgspec.Struct, frozen=True):
    """Shapes with their frequencies, most frequent first."""

    shapes: tuple[tuple[TargetShape, float], ...] = ()
    """(shape, how many pods)."""

    @classmethod
    def of(cls, shapes: "Iterable[TargetShape]") -> Self:
        """Count shapes; equally frequent ones are in descending order of their fields."""
        counted = sorted(Counter(shapes).items(), key=lambda item: (item[1], item[0]), reverse=True)
        return cls(tuple(counted))

    def frequent(self, share: float) -> "Sequence[tuple[TargetShape, float]]":
        """Return the most frequent shapes that cover a share of the pods, with probabilities of sum 1."""
        total = sum(count for _, count in self.shapes)
        covered = 0.0
        taken = []
        for shape, count in self.shapes:
            if covered >= share:
                break
            covered += count / total
            taken.append((shape, count / total))
        return [(shape, part / covered) for shape, part in taken]
