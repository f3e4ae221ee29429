"""`device.state`: state and units of a GPUDevice, derived from the index.

Changes are queued with a delay, so that a burst of pods costs one write of a device.
"""

from typing import TYPE_CHECKING, Final, final

from api.kinds.gpudevice import DeviceState, DeviceUnits
from api.names import GROUP
from kube.resources import GPU_DEVICES
from manifests.install.rbac import PolicyRule
from reconciler.controller_spec import ControllerSpec, Trigger
from reconciler.pool.index_changes import index_changes
from reconciler.runtime.controller import STATUS_SHARE
from reconciler.runtime.expectations import Expectations
from reconciler.runtime.status import StatusWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.clock import Instant
    from api.names import DeviceName
    from kube.client import KubeClient
    from pool.index.devices import DeviceEntry
    from pool.index.figures import IndexFigures
    from reconciler.runtime.device_store import DeviceStore

RBAC: Final = (PolicyRule(group=GROUP, resources=("gpudevices/status",), verbs=("patch",)),)

FIELD_MANAGER: Final = "gpu-control-plane/device-state"

StateAndUnits = tuple[DeviceState, DeviceUnits]


def state_of(entry: "DeviceEntry") -> StateAndUnits:
    reserved = (entry.confirmed & ~entry.observed).bit_count()
    units = DeviceUnits(
        capacity=entry.layout.count, reserved=reserved, allocated=entry.observed.bit_count()
    )
    if entry.facts.is_faulted or entry.is_duplicate:
        return DeviceState.FAULTED, units
    if entry.facts.pool is None:
        return DeviceState.UNASSIGNED, units
    if entry.is_draining:
        return DeviceState.DRAINING, units
    return (DeviceState.RESERVED if reserved else DeviceState.ASSIGNED), units


@final
class DeviceStatus:
    """Writes state and units of one device."""

    def __init__(
        self,
        client: "KubeClient",
        index: "IndexFigures",
        devices: "DeviceStore",
        *,
        now: "Callable[[], Instant]",
    ) -> None:
        self._writer = StatusWriter(client, GPU_DEVICES, FIELD_MANAGER)
        self._index = index
        self._devices = devices
        self._expected: Expectations[DeviceName, StateAndUnits] = Expectations(now)

    async def reconcile(self, name: "DeviceName") -> float | None:
        """Write state and units where the device shows others; those in a pool that cannot be read stay as they are."""
        entry, device = self._index.devices.get(name), self._devices.get(name)
        if entry is None or device is None or entry.facts.pool in self._index.unread_pools:
            return None
        desired, status = state_of(entry), device.status
        current = self._expected.unseen(name, device.metadata) or (status.state, status.units)
        if current == desired:
            return None
        state, units = desired
        written = await self._writer.apply(name, {"state": state, "units": units})
        if written is not None:
            self._expected.expect(name, desired, written)
        return None


WORKERS: Final = 4
"""Status writes at a time; a quiet API server is through with 1,000 devices in seconds."""

SPEC: Final = ControllerSpec(
    name="device.state",
    rbac=RBAC,
    triggers=(
        Trigger(
            source=lambda context: context.shared(index_changes).devices,
            delay_s=lambda context, _device: context.shared(index_changes).device_delay_s,
        ),
    ),
    workers=WORKERS,
    share=STATUS_SHARE,
    build=lambda context: (
        DeviceStatus(
            context.client, context.index, context.stores.devices, now=context.now
        ).reconcile
    ),
)
