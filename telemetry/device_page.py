"""Metrics of the node agent's page of devices, besides those that have DCGM's names.

`agent.device_metrics.page` writes them: in no registry, because their labels, those of dcgm-exporter, name devices and
pods.
"""

from typing import Final

from telemetry.metric_declaration import MetricDeclarations

_declarations: Final = MetricDeclarations(None)

DEVICE_LABELS = ("gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname")
INSTANCE_LABELS = ("GPU_I_PROFILE", "GPU_I_ID")

DEVICE_METRICS_STALE = _declarations.gauge(
    "gpu_device_metrics_stale",
    "1 where the driver did not answer in time: values are the last known, or absent.",
)
PROCESS_UNACCOUNTED = _declarations.gauge(
    "gpu_process_unaccounted",
    "Processes on a device of a pool that kubelet did not give to their pod, by pod; without one they are in no pod.",
    [*DEVICE_LABELS, *INSTANCE_LABELS, "pool", "namespace", "pod"],
)
