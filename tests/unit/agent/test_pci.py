"""Devices on the bus: a sysfs of files in a directory."""

import os
from pathlib import Path

import pytest

from agent.driver.pci import PciDevice, read_devices

H100 = {"vendor": "0x10de", "class": "0x030200", "device": "0x2330", "numa_node": "1"}


def put_function(
    sysfs: Path, address: str, *, driver: str | None = "nvidia", **values: str
) -> Path:
    function = sysfs / "bus" / "pci" / "devices" / address
    function.mkdir(parents=True)
    for name, value in (H100 | {key.rstrip("_"): value for key, value in values.items()}).items():
        (function / name).write_text(f"{value}\n", encoding="ascii")
    if driver is not None:
        (function / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
    return function


def addresses(sysfs: Path) -> list[str]:
    return [device.address for device in read_devices(sysfs)]


def test_device_is_read_in_full(tmp_path: Path) -> None:
    put_function(tmp_path, "0000:3b:00.0")
    assert read_devices(tmp_path) == (
        PciDevice(
            address="0000:3b:00.0",
            vendor="10de",
            device="2330",
            class_="0302",
            numa_node=1,
            driver="nvidia",
        ),
    )


def test_devices_come_by_address(tmp_path: Path) -> None:
    for address in ("0000:86:00.0", "0001:01:00.0", "0000:3b:00.0"):
        put_function(tmp_path, address)
    assert addresses(tmp_path) == ["0000:3b:00.0", "0000:86:00.0", "0001:01:00.0"]


def test_device_without_a_driver_or_a_numa_node_is_there(tmp_path: Path) -> None:
    put_function(tmp_path, "0000:3b:00.0", driver=None, numa_node="-1")
    function = put_function(tmp_path, "0000:86:00.0", driver="vfio-pci")
    (function / "numa_node").unlink()
    assert [(device.numa_node, device.driver) for device in read_devices(tmp_path)] == [
        (-1, None),
        (-1, "vfio-pci"),
    ]


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({"vendor": "0x8086"}, id="another vendor"),
        pytest.param({"class_": "0x040300"}, id="the device's audio function"),
        pytest.param({"class_": "0x068000"}, id="an NVSwitch"),
        pytest.param({"device": "nonsense"}, id="no number"),
        pytest.param({"class_": ""}, id="an empty file"),
    ],
)
def test_other_functions_are_left_out(tmp_path: Path, values: dict[str, str]) -> None:
    put_function(tmp_path, "0000:3b:00.0")
    put_function(tmp_path, "0000:3b:00.1", **values)
    assert addresses(tmp_path) == ["0000:3b:00.0"]


def test_display_controller_is_a_device(tmp_path: Path) -> None:
    put_function(tmp_path, "0000:3b:00.0", class_="0x030000")
    assert [device.class_ for device in read_devices(tmp_path)] == ["0300"]


def test_virtual_function_is_left_out(tmp_path: Path) -> None:
    put_function(tmp_path, "0000:3b:00.0")
    virtual = put_function(tmp_path, "0000:3b:00.4")
    (virtual / "physfn").symlink_to("../0000:3b:00.0")
    assert addresses(tmp_path) == ["0000:3b:00.0"]


@pytest.mark.parametrize("vanished", ["vendor", "class", "device"])
def test_function_that_vanishes_meanwhile_is_skipped(tmp_path: Path, vanished: str) -> None:
    put_function(tmp_path, "0000:3b:00.0")
    (put_function(tmp_path, "0000:86:00.0") / vanished).unlink()
    (tmp_path / "bus" / "pci" / "devices" / "0000:87:00.0").symlink_to("nowhere")
    assert addresses(tmp_path) == ["0000:3b:00.0"]


def test_machine_without_a_bus_has_no_devices(tmp_path: Path) -> None:
    assert read_devices(tmp_path) == ()


def test_descriptors_are_closed(tmp_path: Path) -> None:
    put_function(tmp_path, "0000:3b:00.0", numa_node="nonsense")
    lowest = os.dup(0)
    os.close(lowest)
    read_devices(tmp_path)
    again = os.dup(0)
    os.close(again)
    assert again == lowest
