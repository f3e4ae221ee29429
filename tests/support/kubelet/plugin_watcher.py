"""A double of kubelet's plugin watcher: it finds the sockets of a directory, and registers CSI drivers.

After pkg/kubelet/pluginmanager and pkg/volume/csi of Kubernetes 1.36: a socket that is new is asked for its plugin, the
driver for its node, and the plugin is told the outcome; a plugin whose socket went is forgotten; a driver of a name
that is registered is refused unless its version is higher; what failed is tried again. kubelet waits for inotify; this
double looks when it is told to.
"""

from pathlib import Path
from typing import final

import grpc

from agent.files import FileIdentity, file_identity
from api.csi.names import NODE_GET_INFO
from api.csi.proto.csi_pb2 import NodeGetInfoRequest, NodeGetInfoResponse
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
from tests.support.csi import CsiClient


@final
class PluginWatcher:
    """One kubelet; `read` is a turn of its reconciler."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.nodes: dict[str, str] = {}
        """Registered driver -> the node id that it gave."""
        self.refusal = ""
        """Text with which every registration fails."""
        self._recorded: dict[Path, tuple[FileIdentity, str]] = {}
        # Socket -> the socket and the driver that were registered.

    def restart(self) -> None:
        """Forget all; the sockets stay."""
        self._recorded.clear()
        self.nodes.clear()

    async def scan(self) -> None:
        """Forget the plugins whose sockets went, then register those that are new."""
        for path, (identity, name) in list(self._recorded.items()):
            if file_identity(path) != identity:
                del self._recorded[path]
                self.nodes.pop(name, None)
        for path in sorted(self.directory.iterdir()):
            if path.is_socket() and not path.name.startswith(".") and path not in self._recorded:
                await self._register(path)

    async def _register(self, path: Path) -> None:
        identity = file_identity(path)
        try:
            info = await CsiClient(path).call(
                GET_INFO, InfoRequest(), PluginInfo, service=PLUGIN_REGISTRATION_SERVICE
            )
        except grpc.aio.AioRpcError:
            return
        fault = self.refusal or self._fault_of(info)
        if not fault:
            node = await CsiClient(Path(info.endpoint)).call(
                NODE_GET_INFO, NodeGetInfoRequest(), NodeGetInfoResponse
            )
            self.nodes[info.name] = node.node_id
            if identity is not None:
                self._recorded[path] = (identity, info.name)
        status = RegistrationStatus(plugin_registered=not fault, error=fault)
        await CsiClient(path).call(
            NOTIFY_STATUS, status, RegistrationStatusResponse, service=PLUGIN_REGISTRATION_SERVICE
        )

    def _fault_of(self, info: PluginInfo) -> str:
        if info.type != CSI_PLUGIN:
            return f"RegisterPlugin error -- no handler registered for plugin type: {info.type}"
        if not info.supported_versions or any(
            not version.startswith("1.") for version in info.supported_versions
        ):
            return f"None of the versions specified {info.supported_versions} are supported"
        if info.name in self.nodes:
            return "Another driver with the same name is already registered"
        return ""
