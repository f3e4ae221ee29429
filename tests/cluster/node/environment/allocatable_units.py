"""What kubelet itself can allocate now; the Node's status is behind, above all after a restart of kubelet."""

from typing import TYPE_CHECKING, Any

import grpc

from api.kubelet.podresources import GET_ALLOCATABLE, SERVICE, SOCKET
from api.kubelet.proto.podresources_pb2 import AllocatableResourcesResponse

if TYPE_CHECKING:
    from pathlib import Path


async def allocatable_units(directory: "Path", resource: str) -> int | None:
    """Return the healthy devices of a resource whose plugin is registered; None where kubelet does not answer.

    `directory` has the socket of PodResources.
    """
    async with grpc.aio.insecure_channel(f"unix:{directory / SOCKET}") as channel:
        method: grpc.aio.UnaryUnaryMultiCallable[Any, Any] = channel.unary_unary(
            f"/{SERVICE}/{GET_ALLOCATABLE}"
        )
        try:
            content = bytes(await method(b"", timeout=2))
        except grpc.aio.AioRpcError:
            return None
    found = AllocatableResourcesResponse.FromString(content)
    return sum(
        len(device.device_ids) for device in found.devices if device.resource_name == resource
    )
