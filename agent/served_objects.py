"""GPUPools and GPUDevices as far as an agent needs them: a value of the next version elsewhere in them hides no unit.

An agent may be older than the objects, as after a rollback. A field that it does not use has a wire name here that no
object has, so it is not decoded. The others are decoded as everywhere, but for the bound that a later version may raise.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from api.kinds.autoscaling import Autoscaling, AutoscalingStatus
from api.kinds.gpudevice import DeviceState, GPUDevice, GPUDeviceStatus
from api.kinds.gpupool import (
    Access,
    Allocation,
    Assignment,
    DeviceSelector,
    EffectiveAllocation,
    GPUPool,
    GPUPoolSpec,
    GPUPoolStatus,
    Maintenance,
    ReservationPolicy,
    Scheduling,
    Strategy,
)
from api.names import MOST_SLICES_READ

Slices = Annotated[int, Meta(ge=1, le=MOST_SLICES_READ)]


class _Allocation(Allocation, frozen=True):
    slices_per_device: Slices | None = None


class _EffectiveAllocation(EffectiveAllocation, frozen=True):
    slices_per_device: Slices = 1


class _PoolSpec(GPUPoolSpec, frozen=True):
    allocation: _Allocation = _Allocation()
    device_selector: DeviceSelector = msgspec.field(default=DeviceSelector(), name="-selector")
    assignment: Assignment = msgspec.field(default=Assignment(), name="-assignment")
    access: Access = msgspec.field(default=Access(), name="-access")
    scheduling: Scheduling = msgspec.field(default=Scheduling(), name="-scheduling")
    reservation: ReservationPolicy = msgspec.field(default=ReservationPolicy(), name="-reservation")
    maintenance: Maintenance = msgspec.field(default=Maintenance(), name="-maintenance")
    autoscaling: Autoscaling | None = msgspec.field(default=None, name="-autoscaling")


class _PoolStatus(GPUPoolStatus, frozen=True):
    allocation: _EffectiveAllocation | None = None
    strategy: Strategy | None = msgspec.field(default=None, name="-strategy")
    autoscaling: AutoscalingStatus | None = msgspec.field(default=None, name="-autoscaling")


class ServedPool(GPUPool, frozen=True):
    """A pool whose units an agent offers; what decides about its pods has its default."""

    spec: _PoolSpec = _PoolSpec()
    status: _PoolStatus = _PoolStatus()


class _DeviceStatus(GPUDeviceStatus, frozen=True):
    state: DeviceState = msgspec.field(default=DeviceState.UNASSIGNED, name="-state")


class ServedDevice(GPUDevice, frozen=True):
    """A device of the node; its state, which follows from the rest, has its default."""

    status: _DeviceStatus = _DeviceStatus()
