"""Connections between the devices of a node, from NVML. Blocking, for the thread of a session.

PCIe topology is read once a session. NVLinks come and go with the devices' health, and are most of all queries (16
devices of 18 links: 864 of 1,200), so they are read once a minute.
"""

from typing import TYPE_CHECKING, Final, final

import pynvml

from agent.nvml.convert import address_of, links_between
from agent.nvml.errors import DeviceLostError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.driver.port import DriverLink
    from agent.nvml.errors import Handle, NvmlQueries
    from api.clock import Clock

AGAIN_S: Final = 60.0


@final
class DeviceLinks:
    """Links of one session."""

    def __init__(self, clock: "Clock") -> None:
        self._clock = clock
        self._levels: dict[tuple[str, str], int] = {}  # two addresses -> topology level
        self._links: dict[str, tuple[DriverLink, ...]] = {}  # address -> links to the others
        self._read_at = 0.0

    def between(
        self, handles: "Mapping[str, Handle]", queries: "NvmlQueries"
    ) -> "Mapping[str, tuple[DriverLink, ...]]":
        """Return each device's links to the others, by address."""
        now = self._clock.monotonic()
        if set(self._links) != set(handles) or now > self._read_at + AGAIN_S:
            self._links = self._read(handles, queries)
            self._read_at = now
        return self._links

    def _read(
        self, handles: "Mapping[str, Handle]", queries: "NvmlQueries"
    ) -> "dict[str, tuple[DriverLink, ...]]":
        to_devices: dict[str, dict[str, int]] = {}
        to_switches: dict[str, int] = {}
        for address, handle in handles.items():
            to_devices[address], to_switches[address] = _nvlinks(
                handle, devices=handles, queries=queries
            )
        found = {}
        for own in handles:
            levels = {
                peer: self._level((min(own, peer), max(own, peer)), handles, queries)
                for peer in handles
                if peer != own
            }
            found[own] = links_between(
                own, to_devices=to_devices, to_switches=to_switches, levels=levels
            )
        return found

    def _level(
        self, pair: tuple[str, str], handles: "Mapping[str, Handle]", queries: "NvmlQueries"
    ) -> int:
        if pair not in self._levels:
            first, second = pair
            try:
                self._levels[pair] = queries.ask(
                    -1, pynvml.nvmlDeviceGetTopologyCommonAncestor, handles[first], handles[second]
                )
            except DeviceLostError:
                return -1  # The snapshot of that device reports it.
        return self._levels[pair]


def _nvlinks(
    handle: "Handle", *, devices: "Mapping[str, Handle]", queries: "NvmlQueries"
) -> tuple[dict[str, int], int]:
    """Return the active links to each other device, and to NVSwitches."""
    to_devices: dict[str, int] = {}
    to_switches = 0
    try:
        for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
            is_active = queries.ask(None, pynvml.nvmlDeviceGetNvLinkState, handle, link)
            if is_active is None and link == 0:
                break  # A device without NVLink.
            if not is_active:
                continue
            pci = queries.ask(None, pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
            peer = None if pci is None else address_of(pci.busId)
            if peer is not None and peer in devices:
                to_devices[peer] = to_devices.get(peer, 0) + 1
            else:
                to_switches += _is_to_switch(handle, link, queries)
    except DeviceLostError:
        return {}, 0
    return to_devices, to_switches


def _is_to_switch(handle: "Handle", link: int, queries: "NvmlQueries") -> bool:
    remote = queries.ask(None, pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
    return bool(remote == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH)
