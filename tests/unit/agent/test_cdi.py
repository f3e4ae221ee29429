"""The CDI specification, against a golden file and the rules whose breach makes a runtime drop all of it."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent.driver.device_files import DeviceFile, DeviceFiles, find_files
from agent.driver.libraries import DriverFiles
from agent.driver.port import DriverDevice, DriverInstance
from agent.inventory.cdi import build_specification, file_name
from api.nodefiles.node_devices_file import NodeDevice, NodeDevices, NodeInstance, NodeMount

KIND = "gpu.deckhouse.io/gpu"
GOLDEN = Path(__file__).parent / "golden" / "gpu.deckhouse.io-gpu.json"
CAPABILITIES = "driver/nvidia/capabilities"


def device(name: str, minor: int, host: str = "/dev") -> DeviceFile:
    return DeviceFile(
        path=f"/dev/{name}", host_path=f"{host}/{name}", type="c", major=195, minor=minor
    )


def devices(*uuids: str) -> NodeDevices:
    return NodeDevices(version="v1", devices=[NodeDevice(uuid=item, address="") for item in uuids])


def specification(kind: str, reported: NodeDevices, **files) -> dict[str, Any] | None:
    found = DeviceFiles(**{"by_uuid": {}, "shared": (), "missing": (), **files})
    made = build_specification(kind, reported, files=found, driver=DriverFiles())
    return None if made is None else msgspec.json.decode(made)


def test_the_specification_of_a_node_is_the_golden_file():
    first, cut = device("nvidia0", 0), device("nvidia1", 1, "/run/test/dev")
    capabilities = (device("nvidia-caps/nvidia-cap21", 21), device("nvidia-caps/nvidia-cap22", 22))
    reported = NodeDevices(
        version="v1",
        devices=[
            NodeDevice(uuid="GPU-6f1c", address="0000:17:00.0", is_healthy=False, reason="Xid79"),
            NodeDevice(
                uuid="GPU-a0b1",
                address="0000:18:00.0",
                instances=[NodeInstance(uuid="MIG-9d2e", profile="1g.18gb")],
            ),
        ],
    )
    files = DeviceFiles(
        by_uuid={"GPU-6f1c": (first,), "GPU-a0b1": (cut,), "MIG-9d2e": (cut, *capabilities)},
        shared=(device("nvidiactl", 255), device("nvidia-uvm", 0)),
        missing=(),
    )
    driver = DriverFiles(
        mounts=(
            NodeMount(
                host_path="/usr/lib64/libcuda.so.570.86.15",
                container_path="/usr/local/nvidia/lib64/libcuda.so.1",
            ),
        ),
        hook="/usr/bin/nvidia-cdi-hook",
    )
    made = build_specification(KIND, reported, files=files, driver=driver)
    assert made is not None
    assert made.decode() == GOLDEN.read_text()


@pytest.mark.parametrize("uuid", ["GPU-a/b", "-GPU", "GPU-", "GPU 1", "GPU-é"])
def test_a_name_that_cdi_refuses_is_left_out(uuid):
    nodes = (device("nvidia0", 0),)
    made = specification(KIND, devices(uuid, "GPU-1"), by_uuid={uuid: nodes, "GPU-1": nodes})
    assert made is not None
    assert [item["name"] for item in made["devices"]] == ["GPU-1"]


def test_a_device_without_its_files_is_left_out_and_none_is_written_twice():
    nodes = (device("nvidia0", 0),)
    made = specification(KIND, devices("GPU-1", "GPU-2", "GPU-1"), by_uuid={"GPU-1": nodes})
    assert made is not None
    assert [item["name"] for item in made["devices"]] == ["GPU-1"]


def test_without_any_device_there_is_no_specification():
    assert specification(KIND, devices("GPU-1"), shared=(device("nvidiactl", 255),)) is None


@pytest.mark.parametrize("kind", ["gpu", "a/b/c", "/gpu", "gpu/", "../gpu", "9.io/gpu", "a b/c"])
def test_an_invalid_kind_is_refused_with_a_text(kind):
    with pytest.raises(ValueError, match="is not a CDI kind"):
        file_name(kind)


def test_the_file_is_named_for_its_kind():
    assert file_name(KIND) == "gpu.deckhouse.io-gpu.json"


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """`dev` and `proc` of a node; every device is the null device, by a link."""
    for name in ("nvidia0", "nvidiactl", "nvidia-caps/nvidia-cap3", "nvidia-caps/nvidia-cap4"):
        path = tmp_path / "dev" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to("/dev/null")
    (tmp_path / "proc").mkdir()
    return tmp_path


def write_capability(node: Path, where: str, minor: int) -> None:
    path = node / "proc" / CAPABILITIES / where / "access"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n")


def partitioned_device(**changes) -> DriverDevice:
    instance = DriverInstance(gpu_instance=5, profile="1g.10gb", uuid="MIG-1", compute_instance=0)
    fields = {"address": "0000:17:00.0", "uuid": "GPU-1", "minor": 0, "product": "NVIDIA H100"}
    return DriverDevice(**{**fields, "instances": (instance,), **changes})


def test_an_instance_has_its_devices_file_and_its_capabilities(node: Path):
    write_capability(node, "gpu0/mig/gi5", 3)
    write_capability(node, "gpu0/mig/gi5/ci0", 4)
    found = find_files([partitioned_device()], dev=node / "dev", proc=node / "proc")
    assert [file.path for file in found.by_uuid["MIG-1"]] == [
        "/dev/nvidia0",
        "/dev/nvidia-caps/nvidia-cap3",
        "/dev/nvidia-caps/nvidia-cap4",
    ]
    own = found.by_uuid["GPU-1"][0]
    assert (own.type, own.major, own.minor) == ("c", 1, 3)
    assert own.host_path == str(node / "dev" / "nvidia0")
    assert [file.path for file in found.shared] == ["/dev/nvidiactl"]
    assert found.missing == ()


@pytest.mark.parametrize("minor", [None, 9], ids=["not reported", "no such file"])
def test_an_instance_that_lacks_a_capability_is_missing(node: Path, minor):
    write_capability(node, "gpu0/mig/gi5", 3)
    if minor is not None:
        write_capability(node, "gpu0/mig/gi5/ci0", minor)
    found = find_files([partitioned_device()], dev=node / "dev", proc=node / "proc")
    assert set(found.by_uuid) == {"GPU-1"}
    assert found.missing == (f"capabilities of MIG instance MIG-1 under {node / 'dev'}",)


def test_without_capabilities_in_the_kernel_the_devices_file_is_enough(node: Path):
    found = find_files([partitioned_device()], dev=node / "dev", proc=node / "proc")
    assert [file.path for file in found.by_uuid["MIG-1"]] == ["/dev/nvidia0"]


def test_a_device_without_a_device_file_is_missing(node: Path):
    (node / "dev" / "nvidia7").write_text("no device")
    found = find_files([partitioned_device(minor=7)], dev=node / "dev", proc=node / "proc")
    assert found.by_uuid == {}
    assert found.missing == (f"{node / 'dev'}/nvidia7 of device GPU-1",)
