"""Health states of a device, and the state that a driver event leads to.

Texts have no figure that moves while a fault lasts, so that a fault is published once.
"""

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, final

from agent.driver.port import EventKind

if TYPE_CHECKING:
    from agent.driver.port import DriverEvent


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
    """Reason in PascalCase; its prefix is the kind of fault in `inventory.health.device`: Xid, Ecc, Lost or Thermal."""
    text: str = ""

    @property
    def is_healthy(self) -> bool:
        """Whether the device may be allocated."""
        return self.state is HealthState.HEALTHY


HEALTHY: Final = DeviceHealthState(HealthState.HEALTHY)
LOST: Final = DeviceHealthState(
    HealthState.LOST,
    "Lost",
    "the driver no longer reaches the device: reset it (nvidia-smi --gpu-reset), or reboot the node",
)
REMAP_FAILED: Final = DeviceHealthState(
    HealthState.UNHEALTHY,
    "EccRowRemapFailed",
    "a faulty memory row could not be remapped: replace the device",
)
TOO_HOT: Final = DeviceHealthState(
    HealthState.UNHEALTHY,
    "ThermalShutdown",
    "the device has reached its shutdown temperature: check its cooling",
)
DOUBLE_BIT: Final = DeviceHealthState(
    HealthState.UNHEALTHY, "EccDoubleBit", "the driver reported a double-bit ECC error"
)
UNCORRECTABLE: Final = DeviceHealthState(
    HealthState.UNHEALTHY, "EccUncorrectable", "the device's count of uncorrectable ECC errors grew"
)
_XID: Final = "Xid"
_XID_REASON: Final = re.compile(f"{_XID}([0-9]{{1,5}})")
_MOMENTARY: Final = {item.reason: item for item in (DOUBLE_BIT, UNCORRECTABLE)}


def xid(code: int) -> DeviceHealthState:
    return DeviceHealthState(
        HealthState.UNHEALTHY,
        f"{_XID}{code}",
        f"the driver reported Xid {code} (docs.nvidia.com/deploy/xid-errors)",
    )


def state_of_event(event: "DriverEvent") -> DeviceHealthState:
    match event.kind:
        case EventKind.XID:
            return xid(event.code)
        case EventKind.DOUBLE_BIT_ECC:  # pragma: no branch  # mypy proves that none is missing
            return DOUBLE_BIT


def recalled_state(reason: str) -> DeviceHealthState | None:
    """Return the state of a momentary fault by its reason; None for any other reason."""
    match = _XID_REASON.fullmatch(reason)
    return xid(int(match[1])) if match else _MOMENTARY.get(reason)
