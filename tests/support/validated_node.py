"""A node for the validator: a driver that speaks NVML's and CUDA's ABI, device files, CDI specifications."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from agent.validator.checked_node import CheckedNode
from agent.validator.ready_files import ReadyFiles
from agent.validator.steps import Failed, Outcome, Passed, ValidationStep
from api.nodefiles.poolconfig import DeviceInjection
from tests.support.nvml.library import FakeNvml, NoCompilerError, NvmlDevice

CDI_KIND = "gpu.deckhouse.io/gpu"
_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_SHARED = ("nvidiactl", "nvidia-uvm")


class ValidatedNode:
    """A root directory with all that the checks read."""

    def __init__(
        self, folder: Path, *devices: NvmlDevice, hand_out: DeviceInjection = DeviceInjection.CDI
    ) -> None:
        self.root = folder / "host"
        self.devices = devices
        try:
            self.nvml = FakeNvml(self.root / _LIBRARIES, *devices)
        except NoCompilerError as missing:
            pytest.skip(f"the double of the driver's libraries cannot be made: {missing}")
        self.dev = self.root / "dev"
        self.sysfs = folder / "sys"
        self.procfs = folder / "proc"
        self.procfs.mkdir(parents=True)
        self.dev.mkdir(parents=True)
        for name in (*_SHARED, *(f"nvidia{device.minor}" for device in devices)):
            self.make_device(name)
        for device in devices:
            self.plug(device)
        self.files = ReadyFiles(folder / "validations")
        self.checked = CheckedNode(
            driver_root=self.root,
            dev_root=self.dev,
            sysfs=self.sysfs,
            procfs=self.procfs,
            hand_out=hand_out,
        )

    def make_device(self, name: str) -> None:
        """Make a file that leads to a character device, the machine's /dev/null."""
        (self.dev / name).symlink_to("/dev/null")

    def plug(self, device: NvmlDevice, driver: str = "nvidia") -> None:
        function = self.sysfs / "bus" / "pci" / "devices" / device.address.lower()[4:]
        function.mkdir(parents=True, exist_ok=True)
        for name, text in {"vendor": "0x10de", "device": "0x2330", "class": "0x030200"}.items():
            (function / name).write_text(f"{text}\n", "ascii")
        (function / "driver").unlink(missing_ok=True)
        (function / "driver").symlink_to(f"/sys/bus/pci/drivers/{driver}")

    def load_module(self, name: str) -> None:
        with (self.procfs / "modules").open("a", encoding="ascii") as file:
            file.write(f"{name} 57344 0 - Live 0x0000000000000000 (OE)\n")

    def specify(self, *uuids: str, directory: str = "var/run/cdi", **changes: Any) -> Path:
        """Write a CDI specification with these devices, by default all.

        Links are followed within the node's root: /dev/null has to be there.
        """
        if not (self.dev / "null").exists():
            _make_null(self.dev / "null")
        names = uuids or tuple(device.uuid for device in self.devices)
        body: dict[str, Any] = {
            "cdiVersion": "0.6.0",
            "kind": CDI_KIND,
            "devices": [
                {"name": uuid, "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}
                for uuid in names
            ],
            "containerEdits": {"deviceNodes": [{"path": "/dev/nvidiactl"}]},
        }
        path = self.root / directory / "gpu.deckhouse.io-gpu.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(body | changes), encoding="utf-8")
        return path

    def ready(self) -> list[str]:
        """Return the steps whose files are there."""
        return [step.value for step in ValidationStep if self.files.has(step)]


def _make_null(path: Path) -> None:
    try:
        os.mknod(path, 0o666 | 0o020000, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("device files are made by root only")


def cause_of(outcome: Outcome) -> str:
    assert isinstance(outcome, Failed), outcome
    return outcome.cause


def text_of(outcome: Outcome) -> str:
    assert isinstance(outcome, Passed), outcome
    return outcome.text
