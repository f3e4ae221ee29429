"""Metrics of the page /metrics/usage: they name namespaces and pods, so that only callers with a right to them see it.

`reconciler.pool.namespace_usage` owns them. They are in a registry of their own: no other page shows them.
"""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

USAGE_REGISTRY: Final = CollectorRegistry()

NAMESPACE_UNITS = Gauge(
    "gpupool_namespace_units",
    "Units of the pool that pods of the namespace have, by state (used, reserved).",
    ["pool", "namespace", "state"],
    registry=USAGE_REGISTRY,
)
NAMESPACE_UNIT_SECONDS = Counter(
    "gpupool_namespace_unit_seconds_total",
    "Seconds that pods of the namespace had units of the pool, times the number of units, by state.",
    ["pool", "namespace", "state"],
    registry=USAGE_REGISTRY,
)
DEVICE_HOLDER = Gauge(
    "gpu_device_holder",
    "Units of the device that a bound pod has.",
    ["uuid", "namespace", "pod"],
    registry=USAGE_REGISTRY,
)
