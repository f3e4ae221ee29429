"""The bytes that kubelet and the agent exchange, written down by hand from upstream's field numbers."""

import pytest
from google.protobuf.message import DecodeError, Message

from api.kubelet import deviceplugin, podresources
from api.kubelet.podresources import ContainerUnits, PodUnits, pod_units
from api.kubelet.proto.deviceplugin_pb2 import DESCRIPTOR as DEVICE_PLUGIN
from api.kubelet.proto.deviceplugin_pb2 import (
    AllocateRequest,
    AllocateResponse,
    CDIDevice,
    ContainerAllocateRequest,
    ContainerAllocateResponse,
    ContainerPreferredAllocationRequest,
    ContainerPreferredAllocationResponse,
    Device,
    DevicePluginOptions,
    DeviceSpec,
    Empty,
    ListAndWatchResponse,
    Mount,
    NUMANode,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    PreStartContainerRequest,
    RegisterRequest,
    TopologyInfo,
)
from api.kubelet.proto.podresources_pb2 import DESCRIPTOR as POD_RESOURCES
from api.kubelet.proto.podresources_pb2 import (
    AllocatableResourcesResponse,
    ContainerDevices,
    GetPodResourcesRequest,
    GetPodResourcesResponse,
    ListPodResourcesResponse,
)
from tests.support.kubelet.pod_resources import pod_message


def field(number: int, content: bytes | str) -> bytes:
    """A length-delimited field."""
    data = content.encode() if isinstance(content, str) else content
    assert len(data) < 128
    return bytes([number << 3 | 2, len(data)]) + data


def number(of: int, value: int) -> bytes:
    assert value < 128
    return bytes([of << 3, value])


POD = (
    field(1, "p")
    + field(2, "ns")
    + field(
        3,
        field(1, "main")
        + field(2, field(1, "r/x") + field(2, "u1"))
        + field(2, field(1, "r/x") + field(2, "u2")),
    )
)
UNITS = PodUnits("ns", "p", (ContainerUnits("main", {"r/x": ("u1", "u2")}),))

MESSAGES = [
    pytest.param(
        RegisterRequest(
            version="v1beta1",
            endpoint="gpu.sock",
            resource_name="gpu.deckhouse.io/a",
            options=DevicePluginOptions(
                pre_start_required=True, get_preferred_allocation_available=True
            ),
        ),
        field(1, "v1beta1")
        + field(2, "gpu.sock")
        + field(3, "gpu.deckhouse.io/a")
        + field(4, number(1, 1) + number(2, 1)),
        id="registration",
    ),
    pytest.param(Empty(), b"", id="empty"),
    pytest.param(DevicePluginOptions(), b"", id="no options"),
    pytest.param(
        DevicePluginOptions(get_preferred_allocation_available=True), number(2, 1), id="options"
    ),
    pytest.param(
        ListAndWatchResponse(
            devices=[
                Device(ID="GPU-1", health="Healthy", topology=TopologyInfo(nodes=[NUMANode(ID=1)])),
                Device(ID="GPU-2", health="Unhealthy"),
            ]
        ),
        field(1, field(1, "GPU-1") + field(2, "Healthy") + field(3, field(1, number(1, 1))))
        + field(1, field(1, "GPU-2") + field(2, "Unhealthy")),
        id="devices",
    ),
    pytest.param(
        PreferredAllocationRequest(
            container_requests=[
                ContainerPreferredAllocationRequest(
                    available_deviceIDs=["a", "b"], must_include_deviceIDs=["a"], allocation_size=2
                )
            ]
        ),
        field(1, field(1, "a") + field(1, "b") + field(2, "a") + number(3, 2)),
        id="preference",
    ),
    pytest.param(
        PreferredAllocationResponse(
            container_responses=[ContainerPreferredAllocationResponse(deviceIDs=["b", "a"])]
        ),
        field(1, field(1, "b") + field(1, "a")),
        id="preferred",
    ),
    pytest.param(PreStartContainerRequest(devices_ids=["a"]), field(1, "a"), id="pre-start"),
    pytest.param(
        AllocateRequest(
            container_requests=[
                ContainerAllocateRequest(devices_ids=["GPU-1", "GPU-2"]),
                ContainerAllocateRequest(devices_ids=["GPU-3"]),
            ]
        ),
        field(1, field(1, "GPU-1") + field(1, "GPU-2")) + field(1, field(1, "GPU-3")),
        id="allocation",
    ),
    pytest.param(
        AllocateResponse(
            container_responses=[
                ContainerAllocateResponse(
                    envs={"K": "v"},
                    mounts=[Mount(container_path="/in", host_path="/out", read_only=True)],
                    devices=[
                        DeviceSpec(container_path="/dev/in", host_path="/dev/out", permissions="rw")
                    ],
                    cdi_devices=[CDIDevice(name="k/c=d")],
                ),
                ContainerAllocateResponse(cdi_devices=[CDIDevice(name="nvidia.com/gpu=GPU-1")]),
            ]
        ),
        field(
            1,
            field(1, field(1, "K") + field(2, "v"))
            + field(2, field(1, "/in") + field(2, "/out") + number(3, 1))
            + field(3, field(1, "/dev/in") + field(2, "/dev/out") + field(3, "rw"))
            + field(5, field(1, "k/c=d")),
        )
        + field(1, field(5, field(1, "nvidia.com/gpu=GPU-1"))),
        id="allocated",
    ),
    pytest.param(
        ListPodResourcesResponse(pod_resources=[pod_message(UNITS)]), field(1, POD), id="pods"
    ),
    pytest.param(
        GetPodResourcesResponse(pod_resources=pod_message(UNITS)), field(1, POD), id="pod"
    ),
    pytest.param(
        GetPodResourcesRequest(pod_name="p", pod_namespace="ns"),
        field(1, "p") + field(2, "ns"),
        id="name of a pod",
    ),
    pytest.param(
        AllocatableResourcesResponse(
            devices=[ContainerDevices(resource_name="r/x", device_ids=["u"])]
        ),
        field(1, field(1, "r/x") + field(2, "u")),
        id="allocatable",
    ),
]


