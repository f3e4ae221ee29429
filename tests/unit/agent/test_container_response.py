"""The response for a container in each hand-out mode; units as healthy as the file of devices says."""

from pathlib import Path

import msgspec
import pytest

from agent.errors import BadPoolConfigError
from agent.plugin.advertised import Unit, with_health
from agent.plugin.container_response import (
    ResponseParameters,
    UnknownUnits,
    response_for,
    with_device_files,
)
from agent.plugin.devices_file import DevicesFile, DevicesOfNode
from api.kubelet.proto.deviceplugin_pb2 import (
    CDIDevice,
    ContainerAllocateResponse,
    DeviceSpec,
    Mount,
)
from api.nodefiles.node_devices_file import (
    DEVICES_FILE,
    NodeDevice,
    NodeDevices,
    NodeInstance,
    NodeMount,
    SharedParts,
)
from api.nodefiles.poolconfig import DeviceInjection

CONTENT = NodeDevices(
    version="v1",
    devices=[
        NodeDevice(uuid="GPU-1", address="a", nodes=["/dev/nvidia0"]),
        NodeDevice(
            uuid="GPU-2",
            address="b",
            nodes=["/dev/nvidia1"],
            instances=[
                NodeInstance(uuid="MIG-1", profile="1g.10gb", nodes=["/dev/nvidia-caps/cap1"]),
                NodeInstance(uuid="MIG-2", profile="1g.10gb", nodes=["/dev/nvidia-caps/cap2"]),
            ],
        ),
        NodeDevice(uuid="GPU-3", address="c", is_healthy=False, reason="Xid79"),
    ],
    shared=SharedParts(
        nodes=["/dev/nvidiactl"], mounts=[NodeMount(host_path="/lib/a", container_path="/nv/a")]
    ),
)
DEVICES = DevicesOfNode(CONTENT)
SLICED = (Unit(id="GPU-1::1", device="GPU-1"), Unit(id="GPU-1::0", device="GPU-1"))
INSTANCES = (Unit(id="MIG-2", device="GPU-2"), Unit(id="MIG-1", device="GPU-2"))


def parameters(hand_out: DeviceInjection) -> ResponseParameters:
    return ResponseParameters(pool="small", hand_out=hand_out)


def test_slices_of_a_device_are_one_cdi_device_and_the_container_sees_what_it_got():
    assert response_for(SLICED, parameters(DeviceInjection.CDI), None) == ContainerAllocateResponse(
        envs={
            "GPU_POOL": "small",
            "GPU_UNITS": "GPU-1::0,GPU-1::1",
            "NVIDIA_VISIBLE_DEVICES": "void",
        },
        cdi_devices=[CDIDevice(name="gpu.deckhouse.io/gpu=GPU-1")],
    )


def test_nvidias_runtime_is_told_by_the_environment():
    response = response_for(INSTANCES, parameters(DeviceInjection.ENVIRONMENT), None)
    assert response == ContainerAllocateResponse(
        envs={
            "GPU_POOL": "small",
            "GPU_UNITS": "MIG-1,MIG-2",
            "NVIDIA_VISIBLE_DEVICES": "MIG-1,MIG-2",
        }
    )


def test_any_runtime_is_told_by_files_each_once():
    response = response_for(INSTANCES, parameters(DeviceInjection.DEVICES), DEVICES)
    assert isinstance(response, ContainerAllocateResponse)
    assert list(response.devices) == [
        DeviceSpec(container_path=path, host_path=path, permissions="rw")
        for path in (
            "/dev/nvidia1",
            "/dev/nvidia-caps/cap1",
            "/dev/nvidia-caps/cap2",
            "/dev/nvidiactl",
        )
    ]
    assert list(response.mounts) == [
        Mount(container_path="/nv/a", host_path="/lib/a", read_only=True)
    ]
    assert not response.cdi_devices


@pytest.mark.parametrize(
    ("units", "devices", "complaint"),
    [
        pytest.param(SLICED, None, "there is no cards.json on this node", id="no file"),
        pytest.param(
            (Unit(id="GPU-9", device="GPU-9"),), DEVICES, "no device files of GPU-9", id="no GPU"
        ),
        pytest.param(
            (Unit(id="GPU-3", device="GPU-3"),), DEVICES, "no device files of GPU-3", id="no nodes"
        ),
    ],
)
def test_without_files_nothing_is_handed_out_and_nothing_offered(units, devices, complaint):
    response = response_for(units, parameters(DeviceInjection.DEVICES), devices)
    assert isinstance(response, UnknownUnits)
    assert complaint in response.text
    assert not any(
        unit.is_healthy
        for unit in with_device_files(units, parameters(DeviceInjection.DEVICES), devices)
    )
    assert with_device_files(units, parameters(DeviceInjection.CDI), devices) == units


@pytest.mark.parametrize(
    ("unit", "is_healthy"),
    [
        pytest.param(Unit(id="GPU-1", device="GPU-1"), True, id="well"),
        pytest.param(Unit(id="GPU-3", device="GPU-3"), False, id="unhealthy"),
        pytest.param(Unit(id="GPU-3::1", device="GPU-3"), False, id="a slice of an unhealthy one"),
        pytest.param(Unit(id="GPU-9", device="GPU-9"), True, id="not in the file"),
        pytest.param(Unit(id="GPU-2", device="GPU-2"), False, id="a whole one that is partitioned"),
        pytest.param(Unit(id="GPU-2::0", device="GPU-2"), False, id="a slice of a partitioned one"),
        pytest.param(Unit(id="MIG-1", device="GPU-2"), True, id="an instance"),
        pytest.param(Unit(id="MIG-9", device="GPU-2"), False, id="an instance that is gone"),
        pytest.param(
            Unit(id="MIG-9", device="GPU-1"), True, id="an instance of a GPU that lists none"
        ),
        pytest.param(Unit(id="GPU-1", device="GPU-1", is_healthy=False), False, id="withheld"),
    ],
)
def test_units_are_as_healthy_as_their_device(unit: Unit, is_healthy: bool):
    (seen,) = with_health((unit,), DEVICES.fault_of)
    assert seen.is_healthy is is_healthy


def test_the_file_is_read_when_it_is_another_and_the_last_good_one_is_kept(tmp_path: Path):
    assert not DevicesFile(tmp_path).reload()
    assert DevicesFile(tmp_path).devices is None
    file = DevicesFile(tmp_path)
    path = tmp_path / DEVICES_FILE
    path.write_bytes(msgspec.json.encode(CONTENT))
    assert file.reload()
    devices = file.devices
    assert devices is not None
    assert devices.shared == CONTENT.shared
    assert not file.reload()
    for garbage in (
        b"",
        b"[]",
        b'{"version": "v2"}',
        b'{"version": "v1", "cards": [{"uuid": ""}]}',
    ):
        fresh = tmp_path / "fresh"
        fresh.write_bytes(garbage)
        fresh.rename(path)
        with pytest.raises(
            BadPoolConfigError, match=r"cards\.json is not a list of the node's devices"
        ):
            file.reload()
        assert not file.reload()
        assert file.devices is devices
    path.unlink()
    assert not file.reload()
    assert file.devices is devices
    path.mkdir()
    with pytest.raises(BadPoolConfigError, match="cannot be read"):
        file.reload()
