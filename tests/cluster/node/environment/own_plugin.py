"""A device plugin of the tests' own on a real kubelet, for any resource."""

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, final

import grpc

from api.kubelet import deviceplugin
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
from tests.cluster.environment import nodes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.cluster.environment import client
    from tests.cluster.node.environment import real_node


@final
class OwnPlugin:
    """Offers units, and hands out for each the CDI device of its name, if any; the kind is the resource."""

    def __init__(self, resource: str, units: list[str], *, has_devices: bool = True) -> None:
        self.resource = resource
        self._units = units
        self._has_devices = has_devices
        self.handler = grpc.method_handlers_generic_handler(
            deviceplugin.PLUGIN_SERVICE,
            {
                deviceplugin.GET_OPTIONS: grpc.unary_unary_rpc_method_handler(
                    self._options,
                    response_serializer=DevicePluginOptions.SerializeToString,
                ),
                deviceplugin.LIST_AND_WATCH: grpc.unary_stream_rpc_method_handler(
                    self._list_and_watch,
                    response_serializer=ListAndWatchResponse.SerializeToString,
                ),
                deviceplugin.ALLOCATE: grpc.unary_unary_rpc_method_handler(
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
            devices=[Device(ID=unit, health=deviceplugin.HEALTHY) for unit in self._units]
        )
        await asyncio.Event().wait()

    async def _allocate(self, request: AllocateRequest, _context: Any) -> AllocateResponse:
        return AllocateResponse(
            container_responses=[
                ContainerAllocateResponse(
                    cdi_devices=[
                        CDIDevice(name=f"{self.resource}={unit}")
                        for unit in item.devices_ids
                        if self._has_devices
                    ]
                )
                for item in request.container_requests
            ]
        )


@contextlib.asynccontextmanager
async def served(node: "real_node.RealNode", plugin: OwnPlugin) -> "AsyncIterator[None]":
    endpoint = f"{plugin.resource.partition('/')[2]}.sock"
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((plugin.handler,))
    server.add_insecure_port(f"unix://{node.plugins_directory / endpoint}")
    await server.start()
    kubelet = node.plugins_directory / deviceplugin.KUBELET_SOCKET
    try:
        async with grpc.aio.insecure_channel(f"unix://{kubelet}") as channel:
            register = channel.unary_unary(
                f"/{deviceplugin.REGISTRATION_SERVICE}/{deviceplugin.REGISTER}",
                request_serializer=RegisterRequest.SerializeToString,
                response_deserializer=Empty.FromString,
            )
            await register(
                RegisterRequest(
                    version=deviceplugin.VERSION, endpoint=endpoint, resource_name=plugin.resource
                )
            )
        yield
    finally:
        await server.stop(0)


def offers(
    api: "client.ApiClient", node: "real_node.RealNode", resource: str
) -> "Callable[[], Any]":
    """Return whether the node offers one unit, for `polling.eventually`."""

    async def does() -> bool:
        status = await api.status(f"{nodes.NODES}/{node.name}")
        return bool(status.get("allocatable", {}).get(resource) == "1")

    return does
