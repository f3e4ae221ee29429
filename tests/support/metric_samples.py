"""Samples of our metrics, and what a stretch of time did to them."""

from dataclasses import dataclass, field

from telemetry.metrics import REGISTRY

Series = tuple[str, tuple[tuple[str, str], ...]]
"""Name of a sample, and its labels in order."""

ASKED: set[str] = set()
"""Metrics of which anybody has asked here."""


def series(name: str, **labels: str) -> Series:
    return name, tuple(sorted(labels.items()))


def samples() -> dict[Series, float]:
    """Every sample but buckets, sums and creation times."""
    return {
        series(sample.name, **sample.labels): sample.value
        for family in REGISTRY.collect()
        for sample in family.samples
        if not sample.name.endswith(("_bucket", "_sum", "_created"))
    }


@dataclass
class Counted:
    """Counters and histograms, by how much they have grown since this was made."""

    before: dict[Series, float] = field(default_factory=samples)

    def growth(self, name: str) -> dict[tuple[str, ...], float]:
        """Return by label values, in order of label names, what has grown, and by how much."""
        ASKED.add(name.removesuffix("_count").removesuffix("_total"))
        found = {}
        for (sample, labels), value in samples().items():
            grown = value - self.before.get((sample, labels), 0.0)
            if sample == name and grown:
                found[tuple(value for _, value in labels)] = grown
        return found


def exported(name: str) -> dict[tuple[str, ...], float]:
    """Return a gauge by label values."""
    ASKED.add(name)
    return {
        tuple(value for _, value in labels): value
        for (sample, labels), value in samples().items()
        if sample == name
    }
