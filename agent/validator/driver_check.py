"""The step `driver`: NVML answers, and says the same twice; the devices have their files.

A device that the driver has lost, or does not show though the bus has it, does not fail the node: its health is the
control plane's to judge, and the others are usable. The kernel's modules are read to name the cause where NVML does
not answer: where it answers, its module is there.
"""

from collections import Counter
from typing import TYPE_CHECKING, Final, final

from agent.driver.device_files import find_files
from agent.errors import DriverUnavailableError
from agent.validator.checked_node import NVIDIA_MODULE
from agent.validator.steps import Failed, Outcome, Passed
from api.text import listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.driver.port import DriverDevice, DriverSnapshot
    from agent.validator.checked_node import CheckedNode
    from api.clock import Clock

_NEEDED_FILES: Final = ("nvidiactl", "nvidia-uvm")
"""Common device files without which no program of CUDA starts."""
_MAKE_FILES: Final = (
    "run nvidia-modprobe -u -c 0 on the node, or let its udev rules do so when the driver is loaded"
)
_OTHER_DRIVERS: Final = frozenset({"nouveau", "vfio-pci"})


@final
class DriverCheck:
    """The check of the node's driver."""

    def __init__(self, node: "CheckedNode", clock: "Clock") -> None:
        self._node = node
        self._clock = clock

    def signature(self) -> object:
        return self._node.driver_signature()

    async def run(self) -> Outcome:
        try:
            first, second = await self._node.read_driver(self._clock, reads=2)
        except DriverUnavailableError as error:
            return Failed(self._explain(str(error)))
        return self._check_snapshots(first, second)

    def _check_snapshots(self, first: "DriverSnapshot", second: "DriverSnapshot") -> Outcome:
        if fault := _disagreement(first.devices, second.devices):
            return Failed(fault)
        usable = [device for device in second.devices if not device.is_lost]
        if not usable:
            return Failed(self._no_device(second.devices))
        if missing := self._missing_files(usable):
            return Failed(f"device files are missing: {listed(missing)}: {_MAKE_FILES}")
        reached = {device.address for device in usable}
        absent = [item.address for item in self._node.bus() if item.address not in reached]
        beside = f"; without {listed(absent)}, which it does not reach" if absent else ""
        return Passed(
            f"driver {second.driver_version}, devices: {len(usable)}{beside}", self._node.roots()
        )

    def _missing_files(self, devices: "Sequence[DriverDevice]") -> list[str]:
        dev = self._node.dev_root
        files = find_files(devices, dev=dev, proc=self._node.procfs)
        found = {file.path.rpartition("/")[2] for file in files.shared}
        common = [str(dev / name) for name in _NEEDED_FILES if name not in found]
        return [*common, *files.missing]

    def _no_device(self, devices: "Sequence[DriverDevice]") -> str:
        lost = [device.address for device in devices if device.is_lost]
        if lost:
            return (
                f"the driver has lost every device ({listed(lost)}): reset them or restart the node"
            )
        return f"the driver shows no device{self._bus_text()}: see NVRM in the node's kernel log"

    def _explain(self, text: str) -> str:
        """Return NVML's failure with what the bus and the kernel's modules show."""
        others = [
            f"{item.address} has the driver {item.driver}"
            for item in self._node.bus()
            if item.driver in _OTHER_DRIVERS
        ]
        if others:
            return f"{text}; {listed(others)}: unbind it, and load NVIDIA's driver"
        loaded = "is" if self._node.is_loaded(NVIDIA_MODULE) else "is not"
        return f"{text}; the kernel module {NVIDIA_MODULE} {loaded} loaded{self._bus_text()}"

    def _bus_text(self) -> str:
        found = self._node.bus()
        return f" (on the bus: {listed(item.address for item in found)})" if found else ""


def _disagreement(first: "Sequence[DriverDevice]", second: "Sequence[DriverDevice]") -> str | None:
    """Return how NVML contradicts itself: another UUID of one place, or one UUID of two."""
    before = {device.address: device.uuid for device in first}
    for device in second:
        old = before.get(device.address)
        if old is not None and old != device.uuid:
            return (
                f"NVML contradicts itself: device {device.address} has UUID {old}, then {device.uuid}:"
                " reset the device or restart the node"
            )
    uuids = Counter(device.uuid for device in second)
    twice = [uuid for uuid, count in uuids.items() if count > 1]
    if twice:
        return (
            f"NVML contradicts itself: two devices have the UUID {listed(twice)}:"
            " reset the devices or restart the node"
        )
    return None
