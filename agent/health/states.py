"""Health states of a device.

Texts have no figure that moves while a fault lasts, so that a fault is published once.
"""

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, final

from inventory.health.recovery import CURES, RecoveryAction

if TYPE_CHECKING:
    from api.kinds.gpudevice import LastXid
    from inventory.health.recovery import XidAction


class HealthState(Enum):
    """The published state of a device (`api.foreign.nodefeature.AgentDevice.HEALTH`)."""

    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"
    LOST = "Lost"


@final
@dataclass(frozen=True, slots=True)
class DeviceHealthState:
    """Health of a device."""

    state: HealthState
    reason: str = ""
    """Its cause in PascalCase: `Xid79`, `EccUncorrectable`, or the action that the driver asks for without a cause."""
    text: str = ""
    action: RecoveryAction = RecoveryAction.NONE
    """What the device needs."""
    reported: RecoveryAction | None = None
    """The action that the driver last had; None where it does not have the field."""
    reset: str = ""
    """Outcome of the last reset that was asked for (`inventory.health.repair.reset_text`)."""
    last_xid: "LastXid | None" = None
    """The last Xid since the driver was loaded and the agent started."""

    @property
    def is_healthy(self) -> bool:
        """Whether the device may be allocated."""
        return self.state is HealthState.HEALTHY


HEALTHY: Final = DeviceHealthState(HealthState.HEALTHY)


def lost(reason: str, text: str) -> DeviceHealthState:
    action = RecoveryAction.NODE_REBOOT
    return DeviceHealthState(HealthState.LOST, reason, f"{text}: {CURES[action]}", action)


def unhealthy(reason: str, text: str, action: RecoveryAction) -> DeviceHealthState:
    return DeviceHealthState(HealthState.UNHEALTHY, reason, f"{text}: {CURES[action]}", action)


LOST: Final = lost("Lost", "the driver no longer reaches the device")
BEING_RESET: Final = unhealthy(
    "ResetOfNeighbour", "it is reset with its neighbour by NVLink", RecoveryAction.BEING_RESET
)
REMAP_FAILED: Final = unhealthy(
    "EccRowRemapFailed", "a faulty memory row could not be remapped", RecoveryAction.REPLACE
)
TOO_HOT: Final = unhealthy(
    "ThermalShutdown",
    "the device has reached its shutdown temperature",
    RecoveryAction.CHECK_COOLING,
)
DOUBLE_BIT: Final = "EccDoubleBit"
UNCORRECTABLE: Final = "EccUncorrectable"
"""The device's count of uncorrectable ECC errors grew."""
_XID: Final = re.compile(r"Xid([0-9]{1,5})")
_CAUSES: Final = {
    DOUBLE_BIT: "a double-bit ECC error",
    UNCORRECTABLE: "a new uncorrectable ECC error",
}


def xid_reason(code: int) -> str:
    return f"Xid{code}"


def xid_of(reason: str) -> int | None:
    """Return the Xid of a reason; None for the reason of any other fault."""
    match = _XID.fullmatch(reason)
    return int(match[1]) if match else None


def asked_for(action: RecoveryAction) -> DeviceHealthState:
    """Return the state of a device for which the driver asks without a known cause."""
    return unhealthy(action.value, f"the driver's recovery action is {action.value}", action)


def state_after(reason: str, xid_action: "XidAction") -> DeviceHealthState:
    """Return the state after an Xid, or after an ECC error."""
    cause = _CAUSES.get(reason, f"Xid {xid_of(reason)} (docs.nvidia.com/deploy/xid-errors)")
    text = f"{cause}, recovery action {xid_action.action.value} {xid_action.source.value}"
    return unhealthy(reason, text, xid_action.action)
