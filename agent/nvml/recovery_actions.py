"""NVML's recovery action of a device: field 230. Blocking, for the thread of a session."""

from typing import Final

import pynvml

from agent.nvml.device_samples import field_value
from agent.nvml.errors import Handle, NvmlQueries
from inventory.health.recovery import RecoveryAction

_ACTIONS: Final = {
    pynvml.NVML_GPU_RECOVERY_ACTION_NONE: RecoveryAction.NONE,
    pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET: RecoveryAction.GPU_RESET,
    pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT: RecoveryAction.NODE_REBOOT,
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_P2P: RecoveryAction.DRAIN_P2P,
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET: RecoveryAction.DRAIN_AND_RESET,
    pynvml.NVML_GPU_RECOVERY_ACTION_RECOVER_IMEX_DOMAIN: RecoveryAction.RECOVER_IMEX_DOMAIN,
    pynvml.NVML_GPU_RECOVERY_ACTION_BUS_RESET: RecoveryAction.BUS_RESET,
    pynvml.NVML_GPU_RECOVERY_ACTION_SYSTEM_REBOOT: RecoveryAction.SYSTEM_REBOOT,
}


def recovery_action(handle: Handle, queries: NvmlQueries) -> RecoveryAction | None:
    """Return the action of a device; None where the driver does not have the field, or does not say it.

    Raises:
        DeviceLostError: the device is lost.
    """
    asked = [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION]
    fields = queries.ask((), pynvml.nvmlDeviceGetFieldValues, handle, asked)
    values = [value for field in fields if (value := field_value(field)) is not None]
    return _ACTIONS.get(int(values[0]), RecoveryAction.UNKNOWN) if values else None
