"""A process with the CSI driver, one cache on its disk, and a double of a controller that csi-sanity can create by.

    unshare --mount python -m tests.cluster.caches.driver_process FOLDER

csi-sanity's tests of mounted volumes take them from a controller, and kubelet's attributes have to be among theirs.
The controller has a socket of its own: the driver has none.
"""

import asyncio
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import grpc

from agent.csi.identity_service import IdentityService
from agent.csi.node_service import NodeService
from agent.csi.volume_source import CacheVolume
from agent.csi.volume_targets import VolumeTargets
from agent.kernelcache.content.mounts import OverlayMounter
from agent.served_socket import ServedSocket
from agent.unary_calls import UnaryCalls
from api.cache_name import CacheName
from api.csi.names import GET_PLUGIN_CAPABILITIES, IDENTITY_SERVICE
from http_edge.system_clock import SystemClock
from tests.support.csi import A_DIGEST, StoreDouble, some_attributes

DRIVER_SOCKET: Final = "csi.sock"
CONTROLLER_SOCKET: Final = "controller.sock"
WITH_CONTROLLER_SOCKET: Final = "with-controller.sock"
"""The driver's Node service, beside an Identity that says it has a controller."""
CONTENT: Final = "content"
PODS: Final = "pods"
NODE: Final = "node-1"
CACHE: Final = CacheName(name="llama", namespace="team-a")


def delimited(number: int, content: bytes) -> bytes:
    """Return a field of protobuf's wire format: text, bytes or a message of less than 16 KiB."""
    length = len(content)
    prefix = [length] if length < 128 else [length & 127 | 128, length >> 7]
    return bytes([number << 3 | 2, *prefix]) + content


def created_volume(name: str, attributes: Mapping[str, str]) -> bytes:
    """Return a CreateVolumeResponse: `volume` is 1, and in it `volume_id` 2 and `volume_context` 3."""
    entries = b"".join(
        delimited(3, delimited(1, key.encode()) + delimited(2, value.encode()))
        for key, value in attributes.items()
    )
    return delimited(1, delimited(2, name.encode()) + entries)


def name_in(request: bytes) -> str:
    """Return the first field of a CreateVolumeRequest: the name, which is short."""
    assert request[0] == 1 << 3 | 2
    return request[2 : 2 + request[1]].decode()


# Of a CONTROLLER_SERVICE in a list of plugin capabilities, and of CREATE_DELETE_VOLUME in one of a controller:
# `capabilities` is 1, in it `service` or `rpc` is 1, in that `type` is 1, and the type is 1.
FIRST_CAPABILITY: Final = bytes([10, 4, 10, 2, 8, 1])


def with_controller() -> grpc.GenericRpcHandler:
    async def capabilities(_request: bytes, _context: Any) -> bytes:
        return FIRST_CAPABILITY

    return grpc.method_handlers_generic_handler(
        IDENTITY_SERVICE,
        {GET_PLUGIN_CAPABILITIES: grpc.unary_unary_rpc_method_handler(capabilities)},
    )


def controller() -> grpc.GenericRpcHandler:
    async def capabilities(_request: bytes, _context: Any) -> bytes:
        return FIRST_CAPABILITY

    async def create(request: bytes, _context: Any) -> bytes:
        return created_volume(name_in(request), some_attributes())

    async def delete(_request: bytes, _context: Any) -> bytes:
        return b""

    return grpc.method_handlers_generic_handler(
        "csi.v1.Controller",
        {
            "ControllerGetCapabilities": grpc.unary_unary_rpc_method_handler(capabilities),
            "CreateVolume": grpc.unary_unary_rpc_method_handler(create),
            "DeleteVolume": grpc.unary_unary_rpc_method_handler(delete),
        },
    )


async def serve(folder: Path) -> None:
    content, pods = folder / CONTENT, folder / PODS
    volume = CacheVolume(content=content, digest=A_DIGEST, has_shared_objects=False)
    calls = UnaryCalls(
        component="the CSI driver",
        api="CSI 1.10",
        task="csi.answer",
        clock=SystemClock(),
        log_keys={},
    )
    identity = IdentityService()
    node = NodeService(
        NODE, StoreDouble({CACHE: volume}), VolumeTargets(pods, OverlayMounter()), pods=pods
    )
    sockets = [
        ServedSocket(folder / CONTROLLER_SOCKET, [identity.handlers(calls), controller()]),
        ServedSocket(folder / WITH_CONTROLLER_SOCKET, [with_controller(), node.handlers(calls)]),
        # The last one: who sees it can call all.
        ServedSocket(folder / DRIVER_SOCKET, [identity.handlers(calls), node.handlers(calls)]),
    ]
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    for socket in sockets:
        await socket.ensure()
    await ended.wait()
    for socket in sockets:
        await socket.stop(1)


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1])))
