"""Declarations of metrics, with the names of their labels, which the client library keeps to itself.

The reference of metrics is made from them, and the expressions of dashboards and alerts are checked by them.
"""

from typing import TYPE_CHECKING, Final, TypeVar, final

from prometheus_client import Counter, Gauge, Histogram

from telemetry.label_sets import LabelSets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prometheus_client import CollectorRegistry

DeclaredMetric = Counter | Gauge | Histogram | LabelSets
_Metric = TypeVar("_Metric", Counter, Gauge, Histogram, LabelSets)

_LABELS: Final[dict[DeclaredMetric, tuple[str, ...]]] = {}
# metric -> names of its labels


@final
class MetricDeclarations:
    """Makes metrics of one registry, or of none, whose owner writes their page."""

    def __init__(self, registry: "CollectorRegistry | None") -> None:
        self._registry = registry

    def gauge(self, name: str, documentation: str, labels: "Sequence[str]" = ()) -> Gauge:
        return _declared(Gauge(name, documentation, labels, registry=self._registry), labels)

    def counter(self, name: str, documentation: str, labels: "Sequence[str]" = ()) -> Counter:
        return _declared(Counter(name, documentation, labels, registry=self._registry), labels)

    def histogram(
        self,
        name: str,
        documentation: str,
        labels: "Sequence[str]" = (),
        *,
        buckets: "Sequence[float]",
    ) -> Histogram:
        made = Histogram(name, documentation, labels, registry=self._registry, buckets=buckets)
        return _declared(made, labels)

    def label_sets(self, name: str, documentation: str, labels: "Sequence[str]") -> LabelSets:
        return _declared(LabelSets(name, documentation, labels, registry=self._registry), labels)


def labels_of(metric: DeclaredMetric) -> tuple[str, ...]:
    """Return the names of the metric's labels; those of a histogram without `le`.

    Raises:
        KeyError: the metric is none of ours.
    """
    return _LABELS[metric]


def _declared(metric: _Metric, labels: "Sequence[str]") -> _Metric:
    _LABELS[metric] = tuple(labels)
    return metric
