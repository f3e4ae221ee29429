"""Series of other programs that dashboards show, with their labels.

dcgm-exporter: etc/dcp-metrics-included.csv, etc/default-counters.csv and the labels of internal/pkg/rendermetrics.
kube-state-metrics: docs/metrics/workload/pod-metrics.md.
"""

from typing import Final

_DCGM_LABELS: Final = (
    *("gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname"),
    *("GPU_I_PROFILE", "GPU_I_ID", "container", "namespace", "pod"),
    # the holder where the monitor does not have `honorLabels`
    *("exported_container", "exported_namespace", "exported_pod"),
)
DCGM_FIELDS: Final = tuple(
    f"DCGM_FI_DEV_{field}"
    for field in (
        *("GPU_UTIL", "MEM_COPY_UTIL", "FB_USED", "FB_FREE", "SM_CLOCK", "MEM_CLOCK"),
        *("GPU_TEMP", "MEMORY_TEMP", "POWER_USAGE", "TOTAL_ENERGY_CONSUMPTION"),
        *("CLOCK_THROTTLE_REASONS", "XID_ERRORS", "ECC_SBE_VOL_TOTAL", "ECC_DBE_VOL_TOTAL"),
        *("UNCORRECTABLE_REMAPPED_ROWS", "CORRECTABLE_REMAPPED_ROWS", "ROW_REMAP_FAILURE"),
        *("NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "NVLINK_BANDWIDTH_TOTAL", "PCIE_REPLAY_COUNTER"),
    )
)
FOREIGN_SERIES: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(DCGM_FIELDS, _DCGM_LABELS),
    "kube_node_status_allocatable": ("node", "resource", "unit"),
    "kube_pod_container_resource_requests": (
        *("namespace", "pod", "uid", "container", "node", "resource", "unit"),
    ),
    "kube_pod_status_phase": ("namespace", "pod", "uid", "phase"),
    # ours: of a kind that no gauge declares, and of the client library
    "gpu_build_info": ("version", "revision"),
    "process_cpu_seconds_total": (),
    "process_resident_memory_bytes": (),
}
"""Name -> labels."""
