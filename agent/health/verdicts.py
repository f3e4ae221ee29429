"""What can be said of a card's health: the verdicts, and which of them an event is.

Texts have no figure that moves while a fault lasts, so that what is published of it changes once.
"""

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, final

from agent.driver.port import EventKind

if TYPE_CHECKING:
    from agent.driver.port import DriverEvent


class HealthState(Enum):
    """What is published of a card (`api.foreign.nodefeature.AgentDevice.HEALTH`)."""

    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"
    LOST = "Lost"


@final
@dataclass(frozen=True, slots=True)
class DeviceHealthState:
    """A verdict on a card."""

    state: HealthState
    reason: str = ""
    """In PascalCase; it begins with the word by which `inventory.health.device` knows the kind of a fault:
    Xid, Ecc, Lost or Thermal."""
    text: str = ""

    @property
    def is_healthy(self) -> bool:
        """Say whether the card may be given out."""
        return self.state is HealthState.HEALTHY


HEALTHY: Final = DeviceHealthState(HealthState.HEALTHY)
LOST: Final = DeviceHealthState(
    HealthState.LOST,
    "Lost",
    "the driver does not reach the card any more: reset it (nvidia-smi --gpu-reset), or reboot the node",
)
REMAP_FAILED: Final = DeviceHealthState(
    HealthState.UNHEALTHY,
    "EccRowRemapFailed",
    "a faulty row of the memory could not be remapped: the card is to be replaced",
)
TOO_HOT: Final = DeviceHealthState(
    HealthState.UNHEALTHY,
    "ThermalShutdown",
    "as hot as where the card shuts itself down: look at its cooling",
)
DOUBLE_BIT: Final = DeviceHealthState(
    HealthState.UNHEALTHY, "EccDoubleBit", "the driver told of a double-bit ECC error"
)
UNCORRECTABLE: Final = DeviceHealthState(
    HealthState.UNHEALTHY, "EccUncorrectable", "the card's count of uncorrectable ECC errors grew"
)
_XID: Final = "Xid"
_XID_REASON: Final = re.compile(f"{_XID}([0-9]{{1,5}})")
_HAPPENED: Final = {one.reason: one for one in (DOUBLE_BIT, UNCORRECTABLE)}


def xid(code: int) -> DeviceHealthState:
    return DeviceHealthState(
        HealthState.UNHEALTHY,
        f"{_XID}{code}",
        f"the driver told of Xid {code} (docs.nvidia.com/deploy/xid-errors)",
    )


def verdict_on(event: "DriverEvent") -> DeviceHealthState:
    match event.kind:
        case EventKind.XID:
            return xid(event.code)
        case EventKind.DOUBLE_BIT_ECC:  # pragma: no branch  # mypy proves that none is missing
            return DOUBLE_BIT


def recalled_verdicts(reason: str) -> DeviceHealthState | None:
    """Return the verdict of a fault that happened, by its reason; None for any other reason."""
    match = _XID_REASON.fullmatch(reason)
    return xid(int(match[1])) if match else _HAPPENED.get(reason)
