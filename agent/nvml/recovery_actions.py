"""NVML's recovery action of a device: field 230. Blocking, for the thread of a session."""

from typing import Final, final

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


@final
class RecoveryActions:
    """Reads the recovery actions of devices, and remembers which devices have one."""

    def __init__(self) -> None:
        self._having: set[str] = set()
        """UUIDs of the devices whose driver has said an action: a failure is no lack of the field from then on."""

    def read(self, uuid: str, handle: Handle, queries: NvmlQueries) -> RecoveryAction | None:
        """Return the action; None where the driver does not have the field, UNKNOWN where it does not say it.

        Raises:
            DeviceLostError: the device is lost.
        """
        asked = [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION]
        values = [
            field_value(item)
            for item in queries.ask((), pynvml.nvmlDeviceGetFieldValues, handle, asked)
        ]
        if not values or values[0] is None:
            return RecoveryAction.UNKNOWN if uuid in self._having else None
        self._having.add(uuid)
        return _ACTIONS.get(int(values[0]), RecoveryAction.UNKNOWN)
