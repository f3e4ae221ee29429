"""The agent's file of the node's devices: read whole, and read again when it changed.

The plugin needs no driver: all that it knows of a device is in this file.
"""

from typing import TYPE_CHECKING, final

import msgspec

from agent.errors import BadPoolConfigError
from agent.files import file_identity
from api.field_errors import UNDECODABLE
from api.nodefiles.node_devices_file import DEVICES_FILE, NodeDevices

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from agent.plugin.advertised import Unit
    from api.nodefiles.node_devices_file import NodeDevice, NodeInstance, SharedParts

MAX_BYTES = 16 * 1024 * 1024
"""16 devices with 7 instances each take 20 KiB."""


@final
class DevicesOfNode:
    """One version of the file, by the UUIDs of devices and instances."""

    def __init__(self, content: NodeDevices) -> None:
        self.shared: SharedParts = content.shared
        self._devices: dict[str, NodeDevice] = {device.uuid: device for device in content.devices}
        self._instances: dict[str, tuple[NodeDevice, NodeInstance]] = {
            instance.uuid: (device, instance)
            for device in content.devices
            for instance in device.instances or ()
        }

    def fault_of(self, unit: "Unit") -> str:
        """Return why the unit must not be allocated; empty for a healthy or unlisted device."""
        device = self._devices.get(unit.device)
        if device is None:
            found = self._instances.get(unit.part)
            device = None if found is None else found[0]
        if device is None:
            return ""
        if not device.is_healthy:
            return device.reason or "Unhealthy"
        if device.instances is None:
            return ""
        if unit.part == device.uuid:
            return "Partitioned"
        return "" if unit.part in self._instances else "InstanceGone"

    def nodes_of(self, part: str) -> "Sequence[str] | None":
        """Return the device files of a device or instance, without the shared ones; None if not known."""
        device = self._devices.get(part)
        if device is not None:
            return device.nodes or None
        found = self._instances.get(part)
        if found is None:
            return None
        of_device, instance = found
        return [*of_device.nodes, *instance.nodes] if of_device.nodes and instance.nodes else None


@final
class DevicesFile:
    """The last valid version of the file."""

    def __init__(self, directory: "Path") -> None:
        """Take the run directory; the file may be written later."""
        self.path = directory / DEVICES_FILE
        self.devices: DevicesOfNode | None = None
        """None before the first one: then all devices count as healthy."""
        self._seen: object = None

    def reload(self) -> bool:
        """Read the file if it changed; return whether it did.

        A deleted file changes nothing.

        Raises:
            BadPoolConfigError: the file is invalid; the same version is not read again.
        """
        identity = file_identity(self.path)
        if identity is None or identity == self._seen:
            return False
        self._seen = identity
        try:
            content = self.path.read_bytes()
        except OSError as error:
            raise BadPoolConfigError(f"{self.path} cannot be read: {error}") from error
        if len(content) > MAX_BYTES:
            raise BadPoolConfigError(f"{self.path} is larger than {MAX_BYTES // 2**20} MiB")
        try:
            self.devices = DevicesOfNode(msgspec.json.decode(content, type=NodeDevices))
        except UNDECODABLE as error:
            raise BadPoolConfigError(
                f"{self.path} is not a list of the node's devices: {error}"
            ) from error
        return True
