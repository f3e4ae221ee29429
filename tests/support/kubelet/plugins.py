"""A double of one node's kubelet towards device plugins: registry, lists, allocations.

It speaks gRPC on real unix sockets in a directory of its own. As kubelet does, it calls the plugin back
while that registers, forgets the units of a plugin whose stream ended but not what it gave out, and deletes
every socket of the directory when it starts. A plugin that registers again has two streams; where either of
them ends, the one that registered last is dropped, alive or not.

Which pod gets what is decided in `tests.support.kubelet.admission`.
"""

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, Self, final

import grpc
import structlog

from api.kubelet.deviceplugin import (
    ALLOCATE,
    GET_OPTIONS,
    GET_PREFERRED,
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
    ContainerAllocateRequest,
    ContainerAllocateResponse,
    ContainerPreferredAllocationRequest,
    Device,
    DevicePluginOptions,
    Empty,
    ListAndWatchResponse,
    PreferredAllocationRequest,
    PreferredAllocationResponse,
    RegisterRequest,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

CALL_WITHIN_S: Final = 120.0

_log = structlog.get_logger()

Context = grpc.aio.ServicerContext[Any, Any]


@final
class PluginsOfKubelet:
    """An async context manager: kubelet runs inside, and may `restart`."""

    def __init__(self, directory: "Path") -> None:
        self.directory = directory
        self.devices: dict[str, tuple[Device, ...]] = {}
        """Resource -> what its plugin lists; without a live plugin it has no devices."""
        self.registrations: list[RegisterRequest] = []
        """All there were, in order."""
        self.is_deaf = False
        """Takes registrations, and opens no stream."""
        self.hangs = False
        """Does not answer registrations."""
        self.is_asked = False
        """There was one that was not answered."""
        self._given: dict[str, set[str]] = {}
        # resource -> ids that containers have
        self._server: grpc.aio.Server | None = None
        self._group: asyncio.TaskGroup | None = None
        self._clients: dict[str, asyncio.Task[None]] = {}
        # resource -> the stream of the plugin that registered last
        self._older: set[asyncio.Task[None]] = set()
        self._options: dict[str, DevicePluginOptions] = {}

    async def __aenter__(self) -> Self:
        """Start."""
        self._group = asyncio.TaskGroup()
        await self._group.__aenter__()
        await self._start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: "TracebackType | None",
    ) -> None:
        """Stop, and wait for all streams to end."""
        await self.stop()
        if self._group is not None:
            await self._group.__aexit__(kind, error, trace)

    async def restart(self, *, leaves_sockets: bool = False) -> None:
        """Stop and start again; what was given out is remembered, as in its checkpoint."""
        await self.stop()
        await self._start(leaves_sockets=leaves_sockets)

    async def stop(self) -> None:
        """Close the registry and all streams; the sockets stay behind."""
        for task in (*self._clients.values(), *self._older):
            task.cancel()
        self._clients.clear()
        self._older.clear()
        self.devices.clear()
        if self._server is not None:
            await self._server.stop(0)
            self._server = None

    def disconnect(self, resource: str) -> None:
        """Drop a plugin whose socket is alive, as after two servers of one resource overlapped."""
        self._clients.pop(resource).cancel()
        self.devices.pop(resource, None)

    def capacity(self, resource: str) -> int:
        """Return how many units the plugin lists."""
        return len(self.devices.get(resource, ()))

    def allocatable(self, resource: str) -> int:
        """Return how many of them are healthy."""
        return sum(device.health == HEALTHY for device in self.devices.get(resource, ()))

    async def admit(self, resource: str, units: int) -> ContainerAllocateResponse:
        """Give units of the first free ones to a container.

        Raises:
            LookupError: too few healthy units are free; no call is made.
            grpc.aio.AioRpcError: the plugin refused.
        """
        given = self._given.setdefault(resource, set())
        free = [
            device.ID
            for device in self.devices.get(resource, ())
            if device.health == HEALTHY and device.ID not in given
        ]
        if len(free) < units:
            raise LookupError(f"requested {units} of {resource}, available {len(free)}")
        chosen = tuple(free[:units])
        response = await self.allocate(resource, chosen)
        given.update(chosen)
        return response

    async def allocate(self, resource: str, ids: "Sequence[str]") -> ContainerAllocateResponse:
        """Ask the plugin for these very ids."""
        request = AllocateRequest(container_requests=[ContainerAllocateRequest(devices_ids=ids)])
        content = await self.call(resource, ALLOCATE, request.SerializeToString())
        (response,) = AllocateResponse.FromString(content).container_responses
        return response

    def prefers(self, resource: str) -> bool:
        """Say whether the plugin wants to be asked which units are best."""
        return self._options[resource].get_preferred_allocation_available

    async def prefer(
        self, resource: str, request: ContainerPreferredAllocationRequest
    ) -> tuple[str, ...]:
        """Ask the plugin which units are best."""
        requests = PreferredAllocationRequest(container_requests=[request])
        content = await self.call(resource, GET_PREFERRED, requests.SerializeToString())
        (response,) = PreferredAllocationResponse.FromString(content).container_responses
        return tuple(response.deviceIDs)

    async def call(self, resource: str, call: str, content: bytes) -> bytes:
        """Send any bytes to the plugin that registered last, and return what it answers.

        Raises:
            grpc.aio.AioRpcError: it refused, or does not live.
        """
        endpoint = next(
            registration.endpoint
            for registration in reversed(self.registrations)
            if registration.resource_name == resource
        )
        async with self._dial(endpoint) as channel:
            calling: grpc.aio.UnaryUnaryMultiCallable[Any, Any] = channel.unary_unary(
                f"/{PLUGIN_SERVICE}/{call}"
            )
            return bytes(await calling(content, timeout=CALL_WITHIN_S))

    async def _start(self, *, leaves_sockets: bool = False) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        for left in self.directory.glob(KUBELET_SOCKET if leaves_sockets else "*.sock"):
            left.unlink()
        handler = grpc.unary_unary_rpc_method_handler(
            self._take,
            request_deserializer=RegisterRequest.FromString,
            response_serializer=Empty.SerializeToString,
        )
        server = grpc.aio.server()
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(REGISTRATION_SERVICE, {REGISTER: handler}),)
        )
        server.add_insecure_port(f"unix://{self.directory / KUBELET_SOCKET}")
        await server.start()
        self._server = server

    def _dial(self, endpoint: str) -> grpc.aio.Channel:
        # A connection of its own for each, as kubelet has: another process may be behind the same path.
        return grpc.aio.insecure_channel(
            f"unix://{self.directory / endpoint}", options=(("grpc.use_local_subchannel_pool", 1),)
        )

    async def _take(self, registration: RegisterRequest, context: Context) -> Empty:
        if self.hangs:
            self.is_asked = True
            await asyncio.Event().wait()
        fault = _fault_of(registration)
        if fault:
            await context.abort(grpc.StatusCode.UNKNOWN, fault)
        async with self._dial(registration.endpoint) as channel:
            options: grpc.aio.UnaryUnaryMultiCallable[Any, DevicePluginOptions] = (
                channel.unary_unary(
                    f"/{PLUGIN_SERVICE}/{GET_OPTIONS}",
                    request_serializer=Empty.SerializeToString,
                    response_deserializer=DevicePluginOptions.FromString,
                )
            )
            try:
                self._options[registration.resource_name] = await options(
                    Empty(), timeout=CALL_WITHIN_S
                )
            except grpc.aio.AioRpcError as error:
                text = f"failed to get device plugin options: {error.details()}"
                await context.abort(grpc.StatusCode.UNKNOWN, text)
        self.registrations.append(registration)
        before = self._clients.pop(registration.resource_name, None)
        if before is not None:
            self._older.add(before)
        if self._group is not None and not self.is_deaf:
            self._clients[registration.resource_name] = self._group.create_task(
                self._follow(registration), name=f"plugin {registration.resource_name}"
            )
        return Empty()

    async def _follow(self, registration: RegisterRequest) -> None:
        """Take over the plugin's list until its stream ends."""
        with contextlib.suppress(grpc.aio.AioRpcError):
            async with self._dial(registration.endpoint) as channel:
                listing: grpc.aio.UnaryStreamMultiCallable[Any, Any] = channel.unary_stream(
                    f"/{PLUGIN_SERVICE}/{LIST_AND_WATCH}",
                    request_serializer=Empty.SerializeToString,
                    response_deserializer=ListAndWatchResponse.FromString,
                )
                async for response in listing(Empty()):
                    self.devices[registration.resource_name] = tuple(response.devices)
        _log.info("plugin gone", resource=registration.resource_name)
        me = asyncio.current_task()
        # kubelet looks up whom to drop by the resource's name, so that it need not be who is gone.
        dropped = self._clients.pop(registration.resource_name, None)
        if dropped is not None and dropped is not me:
            dropped.cancel()
        self._older = {task for task in self._older if task is not me}
        self.devices.pop(registration.resource_name, None)


def _fault_of(registration: RegisterRequest) -> str:
    if registration.version != VERSION:
        return (
            f'requested API version "{registration.version}" is not supported by kubelet.'
            f" Supported version is {VERSION}"
        )
    prefix, slash, name = registration.resource_name.partition("/")
    if not (prefix and slash and name):
        return f'the ResourceName "{registration.resource_name}" is invalid'
    return ""
