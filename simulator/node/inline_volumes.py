"""kubelet's side of CSI: inline volumes of pods, published through the sockets of the nodes' drivers.

After pkg/kubelet/pluginmanager and pkg/volume/csi of Kubernetes 1.36: a driver is found by the socket that it keeps in
`plugins_registry`, told the outcome, and called at the endpoint that it gave. What is mounted is known by the
directories of the pod alone (`vol_data.json`), so that a kubelet that starts again unmounts what it did not mount.

    <root>/plugins_registry/<driver>-reg.sock
    <root>/pods/<uid>/volumes/kubernetes.io~csi/<volume>/{vol_data.json, mount/}

Every call has a connection of its own. Volumes of other kinds are left to the containers' runtime.
"""

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, final

import grpc
import msgspec

from api.csi import names
from api.csi.proto.csi_pb2 import (
    NodeGetInfoRequest,
    NodeGetInfoResponse,
    NodePublishVolumeRequest,
    NodePublishVolumeResponse,
    NodeUnpublishVolumeRequest,
    NodeUnpublishVolumeResponse,
    VolumeCapability,
)
from api.kubelet.pluginregistration import (
    CSI_PLUGIN,
    GET_INFO,
    NOTIFY_STATUS,
    PLUGIN_REGISTRATION_SERVICE,
)
from api.kubelet.proto.pluginregistration_pb2 import (
    InfoRequest,
    PluginInfo,
    RegistrationStatus,
    RegistrationStatusResponse,
)
from simulator.node.pod_volumes import VolumeNotReadyError

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from api.foreign.core import CSIVolume, Pod

REGISTRY: Final = "plugins_registry"
CALL_WITHIN_S: Final = 30.0
_MOUNT: Final = "mount"
_DATA: Final = "vol_data.json"

Response = TypeVar("Response", bound="Message")


@final
class _VolumeData(msgspec.Struct, rename="camel"):
    """`vol_data.json`, as far as it is read here and by the driver."""

    driver_name: str
    volume_handle: str
    volume_lifecycle_mode: str = "Ephemeral"


