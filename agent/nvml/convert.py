"""Conversion of NVML's values into those of `agent.driver.port`: pure."""

import math
from typing import TYPE_CHECKING, Final

from agent.driver.port import DriverLink, LinkType

if TYPE_CHECKING:
    from collections.abc import Mapping

MIB: Final = 1024 * 1024
_GIB: Final = 1024 * MIB
_MEMORY_SLICES: Final = 8

PROFILE_ATTRIBUTES: Final[dict[int, str]] = {
    0x7: "+me",
    0x8: "+me",
    0xA: "+gfx",
    0xB: "+gfx",
    0xC: "+gfx",
    0xD: "-me",
    0xE: "-me",
    0xF: "+me.all",
    0x10: "+me.all",
    0x11: "+gfx",
}
"""NVML_GPU_INSTANCE_PROFILE_* -> the suffix of its name: REV1 has the media engines, GFX graphics, NO_ME none,
ALL_ME all; 0x9 (REV2) differs in its memory. As in github.com/NVIDIA/go-nvlib, pkg/nvlib/device/mig_profile.go."""

_LEVELS: Final[dict[int, LinkType]] = {
    0: LinkType.PIX,
    10: LinkType.PIX,
    20: LinkType.PXB,
    30: LinkType.PHB,
    40: LinkType.NODE,
    50: LinkType.SYS,
}
"""nvmlGpuTopologyLevel_t, as `nvidia-smi topo --matrix` writes them; 0 is two devices of one board."""


def address_of(bus_id: str) -> str | None:
    """Return `0000:3b:00.0` for NVML's `00000000:3B:00.0`; None for any other text."""
    domain, _, remaining = bus_id.strip().lower().partition(":")
    try:
        number = int(domain, 16)
    except ValueError:
        return None
    return f"{number:04x}:{remaining}" if remaining.count(":") == 1 and "." in remaining else None


def cuda_version_of(number: int) -> str:
    """Return `12.8` for 12080."""
    return f"{number // 1000}.{number % 1000 // 10}"


def watts_of(milliwatts: int | None) -> int | None:
    return None if milliwatts is None else round(milliwatts / 1000)


def profile_name(number: int, *, slices: int, memory_mib: int, device_bytes: int) -> str:
    """Return the name of a profile without one in the driver: `1g.10gb`, `1g.10gb+me`.

    The size is the instance's part of the device's memory in eighths, of the device's size in whole GiB: as
    getMigMemorySizeInGB in go-nvlib, so that names are those of NVIDIA's own tools.
    """
    eighths = math.ceil(memory_mib * MIB / device_bytes * _MEMORY_SLICES) if device_bytes else 0
    size = math.floor(eighths / _MEMORY_SLICES * math.ceil(device_bytes / _GIB) + 0.5)
    return f"{slices}g.{size}gb{PROFILE_ATTRIBUTES.get(number, '')}"


def links_between(
    own: str,
    *,
    to_devices: "Mapping[str, Mapping[str, int]]",
    to_switches: "Mapping[str, int]",
    levels: "Mapping[str, int]",
) -> tuple[DriverLink, ...]:
    """Return a device's links to the others: NVLink where there is one, else PCIe.

    Devices with links to NVSwitches reach each other through all of them, as far as NVML reports; a fabric that is
    divided for virtual machines is not visible here.

    Args:
        own: the device's address.
        to_devices: device -> other device -> active links from one straight to the other.
        to_switches: device -> active links to NVSwitches.
        levels: other device -> nvmlGpuTopologyLevel_t, where it is known.
    """
    found = []
    peers = (set(to_devices) | set(to_switches) | set(levels)) - {own}
    for peer in sorted(peers):
        switched = min(to_switches.get(own, 0), to_switches.get(peer, 0))
        count = to_devices.get(own, {}).get(peer, 0) + switched
        level = _LEVELS.get(levels.get(peer, -1))
        if count > 0:
            is_direct = peer in to_devices.get(own, {})
            found.append(DriverLink(peer, LinkType.NVLINK, count, is_direct))
        elif level is not None:
            found.append(DriverLink(peer, level))
    return tuple(found)
