"""The agent's file of the node's devices, for the device plugins: `cards.json` in the run directory.

The agent inspects the devices, so that a plugin needs no driver and waits for none. The file is replaced
atomically (written beside its place and renamed), and only on a change, so that inode and time identify a
version. A plugin keeps the last valid version; without the file all devices of its pool count as healthy.

    {"version": "v1", "cards": [{"uuid": "GPU-1", "address": "0000:3b:00.0", "nodes": ["/dev/nvidia0"]},
                                {"uuid": "GPU-2", "address": "0000:86:00.0", "nodes": ["/dev/nvidia1"],
                                 "isHealthy": false, "reason": "Xid79"}],
     "shared": {"nodes": ["/dev/nvidiactl"]}}

A reader refuses an unknown version and ignores unknown fields.
"""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from api.meta import Model

RUN_DIRECTORY: Final = "/run/gpu-control-plane"
DEVICES_FILE: Final = "cards.json"

Uuid = Annotated[str, Meta(min_length=1, max_length=63)]


class NodeMount(Model, frozen=True):
    """A file or directory of the node that a container sees, read-only."""

    host_path: str
    container_path: str


class NodeInstance(Model, frozen=True):
    """A MIG instance of a device."""

    uuid: Uuid
    profile: str
    """Profile as NVML names it, such as `1g.10gb`."""
    nodes: list[str] = msgspec.field(default_factory=list)
    """Device files of its capabilities, besides the device's own."""


class NodeDevice(Model, frozen=True):
    """A device of the node."""

    uuid: Uuid
    address: str
    """Address of the PCI function, such as `0000:3b:00.0`."""
    nodes: list[str] = msgspec.field(default_factory=list)
    """Its device files on the node, such as `/dev/nvidia0`; a container sees them under the same paths."""
    instances: list[NodeInstance] | None = None
    """None where the device is not partitioned; empty where MIG is enabled without instances."""
    is_healthy: bool = True
    reason: str = ""
    """Why it is not, in PascalCase."""
    action: str = ""
    """The recovery action that its driver last had for it; empty where the driver does not have the field."""


class SharedParts(Model, frozen=True):
    """Files that every container with a device gets."""

    nodes: list[str] = msgspec.field(default_factory=list)
    mounts: list[NodeMount] = msgspec.field(default_factory=list)
    """Libraries and programs of the driver."""


class NodeDevices(Model, frozen=True):
    """The file."""

    version: Literal["v1"]
    devices: list[NodeDevice] = msgspec.field(name="cards", default_factory=list)
    shared: SharedParts = msgspec.field(default_factory=SharedParts)
    driver_version: str = ""
