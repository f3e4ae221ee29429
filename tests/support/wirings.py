"""How the devices of real machines are wired, as the facts of their GPUDevices."""

from collections.abc import Callable, Sequence
from typing import Final

from api.names import DeviceName
from pool.model import DeviceFacts, DeviceLink
from tests.support.builders import a_device

Wire = Callable[[int, int], DeviceLink | str | None]
"""The link of a pair, its PCIe level, or None."""


def devices(numa: Sequence[int | None], wire: Wire) -> list[DeviceFacts]:
    """Devices n1-00, n1-01 … with links as both ends report them."""
    names = [DeviceName(f"n1-{index:02}") for index in range(len(numa))]
    found = []
    for own, node in enumerate(numa):
        links = []
        for peer, name in enumerate(names):
            link = wire(min(own, peer), max(own, peer)) if peer != own else None
            if isinstance(link, str):
                links.append(DeviceLink(name, link))
            elif link is not None:
                links.append(DeviceLink(name, link.type, link.count))
        found.append(a_device(index=own, name=names[own], numa_node=node, links=tuple(links)))
    return found


def nvlink(count: int) -> DeviceLink:
    return DeviceLink(DeviceName(""), "NVLink", count)


def pcie(one: int, other: int) -> str:
    """Two sockets of four devices, pairs of which share a switch."""
    if one // 2 == other // 2:
        return "PIX"
    return "NODE" if one // 4 == other // 4 else "SYS"


def h100(count: int = 8) -> list[DeviceFacts]:
    """NVSwitch connects every pair; two sockets."""
    return devices([at * 2 // count for at in range(count)], lambda _one, _other: nvlink(18))


def a100_pcie() -> list[DeviceFacts]:
    """Four NVLink bridges, two a socket."""
    return devices(
        [at // 4 for at in range(8)],
        lambda one, other: nvlink(12) if one // 2 == other // 2 else pcie(one, other),
    )


_CUBE_MESH: Final = {
    **dict.fromkeys([(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)], 2),
    **dict.fromkeys([(0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)], 1),
}
"""NVLinks of a DGX-1 with V100: two quads, and one link of each device to the other quad."""


def v100_cube_mesh() -> list[DeviceFacts]:
    return devices(
        [at // 4 for at in range(8)],
        lambda one, other: (
            nvlink(_CUBE_MESH[one, other]) if (one, other) in _CUBE_MESH else pcie(one, other)
        ),
    )


def pcie_only() -> list[DeviceFacts]:
    return devices([at // 4 for at in range(8)], pcie)


def unknown(count: int = 8) -> list[DeviceFacts]:
    """Neither a NUMA node nor a link is reported."""
    return devices([None] * count, lambda _one, _other: None)


def sixteen_bridged() -> list[DeviceFacts]:
    """Eight NVLink bridges, four a socket, two a switch."""
    return devices(
        [at // 8 for at in range(16)],
        lambda one, other: (
            nvlink(4)
            if one // 2 == other // 2
            else "PXB"
            if one // 4 == other // 4
            else "NODE"
            if one // 8 == other // 8
            else "SYS"
        ),
    )
