"""The devices of a pool by node, for its device plugins: the file `config.json`.

The control plane writes it into the pool's ConfigMap; the device plugin on each node reads it and follows
its changes. One line of JSON; devices by name within a node, nodes by name:

    {"version": "v1", "pool": "small", "resource": "gpu.deckhouse.io/small", "slices": 4,
     "nodes": {"n1": [{"uuid": "GPU-1"}, {"uuid": "GPU-2", "isWithheld": true}]}}

A reader refuses an unknown version and ignores unknown fields. Within a version a later writer may raise bounds and add
values.
"""

from enum import Enum
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from api.meta import Model
from api.names import MAX_UUID_LENGTH, MOST_SLICES_READ, UnitId
from api.units import slices_of

CONFIG_KEY: Final = "config.json"
"""The key of the ConfigMap, and the name of the file."""
PACKED_CONFIG_KEY: Final = "config.json.gz"
"""The same, gzipped, where the text is too large for a ConfigMap."""

PLUGINS_DIRECTORY: Final = "/var/lib/kubelet/device-plugins"
"""The directory of kubelet's and the plugins' sockets."""


class DeviceInjection(Enum):
    """How a container gets its devices."""

    CDI = "CDI"
    """Devices by names of the Container Device Interface, which the runtime resolves."""
    ENVIRONMENT = "Environment"
    """Devices by NVIDIA_VISIBLE_DEVICES, for NVIDIA's container runtime."""
    DEVICES = "Devices"
    """Devices by device files and mounts in kubelet's response, for any runtime."""


class ConfiguredDevice(Model, frozen=True):
    """A device of the pool."""

    uuid: Annotated[str, Meta(min_length=1, max_length=MAX_UUID_LENGTH)]
    instances: list[str] | None = None
    """UUIDs of the MIG instances that are the device's units; None where the device is not partitioned."""
    parts: dict[str, list[str]] | None = None
    """The same by resource, of a pool with several MIG profiles; `instances` is empty then."""
    numa_node: int | None = None
    is_withheld: bool = False
    """It is faulted or leaves the pool: its units are advertised as unhealthy, so that kubelet allocates
    none, and running pods keep theirs."""


class PoolConfig(Model, frozen=True):
    """The file."""

    version: Literal["v1"]
    pool: Annotated[str, Meta(min_length=1)]
    resource: Annotated[str, Meta(min_length=1, max_length=63)]
    """The extended resource of the units; those of several MIG profiles begin with it."""
    slices: Annotated[int, Meta(ge=1, le=MOST_SLICES_READ)] = 1
    """Units of a device that has no list of instances."""
    slice_placement: str = "DistinctDevices"
    """Placement as in the pool's spec: where the slices of one container lie, unless its pod was bound
    with other units. A reader takes a value that it does not know for the default."""
    nodes: dict[str, list[ConfiguredDevice]] = msgspec.field(default_factory=dict)

    def units_of(self, device: ConfiguredDevice) -> tuple[UnitId, ...]:
        """Return the ids of the device's units, equal to those of `pool.layout`."""
        if device.instances is not None:
            return tuple(UnitId(instance) for instance in device.instances)
        if self.slices == 1:
            return (UnitId(device.uuid),)
        return slices_of(device.uuid, self.slices)

    def units_by_resource(self, device: ConfiguredDevice) -> dict[str, tuple[UnitId, ...]]:
        """Return the ids of the device's units by the resource that pods request."""
        if device.parts is None:
            return {self.resource: self.units_of(device)}
        return {
            resource: tuple(UnitId(instance) for instance in instances)
            for resource, instances in device.parts.items()
        }
