"""`device.state`: state and units of a GPUDevice, derived from the index.

A device's status is written once a burst is over, not once a pod: changes are queued with a delay.
"""

from typing import TYPE_CHECKING, Final, final

from api.kinds.gpudevice import DeviceState, DeviceUnits
from api.names import API_VERSION, GROUP
from kube.errors import NotFound
from kube.resources import GPU_DEVICES
from manifests.install.rbac import PolicyRule
from reconciler.sinks.devices import Reported

if TYPE_CHECKING:
    from api.names import DeviceName
    from kube.client import KubeClient
    from pool.index.device_index import DeviceIndex
    from pool.index.devices import DeviceEntry
    from reconciler.sinks.devices import DeviceSink

RBAC: Final = (PolicyRule(group=GROUP, resources=("gpudevices/status",), verbs=("patch",)),)

FIELD_MANAGER: Final = "gpu-control-plane/device-state"


def state_of(entry: "DeviceEntry") -> Reported:
    """Return the state and units that the device should show."""
    reserved = (entry.confirmed & ~entry.observed).bit_count()
    units = DeviceUnits(
        capacity=entry.layout.count, reserved=reserved, allocated=entry.observed.bit_count()
    )
    if entry.facts.is_faulted or entry.is_duplicate:
        return Reported(DeviceState.FAULTED, units)
    if entry.facts.pool is None:
        return Reported(DeviceState.UNASSIGNED, units)
    if entry.is_draining:
        return Reported(DeviceState.DRAINING, units)
    return Reported(DeviceState.RESERVED if reserved else DeviceState.ASSIGNED, units)


@final
class DeviceStatus:
    """Writes state and units of one device."""

    def __init__(self, client: "KubeClient", index: "DeviceIndex", sink: "DeviceSink") -> None:
        self._client = client
        self._index = index
        self._sink = sink

    async def reconcile(self, name: "DeviceName") -> float | None:
        """Make the device's status say what the index says."""
        entry = self._index.devices.get(name)
        if entry is None:
            return None
        wanted, shown = state_of(entry), self._sink.reported.get(name)
        if shown == wanted:
            return None
        body = {
            "apiVersion": API_VERSION,
            "kind": GPU_DEVICES.kind,
            "metadata": {"name": name},
            "status": {"state": wanted.state, "units": wanted.units},
        }
        try:
            await self._client.apply(
                GPU_DEVICES, body, field_manager=FIELD_MANAGER, subresource="status"
            )
        except NotFound:
            return None
        # What the watch brought meanwhile is newer than what was compared: it stands.
        if shown is not None and self._sink.reported.get(name) == shown:
            self._sink.reported[name] = wanted
        return None
