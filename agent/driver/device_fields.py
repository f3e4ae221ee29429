"""The fields of a device's metrics, under DCGM's names and units (dcgm_fields.h, dcgm-exporter's default counters)."""

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping

_COUNT: Final = float(2**63)
"""NVML and DCGM write larger numbers where they have none."""


@final
@dataclass(frozen=True, slots=True)
class FieldDescription:
    """Name, meaning and range of a field."""

    name: str
    type: str
    help: str
    maximum: float = _COUNT
    """Larger values are implausible, as negative ones are."""
    is_usage: bool = False
    """Shown for each container of a shared device."""


class DeviceField(Enum):
    """Fields in the order of the page."""

    GPU_UTIL = FieldDescription(
        "DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %).", 100, is_usage=True
    )
    MEM_COPY_UTIL = FieldDescription(
        "DCGM_FI_DEV_MEM_COPY_UTIL", "gauge", "Memory utilization (in %).", 100, is_usage=True
    )
    FB_USED = FieldDescription(
        "DCGM_FI_DEV_FB_USED", "gauge", "Framebuffer memory used (in MiB).", 2**32, is_usage=True
    )
    FB_FREE = FieldDescription(
        "DCGM_FI_DEV_FB_FREE", "gauge", "Framebuffer memory free (in MiB).", 2**32, is_usage=True
    )
    GPU_TEMP = FieldDescription(
        "DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C).", 250, is_usage=True
    )
    MEMORY_TEMP = FieldDescription(
        "DCGM_FI_DEV_MEMORY_TEMP", "gauge", "Memory temperature (in C).", 250
    )
    POWER_USAGE = FieldDescription(
        "DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W).", 10_000, is_usage=True
    )
    TOTAL_ENERGY_CONSUMPTION = FieldDescription(
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        "counter",
        "Total energy consumption since the driver was loaded (in mJ).",
    )
    SM_CLOCK = FieldDescription(
        "DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock frequency (in MHz).", 100_000
    )
    MEM_CLOCK = FieldDescription(
        "DCGM_FI_DEV_MEM_CLOCK", "gauge", "Memory clock frequency (in MHz).", 100_000
    )
    CLOCK_THROTTLE_REASONS = FieldDescription(
        "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "gauge", "Bit mask of the reasons of reduced clocks."
    )
    XID_ERRORS = FieldDescription(
        "DCGM_FI_DEV_XID_ERRORS", "gauge", "Code of the last Xid error; 0 without one.", 100_000
    )
    ECC_SBE_VOL_TOTAL = FieldDescription(
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "counter", "Single-bit volatile ECC errors."
    )
    ECC_DBE_VOL_TOTAL = FieldDescription(
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "counter", "Double-bit volatile ECC errors."
    )
    ECC_SBE_AGG_TOTAL = FieldDescription(
        "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", "counter", "Single-bit persistent ECC errors."
    )
    ECC_DBE_AGG_TOTAL = FieldDescription(
        "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "counter", "Double-bit persistent ECC errors."
    )
    UNCORRECTABLE_REMAPPED_ROWS = FieldDescription(
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "counter",
        "Rows remapped for uncorrectable errors.",
    )
    CORRECTABLE_REMAPPED_ROWS = FieldDescription(
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "counter", "Rows remapped for correctable errors."
    )
    ROW_REMAP_FAILURE = FieldDescription(
        "DCGM_FI_DEV_ROW_REMAP_FAILURE", "gauge", "1 where remapping of a row failed.", 1
    )
    PCIE_REPLAY_COUNTER = FieldDescription(
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "counter", "Retransmissions on the PCIe bus."
    )
    NVLINK_BANDWIDTH_TOTAL = FieldDescription(
        "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
        "gauge",
        "Data sent and received over all NVLinks (in MB/s).",
        10_000_000,
    )
    NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL = FieldDescription(
        "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
        "counter",
        "NVLink flow-control CRC errors.",
    )
    NVLINK_CRC_DATA_ERROR_COUNT_TOTAL = FieldDescription(
        "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", "counter", "NVLink data CRC errors."
    )
    NVLINK_REPLAY_ERROR_COUNT_TOTAL = FieldDescription(
        "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "counter", "NVLink retries."
    )
    NVLINK_RECOVERY_ERROR_COUNT_TOTAL = FieldDescription(
        "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "counter", "NVLink recovery errors."
    )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSample:
    """Values of a device at one moment, or of one of its MIG instances."""

    index: int
    """NVML's number of the device."""
    address: str
    """Address as in `agent.driver.port.DriverDevice`."""
    uuid: str
    """UUID of the device."""
    minor: int
    product: str
    values: "Mapping[DeviceField, float]" = field(default_factory=dict)
    """Without those that the driver does not support."""
    gpu_instance: int | None = None
    """Number of the GPU instance of a MIG instance; with it profile and unit are set."""
    profile: str = ""
    unit: str = ""
    """The instance's UUID."""
    nvlink_kib: int | None = None
    """Data sent and received over all NVLinks since the driver was loaded; None where it is not known."""
    processes: frozenset[int] | None = None
    """Ids of the processes that use it, in the agent's PID namespace, those of a device's instances apart; None where
    they were not read."""


@final
@dataclass(frozen=True, slots=True)
class DeviceSamples:
    """Values of all devices that answered."""

    samples: tuple[DeviceSample, ...]
    """Samples by NVML's number, and by GPU instance; a device comes before its instances."""
    changed: int = 0
    """Number of devices that were left out: their UUID changed while they were read."""