@final
@dataclass(frozen=True, slots=True)
class _Call(Generic[Response]):
    method: str
    request: "Message"
    response_type: type[Response]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class InlineVolumes:
    """The port `simulator.node.pod_volumes.PodVolumes` for all nodes of a cluster."""

    nodes: Path
    """Directory with kubelet's root of each node."""

    def root(self, node: str) -> Path:
        """Return the root directory of a node's kubelet, by a short name: a socket's path has at most 107 bytes."""
        return self.nodes / hashlib.sha256(node.encode()).hexdigest()[:8]

    def mount_of(self, pod: "Pod", volume: str) -> Path:
        """Return where a volume of the pod is mounted."""
        return self._directory(pod) / volume / _MOUNT

    async def mount(self, pod: "Pod") -> None:
        """Publish the pod's inline volumes."""
        for volume in pod.spec.volumes or ():
            if volume.csi is not None:
                await self._publish(pod, volume.name, volume.csi)

    async def unmount(self, pod: "Pod") -> None:
        """Unpublish what the pod's directory has."""
        for directory in _listed(self._directory(pod)):
            data = msgspec.json.decode((directory / _DATA).read_bytes(), type=_VolumeData)
            target = directory / _MOUNT
            await self._call_driver(
                pod.spec.node_name,
                data.driver_name,
                _Call(
                    names.NODE_UNPUBLISH,
                    NodeUnpublishVolumeRequest(
                        volume_id=data.volume_handle, target_path=str(target)
                    ),
                    NodeUnpublishVolumeResponse,
                ),
                subject=f'UnmountVolume.TearDown failed for volume "{directory.name}"',
            )
            # kubelet leaves a directory that is not empty: the driver has to remove the target.
            (directory / _DATA).unlink()
            directory.rmdir()
        shutil.rmtree(self._pod_directory(pod), ignore_errors=True)

    async def _publish(self, pod: "Pod", name: str, source: "CSIVolume") -> None:
        directory = self._directory(pod) / name
        handle = _handle(pod, name)
        data = _VolumeData(driver_name=source.driver, volume_handle=handle)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / _DATA).write_bytes(msgspec.json.encode(data))
        meta = pod.metadata
        attributes = (source.volume_attributes or {}) | {
            names.POD_NAME: meta.name,
            names.POD_NAMESPACE: meta.namespace,
            names.POD_UID: meta.uid,
            names.EPHEMERAL: "true",
        }
        mode = VolumeCapability.AccessMode(mode=VolumeCapability.AccessMode.SINGLE_NODE_WRITER)
        request = NodePublishVolumeRequest(
            volume_id=handle,
            target_path=str(directory / _MOUNT),
            volume_capability=VolumeCapability(
                mount=VolumeCapability.MountVolume(), access_mode=mode
            ),
            volume_context=attributes,
        )
        await self._call_driver(
            pod.spec.node_name,
            source.driver,
            _Call(names.NODE_PUBLISH, request, NodePublishVolumeResponse),
            subject=f'MountVolume.SetUp failed for volume "{name}"',
        )

    async def _call_driver(self, node: str, driver: str, call: _Call[Any], *, subject: str) -> None:
        try:
            endpoint = await self._endpoint(node, driver)
            if endpoint is None:
                text = f"driver name {driver} not found in the list of registered CSI drivers"
                raise VolumeNotReadyError(f"{subject} : {text}")
            await _call(endpoint, names.NODE_SERVICE, call)
        except grpc.aio.AioRpcError as error:
            code = error.code().name.title().replace("_", "")
            text = f"rpc error: code = {code} desc = {error.details()}"
            raise VolumeNotReadyError(f"{subject} : {text}") from error

    async def _endpoint(self, node: str, driver: str) -> Path | None:
        """Return the socket of a driver; None where none of the name is registered."""
        for socket in _listed(self.root(node) / REGISTRY):
            info = await _call(
                socket, PLUGIN_REGISTRATION_SERVICE, _Call(GET_INFO, InfoRequest(), PluginInfo)
            )
            if (info.type, info.name) != (CSI_PLUGIN, driver):
                continue
            endpoint = Path(info.endpoint)
            node_info = _Call(names.NODE_GET_INFO, NodeGetInfoRequest(), NodeGetInfoResponse)
            await _call(endpoint, names.NODE_SERVICE, node_info)
            registered = RegistrationStatus(plugin_registered=True)
            reported = _Call(NOTIFY_STATUS, registered, RegistrationStatusResponse)
            await _call(socket, PLUGIN_REGISTRATION_SERVICE, reported)
            return endpoint
        return None

    def _pod_directory(self, pod: "Pod") -> Path:
        return self.root(pod.spec.node_name) / "pods" / pod.metadata.uid

    def _directory(self, pod: "Pod") -> Path:
        return self._pod_directory(pod) / "volumes" / "kubernetes.io~csi"


async def _call(socket: Path, service: str, call: _Call[Response]) -> Response:
    """Call over a connection of its own.

    Raises:
        grpc.aio.AioRpcError: it is refused, or nothing serves the socket.
    """
    options = (("grpc.use_local_subchannel_pool", 1),)
    async with grpc.aio.insecure_channel(f"unix://{socket}", options=options) as channel:
        method: grpc.aio.UnaryUnaryMultiCallable[Any, Any] = channel.unary_unary(
            f"/{service}/{call.method}"
        )
        content = await method(call.request.SerializeToString(), timeout=CALL_WITHIN_S)
    return call.response_type.FromString(bytes(content))


def _handle(pod: "Pod", volume: str) -> str:
    """Return the id of a volume, which stays the same at every attempt."""
    digest = hashlib.sha256(f"{pod.metadata.uid}{volume}".encode()).hexdigest()
    return f"csi-{digest}"


def _listed(directory: Path) -> list[Path]:
    """Return what is in a directory; nothing where it is missing."""
    return sorted(directory.iterdir()) if directory.is_dir() else []
