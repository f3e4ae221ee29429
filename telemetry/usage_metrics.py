"""Metrics of the page /metrics/usage: they name namespaces and pods, so that only callers with a right to them see it.

`reconciler.pool.namespace_usage` owns them. They are in a registry of their own: no other page shows them.
"""

from typing import Final

from prometheus_client import CollectorRegistry

from telemetry.metric_declaration import MetricDeclarations

USAGE_REGISTRY: Final = CollectorRegistry()
_declarations: Final = MetricDeclarations(USAGE_REGISTRY)

NAMESPACE_UNITS = _declarations.gauge(
    "gpupool_namespace_units",
    "Units of the pool that pods of the namespace have, by state (used, reserved).",
    ["pool", "namespace", "state"],
)
NAMESPACE_UNIT_SECONDS = _declarations.counter(
    "gpupool_namespace_unit_seconds_total",
    "Seconds that pods of the namespace had units of the pool, times the number of units, by state.",
    ["pool", "namespace", "state"],
)
DEVICE_HOLDER = _declarations.gauge(
    "gpu_device_holder",
    "Units of the device that a bound pod has.",
    ["uuid", "namespace", "pod"],
)
