"""For tests of the CSI driver: requests as kubelet makes them, a client on a socket, and doubles of its two ports."""

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar, final

import grpc
from google.protobuf.message import Message

from agent.csi.volume_request import PublishVolume
from agent.csi.volume_source import (
    Absence,
    CacheVolume,
    MountState,
    NotThere,
)
from agent.errors import MountError
from api.cache_name import CacheName
from api.csi import names
from api.csi.proto import csi_pb2

CALL_WITHIN_S: Final = 120.0
UID: Final = "8c1e8f10-4a0c-4a35-9b4d-0a4c4c0d7a11"
SERVICE_ACCOUNT: Final = "csi.storage.k8s.io/serviceAccount.name"
A_DIGEST: Final = "sha256:" + "1" * 64

Response = TypeVar("Response", bound=Message)


def a_target(pods: Path, uid: str = UID, volume: str = "cache") -> Path:
    """Return the target path that kubelet gives for a pod's volume."""
    return pods / uid / "volumes" / "kubernetes.io~csi" / volume / "mount"


def some_attributes(
    cache: str = "llama", namespace: str | None = "team-a", **changed: str | None
) -> dict[str, str]:
    """Return the attributes of a volume of pod `team-a/worker`; None removes one (`pod_uid=None`)."""
    attributes: dict[str, str | None] = {
        names.CACHE_ATTRIBUTE: cache,
        names.NAMESPACE_ATTRIBUTE: namespace,
        names.POD_NAME: "worker",
        names.POD_NAMESPACE: "team-a",
        names.POD_UID: UID,
        SERVICE_ACCOUNT: "default",
        names.EPHEMERAL: "true",
    }
    keys = {
        "pod_name": names.POD_NAME,
        "pod_namespace": names.POD_NAMESPACE,
        "pod_uid": names.POD_UID,
        "ephemeral": names.EPHEMERAL,
    }
    attributes |= {keys[item]: value for item, value in changed.items()}
    return {key: value for key, value in attributes.items() if value is not None}


def a_capability(
    mode: int = csi_pb2.VolumeCapability.AccessMode.SINGLE_NODE_WRITER,
) -> csi_pb2.VolumeCapability:
    """Return what kubelet asks for with every inline volume."""
    return csi_pb2.VolumeCapability(
        mount=csi_pb2.VolumeCapability.MountVolume(),
        access_mode=csi_pb2.VolumeCapability.AccessMode(mode=mode),  # type: ignore[arg-type]  # any number is one on the wire
    )


def a_publish(
    target: Path | str,
    attributes: Mapping[str, str] | None = None,
    *,
    volume: str = "csi-1",
    capability: csi_pb2.VolumeCapability | None = None,
) -> csi_pb2.NodePublishVolumeRequest:
    return csi_pb2.NodePublishVolumeRequest(
        volume_id=volume,
        target_path=str(target),
        volume_capability=capability or a_capability(),
        volume_context=some_attributes() if attributes is None else attributes,
    )


@final
class CsiClient:
    """Calls a driver at its socket, each time over a connection of its own, as kubelet does."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def publish(self, request: csi_pb2.NodePublishVolumeRequest) -> None:
        await self.call(names.NODE_PUBLISH, request, csi_pb2.NodePublishVolumeResponse)

    async def unpublish(self, target: Path | str, volume: str = "csi-1") -> None:
        request = csi_pb2.NodeUnpublishVolumeRequest(volume_id=volume, target_path=str(target))
        await self.call(names.NODE_UNPUBLISH, request, csi_pb2.NodeUnpublishVolumeResponse)

    async def call(
        self,
        call: str,
        request: Message | bytes,
        response_type: type[Response],
        *,
        service: str = names.NODE_SERVICE,
        within_s: float = CALL_WITHIN_S,
    ) -> Response:
        """Make a call.

        Raises:
            grpc.aio.AioRpcError: it is refused.
        """
        content = request if isinstance(request, bytes) else request.SerializeToString()
        async with grpc.aio.insecure_channel(
            f"unix://{self._socket}", options=(("grpc.use_local_subchannel_pool", 1),)
        ) as channel:
            method: grpc.aio.UnaryUnaryMultiCallable[Any, Any] = channel.unary_unary(
                f"/{service}/{call}"
            )
            return response_type.FromString(bytes(await method(content, timeout=within_s)))


@final
@dataclass
class StoreDouble:
    """The port VolumeSource: caches by name, and which of them are held."""

    caches: dict[CacheName, CacheVolume | NotThere] = field(default_factory=dict)
    held: list[CacheName] = field(default_factory=list)
    released_targets: list[Path] = field(default_factory=list)

    @contextlib.asynccontextmanager
    async def source_of(self, volume: PublishVolume) -> AsyncIterator[CacheVolume | NotThere]:
        cache = volume.cache
        absent = NotThere(absence=Absence.NO_SUCH_CACHE, reason="there is no such cache")
        self.held.append(cache)
        try:
            yield self.caches.get(cache, absent)
        finally:
            self.held.remove(cache)

    def released(self, target: Path) -> None:
        self.released_targets.append(target)


@final
class MounterDouble:
    """The port Mounter: mounts in memory."""

    def __init__(self) -> None:
        self.mounted: dict[Path, list[CacheVolume | None]] = {}
        """Target -> what is mounted there, the uppermost last; None is a foreign mount."""
        self.exposed: set[Path] = set()
        """Targets whose mount lacks a flag."""
        self.fault = ""
        """Every change fails with this text."""
        self.before_change: Callable[[], None] = lambda: None
        """Called in the thread of the change, such as to block it."""
        self.changes = 0

    def state(self, target: Path) -> MountState:
        if not self.mounted.get(target):
            return MountState.NOT_MOUNTED
        return MountState.EXPOSED if target in self.exposed else MountState.PROTECTED

    def mount(self, volume: CacheVolume, target: Path) -> None:
        self._change(target)
        assert target.is_dir()
        self.mounted.setdefault(target, []).append(volume)

    def unmount(self, target: Path) -> None:
        self._change(target)
        self.mounted[target].pop()
        self.exposed.discard(target)

    def _change(self, target: Path) -> None:
        self.changes += 1
        self.before_change()
        if self.fault:
            raise MountError(f"{target}: {self.fault}")
