"""CSI's service Node: mounts caches for pods, and removes the mounts.

The service implements what it advertises, and nothing is staged, attached or expanded. One operation of a volume
runs at a time: a second one is ABORTED, which is CSI's status for it, and kubelet calls again. If it waited, it
would run when its caller has given up and may have asked for the opposite.

ABORTED is also the status where a mount or unmount fails. kubelet then counts the volume as perhaps mounted, and
unpublishes it before the pod is gone.
"""

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar, final

import grpc
import structlog

from agent.csi import volume_request
from agent.csi.volume_source import Absence, NotThere
from agent.errors import MountError
from agent.unary_calls import CallRefusedError
from api.csi.names import (
    NODE_GET_CAPABILITIES,
    NODE_GET_INFO,
    NODE_GET_STATS,
    NODE_PUBLISH,
    NODE_SERVICE,
    NODE_UNPUBLISH,
)
from api.csi.proto.csi_pb2 import (
    NodeGetCapabilitiesRequest,
    NodeGetCapabilitiesResponse,
    NodeGetInfoRequest,
    NodeGetInfoResponse,
    NodeGetVolumeStatsRequest,
    NodeGetVolumeStatsResponse,
    NodePublishVolumeRequest,
    NodePublishVolumeResponse,
    NodeServiceCapability,
    NodeUnpublishVolumeRequest,
    NodeUnpublishVolumeResponse,
    VolumeUsage,
)
from api.text import truncate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from agent.csi.volume_source import VolumeSource
    from agent.csi.volume_targets import VolumeTargets
    from agent.unary_calls import UnaryCalls

_log = structlog.get_logger()

Result = TypeVar("Result")

_STATUS_OF: Final = {
    Absence.NO_SUCH_CACHE: grpc.StatusCode.NOT_FOUND,
    Absence.NOT_READY: grpc.StatusCode.UNAVAILABLE,
    Absence.DOES_NOT_FIT: grpc.StatusCode.FAILED_PRECONDITION,
}


@final
class NodeService:
    """Serves one node's kubelet."""

    def __init__(
        self, node: str, source: "VolumeSource", targets: "VolumeTargets", *, pods: "Path"
    ) -> None:
        """Serve from the source; `pods` is kubelet's directory of pods, below which all targets are."""
        self._node = node
        self._source = source
        self._targets = targets
        self._pods = pods
        self._in_operation: set[str] = set()
        # ids of volumes

    def handlers(self, calls: "UnaryCalls") -> grpc.GenericRpcHandler:
        return grpc.method_handlers_generic_handler(
            NODE_SERVICE,
            {
                NODE_PUBLISH: calls.handler(NODE_PUBLISH, NodePublishVolumeRequest, self._publish),
                NODE_UNPUBLISH: calls.handler(
                    NODE_UNPUBLISH, NodeUnpublishVolumeRequest, self._unpublish
                ),
                NODE_GET_STATS: calls.handler(
                    NODE_GET_STATS, NodeGetVolumeStatsRequest, self._stats
                ),
                NODE_GET_CAPABILITIES: calls.handler(
                    NODE_GET_CAPABILITIES, NodeGetCapabilitiesRequest, self._capabilities
                ),
                NODE_GET_INFO: calls.handler(NODE_GET_INFO, NodeGetInfoRequest, self._info),
            },
        )

    async def _publish(self, request: NodePublishVolumeRequest) -> NodePublishVolumeResponse:
        plan = volume_request.plan_publish(request, self._pods)
        if isinstance(plan, volume_request.VolumeRefused):
            _refuse(plan)
        with self._operation(plan.volume):
            # A volume keeps the content that it has, whatever the cache's image is by now.
            if not await _completed(partial(self._targets.is_published, plan.target)):
                await self._mount(plan)
        return NodePublishVolumeResponse()

    async def _mount(self, plan: "volume_request.PublishVolume") -> None:
        async with self._source.source_of(plan) as volume:
            if isinstance(volume, NotThere):
                raise CallRefusedError(_STATUS_OF[volume.absence], f"{plan.cache}: {volume.reason}")
            await _completed(partial(self._targets.publish, volume, plan.target))
        _log.info(
            "cache mounted",
            volume=plan.volume,
            pod=plan.pod,
            cache=str(plan.cache),
            digest=volume.digest,
        )

    async def _unpublish(self, request: NodeUnpublishVolumeRequest) -> NodeUnpublishVolumeResponse:
        plan = volume_request.plan_unpublish(request, self._pods)
        if isinstance(plan, volume_request.VolumeRefused):
            _refuse(plan)
        with self._operation(plan.volume):
            await _completed(partial(self._targets.unpublish, plan.target))
            self._source.released(plan.target)
        _log.info("cache unmounted", volume=plan.volume)
        return NodeUnpublishVolumeResponse()

    async def _stats(self, request: NodeGetVolumeStatsRequest) -> NodeGetVolumeStatsResponse:
        plan = volume_request.plan_stats(request, self._pods)
        if isinstance(plan, volume_request.VolumeRefused):
            _refuse(plan)
        # A walk through the content would keep it from being unmounted.
        with self._operation(plan.volume):
            size = await _completed(partial(self._targets.size, plan.target))
        if size is None:
            _refuse(volume_request.not_published(request.volume_id, request.volume_path))
        return NodeGetVolumeStatsResponse(
            usage=[
                VolumeUsage(
                    unit=VolumeUsage.Unit.BYTES, total=size.size_bytes, used=size.size_bytes
                ),
                VolumeUsage(unit=VolumeUsage.Unit.INODES, total=size.entries, used=size.entries),
            ]
        )

    async def _capabilities(
        self, _request: NodeGetCapabilitiesRequest
    ) -> NodeGetCapabilitiesResponse:
        stats = NodeServiceCapability.RPC(type=NodeServiceCapability.RPC.GET_VOLUME_STATS)
        return NodeGetCapabilitiesResponse(capabilities=[NodeServiceCapability(rpc=stats)])

    async def _info(self, _request: NodeGetInfoRequest) -> NodeGetInfoResponse:
        return NodeGetInfoResponse(node_id=self._node)

    @contextlib.contextmanager
    def _operation(self, volume: str) -> "Iterator[None]":
        """Hold the volume; mount errors end as ABORTED."""
        if volume in self._in_operation:
            raise CallRefusedError(
                grpc.StatusCode.ABORTED,
                f"another operation of volume {truncate(volume)} is in progress",
            )
        self._in_operation.add(volume)
        try:
            yield
        except MountError as error:
            raise CallRefusedError(grpc.StatusCode.ABORTED, str(error)) from error
        finally:
            self._in_operation.discard(volume)


async def _completed(call: "Callable[[], Result]") -> Result:
    """Make a blocking call in a thread, and return when it has ended, even where the caller is cancelled meanwhile.

    A thread cannot be stopped, and what it mounts must not be met by the next operation of the volume.
    """
    running = asyncio.get_running_loop().run_in_executor(None, call)
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        # Its exception counts as seen.
        running.exception()
        raise cancelled
    return running.result()


def _refuse(refused: volume_request.VolumeRefused) -> NoReturn:
    raise CallRefusedError(refused.code, refused.text)
