"""Values of the fields of `agent.driver.device_fields`, from NVML. Blocking, for the thread of a session.

Ten calls a device, and three for its processes: most fields are read together. A device whose UUID is another one afterwards is left out, since no
value can be told to be of the one or of the other.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pynvml

from agent.driver.device_fields import DeviceField, DeviceSample
from agent.nvml.convert import MIB
from agent.nvml.device_processes import processes_on
from agent.nvml.errors import Handle, NvmlQueries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from agent.driver.port import DriverInstance

_CLOCKS: Final = {
    DeviceField.SM_CLOCK: pynvml.NVML_CLOCK_SM,
    DeviceField.MEM_CLOCK: pynvml.NVML_CLOCK_MEM,
}
_FIELD_IDS: Final = {
    DeviceField.MEMORY_TEMP: pynvml.NVML_FI_DEV_MEMORY_TEMP,
    DeviceField.TOTAL_ENERGY_CONSUMPTION: pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION,
    DeviceField.ECC_SBE_VOL_TOTAL: pynvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL,
    DeviceField.ECC_DBE_VOL_TOTAL: pynvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL,
    DeviceField.ECC_SBE_AGG_TOTAL: pynvml.NVML_FI_DEV_ECC_SBE_AGG_TOTAL,
    DeviceField.ECC_DBE_AGG_TOTAL: pynvml.NVML_FI_DEV_ECC_DBE_AGG_TOTAL,
    DeviceField.UNCORRECTABLE_REMAPPED_ROWS: pynvml.NVML_FI_DEV_REMAPPED_UNC,
    DeviceField.CORRECTABLE_REMAPPED_ROWS: pynvml.NVML_FI_DEV_REMAPPED_COR,
    DeviceField.ROW_REMAP_FAILURE: pynvml.NVML_FI_DEV_REMAPPED_FAILURE,
    DeviceField.PCIE_REPLAY_COUNTER: pynvml.NVML_FI_DEV_PCIE_REPLAY_COUNTER,
    DeviceField.NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL: pynvml.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL,
    DeviceField.NVLINK_CRC_DATA_ERROR_COUNT_TOTAL: pynvml.NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL,
    DeviceField.NVLINK_REPLAY_ERROR_COUNT_TOTAL: pynvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL,
    DeviceField.NVLINK_RECOVERY_ERROR_COUNT_TOTAL: pynvml.NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL,
}
"""Read by one nvmlDeviceGetFieldValues, with those of NVLink."""
_ALL_LINKS: Final = 0xFFFFFFFF
_NVLINK_KIB: Final = (
    (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, _ALL_LINKS),
    (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _ALL_LINKS),
)
"""Fields with their scopes."""
_MEMBERS: Final = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
}
"""nvmlValueType_t -> member of the union."""


def device_samples(
    device: DeviceSample,
    handle: Handle,
    *,
    instances: "Callable[[], Iterable[tuple[DriverInstance, Handle]] | None]",
    queries: NvmlQueries,
    reads_processes: bool,
) -> "tuple[DeviceSample, ...] | None":
    """Return the samples of a device and of its MIG instances; None where it is another one by now.

    Args:
        device: what identifies it, without values.
        handle: of the session.
        instances: reads the MIG instances; returns None for a device that is not partitioned.
        queries: makes the calls.
        reads_processes: whether the processes are read, too.

    Raises:
        DeviceLostError: it is lost.
    """
    mig_handles = instances()
    values = dict(_single_values(handle, queries))
    field_values, nvlink_kib = _field_values(handle, queries)
    values |= field_values
    if mig_handles is None:
        values |= _memory(handle, queries)
    found = [
        replace(
            device,
            values=_memory(mig_handle, queries),
            gpu_instance=instance.gpu_instance,
            profile=instance.profile,
            unit=instance.uuid,
            processes=frozenset(processes_on(mig_handle, queries)) if reads_processes else None,
        )
        for instance, mig_handle in mig_handles or ()
    ]
    processes = None
    if reads_processes:
        # A partitioned device lists those of its instances, too.
        instance_pids = {pid for item in found for pid in item.processes or ()}
        processes = frozenset(processes_on(handle, queries) - instance_pids)
    found.insert(0, replace(device, values=values, nvlink_kib=nvlink_kib, processes=processes))
    is_same = queries.ask("", pynvml.nvmlDeviceGetUUID, handle) == device.uuid
    return tuple(found) if is_same else None


def _single_values(handle: Handle, queries: NvmlQueries) -> "Iterator[tuple[DeviceField, float]]":
    ask = queries.ask
    utilisation = ask(None, pynvml.nvmlDeviceGetUtilizationRates, handle)
    if utilisation is not None:
        yield DeviceField.GPU_UTIL, utilisation.gpu
        yield DeviceField.MEM_COPY_UTIL, utilisation.memory
    milliwatts = ask(None, pynvml.nvmlDeviceGetPowerUsage, handle)
    by_call = {
        DeviceField.GPU_TEMP: ask(
            None, pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU
        ),
        DeviceField.POWER_USAGE: None if milliwatts is None else milliwatts / 1000,
        DeviceField.CLOCK_THROTTLE_REASONS: ask(
            None, pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle
        ),
    } | {
        field: ask(None, pynvml.nvmlDeviceGetClockInfo, handle, clock)
        for field, clock in _CLOCKS.items()
    }
    yield from ((field, value) for field, value in by_call.items() if value is not None)


def _field_values(
    handle: Handle, queries: NvmlQueries
) -> tuple[dict[DeviceField, float], int | None]:
    """Return the values of `_FIELD_IDS`, and the data over NVLink."""
    asked = [*_FIELD_IDS.values(), *_NVLINK_KIB]
    found = queries.ask((), pynvml.nvmlDeviceGetFieldValues, handle, asked)
    values = [field_value(item) for item in found]
    pairs = zip(_FIELD_IDS, values, strict=False)
    nvlink_counters = [int(value) for value in values[len(_FIELD_IDS) :] if value is not None]
    return (
        {field: value for field, value in pairs if value is not None},
        sum(nvlink_counters) if len(nvlink_counters) == len(_NVLINK_KIB) else None,
    )


def field_value(field: "pynvml.c_nvmlFieldValue_t") -> float | None:
    """Return the value of an nvmlFieldValue_t; None where the driver has none."""
    member = _MEMBERS.get(field.valueType)
    if field.nvmlReturn != pynvml.NVML_SUCCESS or member is None:
        return None
    value: float = getattr(field.value, member)
    return value


def _memory(handle: Handle, queries: NvmlQueries) -> dict[DeviceField, float]:
    memory = queries.ask(None, pynvml.nvmlDeviceGetMemoryInfo, handle)
    if memory is None:
        return {}
    return {
        DeviceField.FB_USED: memory.used // MIB,
        DeviceField.FB_FREE: memory.free // MIB,
    }
