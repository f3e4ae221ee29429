"""`gpu_device_info`: which pool and node a UUID belongs to, for joins with the series of DCGM.

A series follows its device within a look at the changes of the index; the leader has them.
"""

from typing import TYPE_CHECKING, final

from telemetry.metrics import DEVICE_INFO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from api.kinds.gpudevice import GPUDevice
    from api.names import DeviceName
    from pool.index.figures import IndexFigures


@final
class DeviceInfo:
    """Sets the series of one device at a time."""

    def __init__(
        self, index: "IndexFigures", device_of: "Callable[[DeviceName], GPUDevice | None]"
    ) -> None:
        self._index = index
        self._device_of = device_of

    def update(self, devices: "Iterable[DeviceName]") -> None:
        """Show these devices as they are now; those that are gone have no series."""
        for name in devices:
            values = self._values(name)
            if values is None:
                DEVICE_INFO.discard(name)
            else:
                DEVICE_INFO.put(name, values)

    def _values(self, name: "DeviceName") -> tuple[str, ...] | None:
        entry = self._index.devices.get(name)
        if entry is None or not entry.facts.uuid:
            return None
        facts, device = entry.facts, self._device_of(name)
        product = "" if device is None else device.status.product
        return facts.uuid, name, facts.node, facts.pool or "", product