@pytest.mark.parametrize(("message", "content"), MESSAGES)
def test_a_message_has_upstreams_numbers_and_comes_back_as_it_was(message: Message, content: bytes):
    assert message.SerializeToString() == content
    assert type(message).FromString(content) == message


def test_units_of_a_pod_are_grouped_by_resource_and_sorted():
    assert pod_units(GetPodResourcesResponse.FromString(field(1, POD)).pod_resources) == UNITS
    several = (
        field(1, "p")
        + field(2, "ns")
        + field(3, field(1, "main") + field(2, field(1, "r/x") + field(2, "u2") + field(2, "u1")))
    )
    assert pod_units(GetPodResourcesResponse.FromString(field(1, several)).pod_resources) == UNITS


def test_fields_of_a_newer_kubelet_are_skipped():
    newer = POD + field(9, "new") + number(10, 1)
    assert pod_units(GetPodResourcesResponse.FromString(field(1, newer)).pod_resources) == UNITS
    content = field(1, field(1, "GPU-1") + field(9, "news")) + field(12, "news")
    (container,) = AllocateRequest.FromString(content).container_requests
    assert list(container.devices_ids) == ["GPU-1"]


@pytest.mark.parametrize("content", [b"\xff", b"\x0a\x05ab"])
@pytest.mark.parametrize("kind", [ListPodResourcesResponse, AllocateRequest])
def test_malformed_bytes_are_an_error(kind: type[Message], content: bytes):
    with pytest.raises(DecodeError):
        kind.FromString(content)


def test_services_and_methods_are_called_as_upstream_calls_them():
    plugin = DEVICE_PLUGIN.services_by_name["DevicePlugin"]
    assert plugin.full_name == deviceplugin.PLUGIN_SERVICE
    assert {method.name for method in plugin.methods} == {
        deviceplugin.GET_OPTIONS,
        deviceplugin.LIST_AND_WATCH,
        deviceplugin.GET_PREFERRED,
        deviceplugin.ALLOCATE,
        deviceplugin.PRE_START,
    }
    registration = DEVICE_PLUGIN.services_by_name["Registration"]
    assert registration.full_name == deviceplugin.REGISTRATION_SERVICE
    assert [method.name for method in registration.methods] == [deviceplugin.REGISTER]
    lister = POD_RESOURCES.services_by_name["PodResourcesLister"]
    assert lister.full_name == podresources.SERVICE
    assert {method.name for method in lister.methods} == {
        podresources.LIST,
        podresources.GET,
        podresources.GET_ALLOCATABLE,
    }
