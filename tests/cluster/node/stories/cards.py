"""The cards of the node under test: a driver that speaks NVML's ABI, a PCI bus, device files."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, final

from tests.cluster.node.environment import numa
from tests.support.nvml.library import FakeNvml, NvmlCard
from tests.support.nvml.library import a_card as nvml_card

if TYPE_CHECKING:
    from tests.cluster.node.environment.real_node import RealNode

COUNT = 12
DRIVER_ROOT = Path("/run/nvidia/driver")
"""Where NVIDIA's driver container mounts its root; containers get the libraries from there."""
_OURS = ".of-gpu-node-tests"
SHARED = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
_INSTANCES = 8
"""GPU instances of a card whose capabilities are there from the start."""


@final
class NodeCards:
    """Cards: a sysfs and a procfs in `directory`, the driver where a driver container has it."""

    def __init__(self, directory: Path, count: int = COUNT) -> None:
        self.cards = [nvml_card(number) for number in range(count)]
        self.sysfs = directory / "sys"
        self.procfs = directory / "proc"
        self._files: list[Path] = []
        for card in self.cards:
            self._plug(card)
        if DRIVER_ROOT.exists() and not (DRIVER_ROOT / _OURS).exists():
            raise AssertionError(f"this machine has a driver container: {DRIVER_ROOT} is not ours")
        shutil.rmtree(DRIVER_ROOT, ignore_errors=True)
        libraries = DRIVER_ROOT / "usr" / "lib" / "x86_64-linux-gnu"
        libraries.mkdir(parents=True)
        (DRIVER_ROOT / _OURS).touch()
        self.driver = FakeNvml(libraries, *self.cards)
        (libraries / "libcuda.so.570.86.15").write_bytes(b"a library of the driver")
        (libraries / "libcuda.so.1").symlink_to("libcuda.so.570.86.15")

    @property
    def uuids(self) -> list[str]:
        return [card.uuid for card in self.cards]

    def remove(self) -> None:
        """Take the driver off the machine, and the device files that it made."""
        shutil.rmtree(DRIVER_ROOT)
        for file in self._files:
            file.unlink()

    async def make_devices(self, node: "RealNode") -> None:
        """Make the device files that a driver makes, with the capabilities of MIG."""
        for name in (*(f"nvidia{card.minor}" for card in self.cards), *SHARED):
            self._files.append(await node.make_device(name))
        for card in self.cards:
            for instance in range(_INSTANCES):
                for part, path in enumerate((f"gi{instance}", f"gi{instance}/ci0")):
                    number = 1 + part + 2 * (instance + _INSTANCES * card.minor)
                    self._files.append(await node.make_device(f"nvidia-caps/nvidia-cap{number}"))
                    directory = self._capabilities(card) / path
                    directory.mkdir(parents=True)
                    (directory / "access").write_text(f"DeviceFileMinor: {number}\n", "ascii")

    def capabilities(self, card: NvmlCard, instance: int) -> list[str]:
        """Return the capability files of a GPU instance, by name."""
        directory = self._capabilities(card) / f"gi{instance}"
        told = (directory / "access", directory / "ci0" / "access")
        return [f"nvidia-cap{path.read_text('ascii').split()[1]}" for path in told]

    def _capabilities(self, card: NvmlCard) -> Path:
        return self.procfs / "driver/nvidia/capabilities" / f"gpu{card.minor}" / "mig"

    def _plug(self, card: NvmlCard) -> None:
        function = self.sysfs / "bus" / "pci" / "devices" / _address(card)
        function.mkdir(parents=True)
        facts = {
            "vendor": "0x10de",
            "device": "0x2330",
            "class": "0x030200",
            "numa_node": str(card.minor // 4 % numa.NODES),
        }
        for name, text in facts.items():
            (function / name).write_text(text + "\n", encoding="ascii")


def _address(card: NvmlCard) -> str:
    return card.address.lower()[4:]
