"""`device.index`: GPUDevices into the index, and what their status says of state and units.

Only that part of the status is kept beside the facts, for `reconciler.device_state` to compare with.
"""

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from api.names import GROUP
from manifests.rbac import Rule
from pool.facts import device_facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.gpudevice import DeviceState, DeviceUnits, GPUDevice
    from api.names import DeviceName
    from pool.index import DeviceIndex


RBAC: Final = (Rule(group=GROUP, resources=("gpudevices",), verbs=("get", "list", "watch")),)


@dataclass(frozen=True, slots=True)
class Reported:
    """What a device's status says of its state and units."""

    state: "DeviceState"
    units: "DeviceUnits"


@functools.lru_cache(maxsize=4096)
def _shared(reported: Reported) -> Reported:
    """Return one object for equal reports: most devices of a pool show the same figures."""
    return reported


@final
class DeviceFeed:
    """Keeps the index's devices equal to the API server's."""

    def __init__(self, index: "DeviceIndex") -> None:
        self._index = index
        self.reported: dict[DeviceName, Reported] = {}
        """What the API server shows, or will show once the watch has caught up with our writes."""

    def replace_all(self, items: "Sequence[GPUDevice]") -> None:
        """Take over a full list: devices that are not in it are gone."""
        names = {device.name for device in items}
        for name in self.reported.keys() - names:
            del self.reported[name]
            self._index.discard_device(name)
        for device in items:
            self.upsert(device)

    def upsert(self, item: "GPUDevice") -> None:
        """Take over a device that is new or changed."""
        self.reported[item.name] = _shared(Reported(item.status.state, item.status.units))
        self._index.replace_device(device_facts(item))

    def discard(self, item: "GPUDevice") -> None:
        """Forget a device."""
        self.reported.pop(item.name, None)
        self._index.discard_device(item.name)
