"""Series of other programs that dashboards show, with their labels and the reason why ours have no such series.

dcgm-exporter: etc/dcp-metrics-included.csv, etc/default-counters.csv and the labels of internal/pkg/rendermetrics.
kube-state-metrics: docs/metrics/workload/pod-metrics.md.
"""

from dataclasses import dataclass
from typing import Final, final


@final
@dataclass(frozen=True, slots=True)
class ForeignSeries:
    """Series of one name."""

    name: str
    labels: tuple[str, ...]
    reason: str
    """Why a dashboard asks for it."""


_DEVICE: Final = ("gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname")
_INSTANCE: Final = ("GPU_I_PROFILE", "GPU_I_ID")
_HOLDER: Final = ("container", "namespace", "pod")
_RENAMED: Final = ("exported_container", "exported_namespace", "exported_pod")
"""The holder where the monitor does not have `honorLabels`."""
_DCGM_LABELS: Final = (*_DEVICE, *_INSTANCE, *_HOLDER, *_RENAMED)


def _of_dcgm(field: str, reason: str) -> ForeignSeries:
    return ForeignSeries(f"DCGM_FI_DEV_{field}", _DCGM_LABELS, reason)


GPU_UTIL: Final = _of_dcgm("GPU_UTIL", "whether a device that a pod has works")
MEM_COPY_UTIL: Final = _of_dcgm("MEM_COPY_UTIL", "whether memory is what a program waits for")
FB_USED: Final = _of_dcgm("FB_USED", "whether a smaller unit would do")
FB_FREE: Final = _of_dcgm("FB_FREE", "the rest of the device's memory")
SM_CLOCK: Final = _of_dcgm("SM_CLOCK", "whether the device is slowed down")
MEM_CLOCK: Final = _of_dcgm("MEM_CLOCK", "whether its memory is slowed down")
GPU_TEMP: Final = _of_dcgm("GPU_TEMP", "why a device is slowed down")
MEMORY_TEMP: Final = _of_dcgm("MEMORY_TEMP", "why its memory is slowed down")
POWER_USAGE: Final = _of_dcgm("POWER_USAGE", "what the devices of a node draw")
TOTAL_ENERGY_CONSUMPTION: Final = _of_dcgm("TOTAL_ENERGY_CONSUMPTION", "what they cost besides")
CLOCK_THROTTLE_REASONS: Final = _of_dcgm("CLOCK_THROTTLE_REASONS", "why clocks are low")
XID_ERRORS: Final = _of_dcgm("XID_ERRORS", "the driver's last word on a fault")
ECC_SBE_VOL_TOTAL: Final = _of_dcgm("ECC_SBE_VOL_TOTAL", "memory that begins to fail")
ECC_DBE_VOL_TOTAL: Final = _of_dcgm("ECC_DBE_VOL_TOTAL", "memory that has failed")
UNCORRECTABLE_REMAPPED_ROWS: Final = _of_dcgm("UNCORRECTABLE_REMAPPED_ROWS", "memory replaced late")
CORRECTABLE_REMAPPED_ROWS: Final = _of_dcgm("CORRECTABLE_REMAPPED_ROWS", "memory replaced in time")
ROW_REMAP_FAILURE: Final = _of_dcgm("ROW_REMAP_FAILURE", "a device that needs service")
NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL: Final = _of_dcgm(
    "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "links that fail"
)
NVLINK_BANDWIDTH_TOTAL: Final = _of_dcgm("NVLINK_BANDWIDTH_TOTAL", "whether links are used")
PCIE_REPLAY_COUNTER: Final = _of_dcgm("PCIE_REPLAY_COUNTER", "a slot or riser that fails")

CONTAINER_REQUESTS: Final = ForeignSeries(
    "kube_pod_container_resource_requests",
    ("namespace", "pod", "uid", "container", "node", "resource", "unit"),
    "what each pod requests; the server names pods on /metrics/usage only",
)
POD_PHASE: Final = ForeignSeries(
    "kube_pod_status_phase",
    ("namespace", "pod", "uid", "phase"),
    "which of these pods have ended",
)

BUILD: Final = ForeignSeries(
    "gpu_build_info", ("version", "revision"), "ours, of a kind that no gauge declares"
)
CPU_SECONDS: Final = ForeignSeries("process_cpu_seconds_total", (), "of the client library")
RESIDENT_BYTES: Final = ForeignSeries("process_resident_memory_bytes", (), "of the client library")

FOREIGN_SERIES: Final = {
    global_.name: global_
    for global_ in (*globals().values(),)
    if isinstance(global_, ForeignSeries)
}
DCGM_FIELDS: Final = tuple(name for name in FOREIGN_SERIES if name.startswith("DCGM_"))
