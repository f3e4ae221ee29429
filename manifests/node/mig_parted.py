"""MIG configurations in mig-parted's form: devices to partition, and the number of instances.

A configuration is for nodes with the same devices at the same places; a node requests one by its
label `nvidia.com/mig.config`. Its name has the pool and a digest of its content, so that a changed
one has another name, and the label shows the configuration of the node.
"""

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from api.names import NodeName

MIG_CONFIG_KEY: Final = "config.yaml"
MIG_NODES_KEY: Final = "nodes.yaml"

_PROFILE: Final = re.compile(r"(\d+)g\.(\d+)gb(\+me.*)?")
_COMPUTE_SLICES: Final = 7
_MEMORY_TOLERANCE: Final = 1.05
"""Profiles are named by rounded gigabytes: two of 3g.71gb make an H200 of 140.4 GiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartedDevice:
    """A device of the pool in mig-parted's terms."""

    index: int
    """Position among the node's GPUs by PCI address."""
    memory_mib: int


def instances_of(profile: str, memory_mib: int) -> int:
    """Return the number of instances of a profile on a device of this memory; 0 if not supported.

    The device has seven compute slices and its memory; one instance has the media engines.
    """
    found = _PROFILE.fullmatch(profile)
    if found is None:
        return 0
    compute, memory_gb, has_engines = int(found[1]), int(found[2]), bool(found[3])
    if not compute or not memory_gb:
        return 0
    by_memory = int(memory_mib / 1024 * _MEMORY_TOLERANCE / memory_gb)
    count = min(_COMPUTE_SLICES // compute, by_memory)
    return min(count, 1) if has_engines else count


def build_mig_configs(
    pool: str, profile: str, devices_by_node: "Mapping[NodeName, Sequence[PartedDevice]]"
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return mig-parted's file, and the name of the configuration for each node.

    Devices that do not support the profile are left unchanged.
    """
    configs: dict[str, list[dict[str, Any]]] = {}
    names: dict[str, str] = {}
    for node, devices in sorted(devices_by_node.items()):
        entries = _entries(profile, devices)
        if entries:
            names[node] = _name(pool, profile, entries)
            configs[names[node]] = entries
    return {"version": "v1", "mig-configs": dict(sorted(configs.items()))}, names


def _entries(profile: str, devices: "Sequence[PartedDevice]") -> list[dict[str, Any]]:
    indices_by_count: dict[int, list[int]] = {}
    for device in sorted(devices, key=lambda one: one.index):
        count = instances_of(profile, device.memory_mib)
        if count:
            indices_by_count.setdefault(count, []).append(device.index)
    return [
        {"devices": indices, "mig-enabled": True, "mig-devices": {profile: count}}
        for count, indices in sorted(indices_by_count.items())
    ]


def _name(pool: str, profile: str, entries: "Sequence[Mapping[str, Any]]") -> str:
    """Return a label value: the pool, and a digest of the configuration."""
    digest = hashlib.sha256(f"{profile} {entries!r}".encode()).hexdigest()[:8]
    return f"{pool}-{digest}"
