"""A gauge that is 1 for each of many sets of label values: what is known of a thing is in its labels.

The library's gauge has an object with a lock for every series, and writes a line of the page in 25 microseconds:
29 MB, and a second of a thread at every scrape, for 40,000 devices. Here a series is a tuple of texts that exist
anyway, 5 MB, and a line is filled into a template, a tenth of a second.
"""

import re
from typing import TYPE_CHECKING, Final, cast, final

from prometheus_client import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from prometheus_client import CollectorRegistry

_SPECIAL: Final = re.compile(r'[\\"\n]')
_ESCAPED: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_LINES_A_PART: Final = 2_000
"""A part of the page is written in a millisecond; between two the event loop gets its turn."""


@final
class LabelSets(Collector):
    """The sets, by a key of the thing that each is about."""

    def __init__(
        self,
        name: str,
        documentation: str,
        labels: "Sequence[str]",
        *,
        registry: "CollectorRegistry | None",
    ) -> None:
        self._name = name
        self._documentation = documentation
        self._labels = tuple(labels)
        self._sets: dict[str, tuple[str, ...]] = {}
        if registry is not None:
            registry.register(self)

    def put(self, key: str, values: tuple[str, ...]) -> None:
        """Show the values, in the order of the labels, in place of those that the key had."""
        self._sets[key] = values

    def discard(self, key: str) -> None:
        """Show nothing of the key any more."""
        self._sets.pop(key, None)

    def clear(self) -> None:
        self._sets.clear()

    def describe(self) -> "Iterable[Metric]":
        return [Metric(self._name, self._documentation, "gauge")]

    def collect(self) -> "Iterable[Metric]":
        """Return the family as it is now; `samples` makes each sample when it is read."""
        family = Metric(self._name, self._documentation, "gauge")
        encodable = EncodableSamples(self._name, self._labels, list(self._sets.values()))
        family.samples = cast("list[Sample]", encodable)  # read only: nothing here adds samples
        return [family]


@final
class EncodableSamples:
    """Samples that know their lines in Prometheus' text format."""

    def __init__(
        self, name: str, labels: tuple[str, ...], sets: "Sequence[tuple[str, ...]]"
    ) -> None:
        self._name = name
        self._labels = labels
        self._sets = sets

    def __iter__(self) -> "Iterator[Sample]":
        for values in self._sets:
            yield Sample(self._name, dict(zip(self._labels, values, strict=True)), 1.0)

    def __len__(self) -> int:
        return len(self._sets)

    def lines(self) -> "Iterator[str]":
        """Yield the lines in parts."""
        named = ",".join(f'{label}="%s"' for label in self._labels)
        line = f"{self._name}{{{named}}} 1.0\n"
        for start in range(0, len(self._sets), _LINES_A_PART):
            part = self._sets[start : start + _LINES_A_PART]
            yield "".join([line % _escaped(values) for values in part])


def _escaped(values: tuple[str, ...]) -> tuple[str, ...]:
    if _SPECIAL.search("".join(values)) is None:
        return values
    return tuple(value.translate(_ESCAPED) for value in values)
