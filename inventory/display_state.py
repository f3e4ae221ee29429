"""What a device looks like in a list or on a page: one word for its state and for what pods have of it."""

from enum import Enum
from typing import TYPE_CHECKING, final

import msgspec

from api.kinds.gpudevice import DeviceState

if TYPE_CHECKING:
    from api.kinds.gpudevice import GPUDevice


class DisplayState(Enum):
    FREE = "free"
    RESERVED = "reserved"
    PARTLY_USED = "partly used"
    USED = "used"
    DRAINING = "draining"
    FAULTED = "faulted"
    NOT_IN_A_POOL = "in no pool"

    @property
    def word(self) -> str:
        return self.value


@final
class DeviceFigures(msgspec.Struct, frozen=True, gc=False):
    """What decides how a device looks."""

    is_faulted: bool
    is_draining: bool
    """It leaves its pool."""
    is_in_pool: bool
    units: int
    used: int
    reserved: int

    @property
    def display(self) -> DisplayState:
        """What keeps pods away comes before what pods have."""
        if self.is_faulted:
            return DisplayState.FAULTED
        if not self.is_in_pool:
            return DisplayState.NOT_IN_A_POOL
        if self.is_draining:
            return DisplayState.DRAINING
        if self.used:
            is_full = self.used + self.reserved >= self.units
            return DisplayState.USED if is_full else DisplayState.PARTLY_USED
        return DisplayState.RESERVED if self.reserved else DisplayState.FREE


def figures_of(device: "GPUDevice") -> DeviceFigures:
    """Return the figures that the leader last wrote."""
    status = device.status
    return DeviceFigures(
        is_faulted=device.is_faulted or status.state is DeviceState.FAULTED,
        is_draining=device.is_draining or status.state is DeviceState.DRAINING,
        is_in_pool=status.pool_ref is not None,
        units=status.units.capacity,
        used=status.units.allocated,
        reserved=status.units.reserved,
    )


def display_state_of(device: "GPUDevice") -> DisplayState:
    """Return what the device looks like by its status."""
    return figures_of(device).display
