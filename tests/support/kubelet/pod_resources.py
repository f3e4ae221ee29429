"""A double of kubelet's PodResources: a server on a real unix socket, with its limit of calls."""

import asyncio
from typing import TYPE_CHECKING, Any, Final, Protocol, final

import grpc

from api.kubelet.podresources import GET, GET_ALLOCATABLE, LIST, SERVICE, SOCKET, PodUnits
from api.kubelet.proto.podresources_pb2 import (
    AllocatableResourcesResponse,
    ContainerDevices,
    ContainerMemory,
    ContainerResources,
    GetPodResourcesRequest,
    GetPodResourcesResponse,
    ListPodResourcesResponse,
    NUMANode,
    PodResources,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

CALLS_PER_S: Final = 100.0
BURST: Final = 10

Context = grpc.aio.ServicerContext[Any, Any]


class PodsOfNode(Protocol):
    """What is shown."""

    def list_pods(self) -> "Sequence[PodUnits]":
        """Return all active pods; on the way kubelet recounts what is in use."""

    def find_pod(self, namespace: str, name: str) -> PodUnits | None:
        """Return one of them."""

    def allocatable(self) -> "Mapping[str, Sequence[str]]":
        """Return the healthy units of each resource."""


@final
class PodResourcesServer:
    """Serves while it is started; `is_silent` makes it hang, `is_limited` makes it count calls."""

    def __init__(self, directory: "Path", pods: PodsOfNode) -> None:
        self.directory = directory
        self.calls: list[str] = []
        """All that were answered, in order."""
        self.is_silent = False
        self.is_limited = True
        self.cpus: list[int] = []
        """Those that the CPU manager may allocate: none but with the policy static."""
        self.manages_memory = False
        self.numa_nodes: dict[str, list[int]] = {}
        """NUMA nodes of all devices of a resource."""
        self._pods = pods
        self._server: grpc.aio.Server | None = None
        self._tokens = float(BURST)
        self._filled_at = 0.0

    async def start(self) -> None:
        """Open the socket again."""
        self.directory.mkdir(parents=True, exist_ok=True)
        socket = self.directory / SOCKET
        socket.unlink(missing_ok=True)
        server = grpc.aio.server()
        answers = {LIST: self._list, GET: self._get, GET_ALLOCATABLE: self._all}
        server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(
                    SERVICE,
                    {
                        call: grpc.unary_unary_rpc_method_handler(answer)
                        for call, answer in answers.items()
                    },
                ),
            )
        )
        server.add_insecure_port(f"unix:{socket}")
        await server.start()
        self._server = server
        self._tokens, self._filled_at = float(BURST), asyncio.get_running_loop().time()

    async def stop(self) -> None:
        """Close it."""
        if self._server is not None:
            await self._server.stop(0)
            self._server = None

    async def _list(self, _content: bytes, context: Context) -> bytes:
        await self._admit(LIST, context)
        pods = [pod_message(pod) for pod in self._pods.list_pods()]
        return ListPodResourcesResponse(pod_resources=pods).SerializeToString()

    async def _get(self, content: bytes, context: Context) -> bytes:
        await self._admit(GET, context)
        request = GetPodResourcesRequest.FromString(content)
        pod = self._pods.find_pod(request.pod_namespace, request.pod_name)
        if pod is None:
            text = f"pod {request.pod_name} in namespace {request.pod_namespace} not found"
            await context.abort(grpc.StatusCode.UNKNOWN, text)
            raise AssertionError("abort returned")
        return GetPodResourcesResponse(pod_resources=pod_message(pod)).SerializeToString()

    async def _all(self, _content: bytes, context: Context) -> bytes:
        await self._admit(GET_ALLOCATABLE, context)
        devices = _devices(self._pods.allocatable())
        for device in devices:
            numa = self.numa_nodes.get(device.resource_name, ())
            device.topology.nodes.extend(NUMANode(ID=node) for node in numa)
        memory = [ContainerMemory(memory_type="memory", size=1)] if self.manages_memory else []
        return AllocatableResourcesResponse(
            devices=devices, cpu_ids=self.cpus, memory=memory
        ).SerializeToString()

    async def _admit(self, call: str, context: Context) -> None:
        if self.is_silent:
            await asyncio.Event().wait()
        if self.is_limited and not self._has_token():
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        self.calls.append(call)

    def _has_token(self) -> bool:
        now = asyncio.get_running_loop().time()
        self._tokens = min(float(BURST), self._tokens + CALLS_PER_S * (now - self._filled_at))
        self._filled_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


def pod_message(pod: PodUnits) -> PodResources:
    """Return the pod as kubelet sends it: with an entry for each id."""
    return PodResources(
        namespace=pod.namespace,
        name=pod.name,
        containers=[
            ContainerResources(name=container.name, devices=_devices(container.units))
            for container in pod.containers
        ],
    )


def _devices(units: "Mapping[str, Sequence[str]]") -> list[ContainerDevices]:
    return [
        ContainerDevices(resource_name=resource, device_ids=[unit])
        for resource, ids in units.items()
        for unit in ids
    ]
