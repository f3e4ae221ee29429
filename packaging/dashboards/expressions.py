"""PromQL from the objects that declare metrics: a name or a label that is gone breaks the build of a dashboard.

A `Vector` knows its labels, so that an aggregation or a matcher by another label is refused at once. What joins two
vectors is written as text; a test parses the whole, and looks up every name and label again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, final

from prometheus_client import Counter, Histogram

from dashboards.foreign_series import ForeignSeries
from telemetry.metric_declaration import DeclaredMetric, labels_of

RATE_INTERVAL: Final = "$__rate_interval"
RANGE: Final = "$__range"
"""The time range that the viewer has chosen."""
CLUSTER: Final = "cluster"
"""A label that series of several clusters have; a matcher of the empty text takes those without it."""
CHOSEN_CLUSTER: Final = f'{CLUSTER}="${CLUSTER}"'
TARGET: Final = "instance"
"""A label that Prometheus gives every series: the address that it scraped."""


@final
@dataclass(frozen=True, slots=True)
class Vector:
    """An expression for an instant vector."""

    text: str
    labels: frozenset[str]

    def __str__(self) -> str:
        return self.text


@final
@dataclass(frozen=True, slots=True)
class Matcher:
    """What a label must be, besides equal to a text."""

    operator: str
    value: str


def matching(pattern: str) -> Matcher:
    return Matcher("=~", pattern)


def other_than(*values: str) -> Matcher:
    return Matcher("!~", "|".join(values)) if len(values) > 1 else Matcher("!=", values[0])


def select(metric: DeclaredMetric | ForeignSeries, /, **labels: str | Matcher) -> Vector:
    """Return the series of a gauge or counter with these labels.

    Raises:
        ValueError: the metric has no such label.
        TypeError: it is a histogram, which has series of three names.
    """
    if isinstance(metric, ForeignSeries):
        return _selected(metric.name, metric.labels, labels)
    if isinstance(metric, Histogram):
        raise TypeError(f"{metric} has buckets, a count and a sum: name one of them")
    suffix = "_total" if isinstance(metric, Counter) else ""
    return _selected(_name_of(metric) + suffix, labels_of(metric), labels)


def counts(histogram: Histogram, /, **labels: str | Matcher) -> Vector:
    return _selected(f"{_name_of(histogram)}_count", labels_of(histogram), labels)


def buckets(histogram: Histogram, /, **labels: str | Matcher) -> Vector:
    return _selected(f"{_name_of(histogram)}_bucket", (*labels_of(histogram), "le"), labels)


def rate(vector: Vector) -> Vector:
    """Return the growth of counters in a second."""
    return Vector(f"rate({vector}[{RATE_INTERVAL}])", vector.labels)


def increase(vector: Vector, window: str = RANGE) -> Vector:
    return Vector(f"increase({vector}[{window}])", vector.labels)


def highest(vector: Vector, window: str) -> Vector:
    return Vector(f"max_over_time({vector}[{window}])", vector.labels)


def sum_by(vector: Vector, *labels: str) -> Vector:
    return _aggregated("sum", vector, labels)


def max_by(vector: Vector, *labels: str) -> Vector:
    return _aggregated("max", vector, labels)


def min_by(vector: Vector, *labels: str) -> Vector:
    return _aggregated("min", vector, labels)


def avg_by(vector: Vector, *labels: str) -> Vector:
    return _aggregated("avg", vector, labels)


def count_by(vector: Vector, *labels: str) -> Vector:
    return _aggregated("count", vector, labels)


def quantile(share: float, histogram: Histogram, *by: str, **labels: str | Matcher) -> str:
    """Return a quantile of the durations that were observed lately."""
    return f"histogram_quantile({share}, {sum_by(rate(buckets(histogram, **labels)), *by, 'le')})"


def or_zero(expression: object) -> str:
    """Return the expression with 0 for nothing; one without labels only."""
    return f"{expression} or vector(0)"


def renamed(vector: Vector, source: str, target: str) -> Vector:
    """Return the vector with a label of another name besides, where it has the label."""
    text = f'label_replace({vector}, "{target}", "$1", "{_known(vector, source)}", "(.+)")'
    return Vector(text, vector.labels | {target})


def combined(text: str, *labels: str) -> Vector:
    """Return an expression of several vectors, which has these labels."""
    return Vector(text, frozenset(labels))


def _selected(name: str, known: tuple[str, ...], labels: Mapping[str, str | Matcher]) -> Vector:
    if not labels.keys() <= set(known):
        raise ValueError(f"{name} has no label {', '.join(sorted(labels.keys() - set(known)))}")
    matchers = [
        f'{label}{item.operator}"{item.value}"'
        if isinstance(item, Matcher)
        else f'{label}="{item}"'
        for label, item in labels.items()
    ]
    selector = ", ".join((CHOSEN_CLUSTER, *matchers))
    return Vector(f"{name}{{{selector}}}", frozenset((*known, TARGET)))


def _aggregated(operator: str, vector: Vector, labels: tuple[str, ...]) -> Vector:
    for label in labels:
        _known(vector, label)
    by = f" by ({', '.join(labels)}) " if labels else ""
    return Vector(f"{operator}{by}({vector})", frozenset(labels))


def _known(vector: Vector, label: str) -> str:
    if label not in vector.labels:
        raise ValueError(f"{vector} has no label {label}")
    return label


def _name_of(metric: DeclaredMetric) -> str:
    (family,) = metric.describe()
    return family.name
