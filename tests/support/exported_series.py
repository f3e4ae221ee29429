"""Every series that our programs export, by its name as Prometheus stores it, with the names of its labels."""

from collections.abc import Iterator
from typing import Final

from prometheus_client import Counter, Histogram

from telemetry import (
    agent_metrics,
    device_page,
    kernel_cache_metrics,
    metrics,
    node_software_metrics,
    usage_metrics,
)
from telemetry.metric_declaration import DeclaredMetric, labels_of
from tests.support.foreign_series import FOREIGN_SERIES

HOMES: Final = (
    metrics,
    agent_metrics,
    device_page,
    kernel_cache_metrics,
    node_software_metrics,
    usage_metrics,
)
"""Modules that declare what alerts and dashboards ask for."""
OF_TARGETS: Final = frozenset({"cluster", "instance", "job"})
"""Labels that Prometheus gives every series, `cluster` where there are several."""


def declared_metrics() -> Iterator[DeclaredMetric]:
    for home in HOMES:
        for metric in vars(home).values():
            if isinstance(metric, DeclaredMetric):
                yield metric


def name_of(metric: DeclaredMetric) -> str:
    (family,) = metric.describe()
    return family.name


def series_of(metric: DeclaredMetric) -> dict[str, frozenset[str]]:
    """Return the metric's series: name -> labels."""
    name, labels = name_of(metric), OF_TARGETS.union(labels_of(metric))
    match metric:
        case Counter():
            return {f"{name}_total": labels}
        case Histogram():
            return {
                f"{name}_bucket": labels | {"le"},
                f"{name}_count": labels,
                f"{name}_sum": labels,
            }
        case _:
            return {name: labels}


OURS: Final[dict[str, frozenset[str]]] = {
    name: labels for metric in declared_metrics() for name, labels in series_of(metric).items()
}
OF_NODE_STATUS_EXPORTER: Final[dict[str, frozenset[str]]] = {
    f"gpu_operator_node_{name}": OF_TARGETS | {"node"}
    for name in ("device_plugin_devices_total", "driver_validation", "toolkit_ready", "cuda_ready")
}
"""NVIDIA's, in an image of NVIDIA's, which a ClusterPolicy runs: alerts of nodes ask for them."""
KNOWN: Final[dict[str, frozenset[str]]] = OURS | {
    name: OF_TARGETS.union(labels) for name, labels in FOREIGN_SERIES.items()
}
"""With those of other programs that dashboards show."""
