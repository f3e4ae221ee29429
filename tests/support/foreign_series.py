"""Series of other programs that dashboards ask for, with their labels.

dcgm-exporter: etc/dcp-metrics-included.csv and the labels of internal/pkg/rendermetrics. kube-state-metrics:
docs/metrics/workload/pod-metrics.md.
"""

from typing import Final

_DEVICE: Final = ("gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname")
_INSTANCE: Final = ("GPU_I_PROFILE", "GPU_I_ID")
_HOLDER: Final = ("container", "namespace", "pod")
_RENAMED: Final = ("exported_container", "exported_namespace", "exported_pod")
"""The holder where the monitor does not have `honorLabels`."""

DCGM_LABELS: Final = (*_DEVICE, *_INSTANCE, *_HOLDER, *_RENAMED)
DCGM_FIELDS: Final = (
    "DCGM_FI_DEV_SM_CLOCK",
    "DCGM_FI_DEV_MEM_CLOCK",
    "DCGM_FI_DEV_MEMORY_TEMP",
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_MEM_COPY_UTIL",
    "DCGM_FI_DEV_XID_ERRORS",
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS",
    "DCGM_FI_DEV_FB_FREE",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE",
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
)
KUBE_STATE_METRICS: Final = {
    "kube_pod_container_resource_requests": (
        "namespace",
        "pod",
        "uid",
        "container",
        "node",
        "resource",
        "unit",
    ),
    "kube_pod_status_phase": ("namespace", "pod", "uid", "phase"),
}
FOREIGN_SERIES: Final = dict.fromkeys(DCGM_FIELDS, DCGM_LABELS) | KUBE_STATE_METRICS
"""Name -> labels."""
