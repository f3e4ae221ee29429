"""What kubelet and containerd make of a device plugin's answer; the plugin is the test's own."""

import asyncio
import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import grpc
import pytest

from api.kubelet.deviceplugin import (
    ALLOCATE,
    GET_OPTIONS,
    HEALTHY,
    KUBELET_SOCKET,
    LIST_AND_WATCH,
    PLUGIN_SERVICE,
    REGISTER,
    REGISTRATION_SERVICE,
    VERSION,
)
from api.kubelet.proto.deviceplugin_pb2 import (
    AllocateRequest,
    AllocateResponse,
    CDIDevice,
    ContainerAllocateResponse,
    Device,
    DevicePluginOptions,
    Empty,
    ListAndWatchResponse,
    RegisterRequest,
)
from tests.cluster.environment import client, nodes, pods, polling
from tests.cluster.node.environment import paths, real_node

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


@final
class _Plugin:
    """Offers units, and hands out for each the CDI device of its name; the kind is the resource."""

    def __init__(self, resource: str, units: list[str]) -> None:
        self.resource = resource
        self._units = units
        self.handler = grpc.method_handlers_generic_handler(
            PLUGIN_SERVICE,
            {
                GET_OPTIONS: grpc.unary_unary_rpc_method_handler(
                    self._options,
                    response_serializer=DevicePluginOptions.SerializeToString,
                ),
                LIST_AND_WATCH: grpc.unary_stream_rpc_method_handler(
                    self._list_and_watch,
                    response_serializer=ListAndWatchResponse.SerializeToString,
                ),
                ALLOCATE: grpc.unary_unary_rpc_method_handler(
                    self._allocate,
                    request_deserializer=AllocateRequest.FromString,
                    response_serializer=AllocateResponse.SerializeToString,
                ),
            },
        )

    async def _options(self, _request: bytes, _context: Any) -> DevicePluginOptions:
        return DevicePluginOptions()

    async def _list_and_watch(
        self, _request: bytes, _context: Any
    ) -> "AsyncIterator[ListAndWatchResponse]":
        yield ListAndWatchResponse(
            devices=[Device(ID=unit, health=HEALTHY) for unit in self._units]
        )
        await asyncio.Event().wait()

    async def _allocate(self, request: AllocateRequest, _context: Any) -> AllocateResponse:
        return AllocateResponse(
            container_responses=[
                ContainerAllocateResponse(
                    cdi_devices=[
                        CDIDevice(name=f"{self.resource}={unit}") for unit in item.devices_ids
                    ]
                )
                for item in request.container_requests
            ]
        )


@contextlib.asynccontextmanager
async def _served(node: real_node.RealNode, plugin: _Plugin) -> "AsyncIterator[None]":
    endpoint = f"{plugin.resource.partition('/')[2]}.sock"
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((plugin.handler,))
    server.add_insecure_port(f"unix://{node.plugins_directory / endpoint}")
    await server.start()
    kubelet = node.plugins_directory / KUBELET_SOCKET
    try:
        async with grpc.aio.insecure_channel(f"unix://{kubelet}") as channel:
            register = channel.unary_unary(
                f"/{REGISTRATION_SERVICE}/{REGISTER}",
                request_serializer=RegisterRequest.SerializeToString,
                response_deserializer=Empty.FromString,
            )
            await register(
                RegisterRequest(version=VERSION, endpoint=endpoint, resource_name=plugin.resource)
            )
        yield
    finally:
        await server.stop(0)


def _write_specification(directory: Path, kind: str, device: Path) -> Path:
    document = {
        "cdiVersion": "0.6.0",
        "kind": kind,
        "devices": [
            {
                "name": device.name,
                "containerEdits": {
                    "env": [f"INJECTED={device.name}"],
                    "deviceNodes": [{"path": f"/dev/{device.name}", "hostPath": str(device)}],
                },
            }
        ],
    }
    directory.mkdir(parents=True, exist_ok=True)
    specification = directory / "injected.json"
    specification.write_text(json.dumps(document), encoding="utf-8")
    return specification


@pytest.mark.parametrize(
    ("directory", "resource"),
    [
        pytest.param(paths.CDI, "gpu.deckhouse.io/own", id="own directory"),
        pytest.param(paths.USUAL_CDI, "gpu.deckhouse.io/usual", id="usual directory"),
    ],
)
async def test_a_pod_gets_exactly_the_cdi_devices_that_its_plugin_names(
    api: client.ApiClient, namespace: str, node: real_node.RealNode, directory: Path, resource: str
):
    names = ["nvidia0", "nvidia1"]
    devices = {name: await node.make_device(name) for name in names}
    specification = _write_specification(directory, resource, devices["nvidia1"])
    try:
        async with _served(node, _Plugin(resource, ["nvidia1"])):
            await polling.eventually(_offers(api, node, resource), what=f"{resource} on the node")
            await api.create(pods.collection(namespace), node.a_pod("has", limits={resource: 1}))
            await pods.wait_for_pod(api, namespace, "has", pods.is_running)

            listed = await node.exec(namespace, "has", ["ls", "/dev"])
            assert [name for name in listed.split() if name.startswith("nvidia")] == ["nvidia1"]
            await node.exec(namespace, "has", ["sh", "-c", "echo x > /dev/nvidia1"])
            assert "INJECTED=nvidia1\n" in await node.exec(namespace, "has", ["env"])

            refused = node.a_pod("too-late", limits={resource: 1})
            await api.create(pods.collection(namespace), refused)
            found = await pods.wait_for_pod(
                api, namespace, "too-late", lambda pod: pod["status"].get("phase") == "Failed"
            )
            assert found["status"]["reason"] == "UnexpectedAdmissionError"
    finally:
        specification.unlink()
        for device in devices.values():
            device.unlink()


def _offers(api: client.ApiClient, node: real_node.RealNode, resource: str) -> "Callable[[], Any]":
    async def offers() -> bool:
        status = await api.status(f"{nodes.NODES}/{node.name}")
        return bool(status.get("allocatable", {}).get(resource) == "1")

    return offers
