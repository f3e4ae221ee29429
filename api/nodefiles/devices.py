"""What a node's agent tells the device plugins of its node: the file `cards.json` in the run directory.

The agent looks at the cards, the plugins do not: a plugin needs no driver and waits for none. The file is
replaced at once (written beside its place and renamed), and only where something changed, so that an
inode and a time tell one version from the next. A plugin keeps the last version that made sense; without
the file all cards of its pool are taken to be well.

    {"version": "v1", "cards": [{"uuid": "GPU-1", "address": "0000:3b:00.0", "nodes": ["/dev/nvidia0"]},
                                {"uuid": "GPU-2", "address": "0000:86:00.0", "nodes": ["/dev/nvidia1"],
                                 "isHealthy": false, "reason": "Xid79"}],
     "shared": {"nodes": ["/dev/nvidiactl"]}}

A reader refuses a version that it does not know, and ignores fields that it does not know.
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
    """A MIG instance of a card."""

    uuid: Uuid
    profile: str
    """As NVML names it, such as `1g.10gb`."""
    nodes: list[str] = msgspec.field(default_factory=list)
    """Its capabilities' device files, besides the card's own."""


class NodeDevice(Model, frozen=True):
    """A card of the node."""

    uuid: Uuid
    address: str
    """Of the PCI function, such as `0000:3b:00.0`."""
    nodes: list[str] = msgspec.field(default_factory=list)
    """Its device files on the node, such as `/dev/nvidia0`; a container sees them under the same paths."""
    instances: list[NodeInstance] | None = None
    """None where the card is not cut; an empty list where MIG is enabled and nothing was made yet."""
    is_healthy: bool = True
    reason: str = ""
    """Why it is not, in PascalCase."""


class SharedParts(Model, frozen=True):
    """What every container with a card gets besides."""

    nodes: list[str] = msgspec.field(default_factory=list)
    mounts: list[NodeMount] = msgspec.field(default_factory=list)
    """Libraries and programs of the driver."""


class NodeDevices(Model, frozen=True):
    """The file."""

    version: Literal["v1"]
    devices: list[NodeDevice] = msgspec.field(name="cards", default_factory=list)
    shared: SharedParts = msgspec.field(default_factory=SharedParts)
