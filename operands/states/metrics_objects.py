"""Service and ServiceMonitor of either source of metrics."""

from typing import Any

from operands.operand_settings import ExporterSettings
from operands.transforms import the

Json = dict[str, Any]


def set_metrics_objects(objects: list[Json], exporter: ExporterSettings) -> list[Json]:
    """Put the labels, annotations and interval of the settings into Service and ServiceMonitor."""
    service, monitor = the(objects, "Service")["metadata"], the(objects, "ServiceMonitor")
    service["labels"] = {**exporter.labels, **service["labels"]}
    if exporter.annotations:
        service["annotations"] = dict(exporter.annotations)
    metadata = monitor["metadata"]
    metadata["labels"] = {**exporter.monitor.labels, **metadata["labels"]}
    if exporter.monitor.annotations:
        metadata["annotations"] = dict(exporter.monitor.annotations)
    monitor["spec"]["endpoints"][0]["interval"] = exporter.monitor.interval
    return [object_ for object_ in objects if exporter.monitor.is_enabled or object_ is not monitor]
