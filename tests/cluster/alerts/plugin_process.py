"""The device plugin of a pool on one node: our own process beside a double of kubelet, and the page of its metrics."""

import contextlib
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import msgspec

from api.foreign.core import Pod
from demo.demo_folder import demo_folder
from tests.cluster.environment import polling, server_process
from tests.component.agent.node import MountedConfig
from tests.support import ports
from tests.support.kubelet.admission import KubeletOfNode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from tests.cluster.environment.client import JsonObject
    from tests.cluster.environment.control_plane import ControlPlane


@final
class PluginProcess:
    """The process, while the context that made it is open."""

    def __init__(self, kubelet: KubeletOfNode, job: dict[str, Any]) -> None:
        self.job = job
        """Of a Prometheus that reads its page."""
        self._kubelet = kubelet

    async def registered(self, resource: str, units: int) -> None:
        """Wait until kubelet knows so many units of the resource."""

        async def has_capacity() -> bool:
            return bool(self._kubelet.plugins.capacity(resource) == units)

        await polling.eventually(has_capacity, what=f"{units} of {resource} on the node")

    async def admit(self, pod: "JsonObject") -> None:
        """Have kubelet give the pod's containers what they request."""
        await self._kubelet.admit(msgspec.convert(pod, Pod, strict=False))

    async def stop_kubelet(self) -> None:
        """Kubelet goes: the plugin is not registered any more."""
        await self._kubelet.plugins.stop()


@contextlib.asynccontextmanager
async def plugin_process(
    control_plane: "ControlPlane", *, pool: str, node: str, uuids: "Sequence[str]"
) -> "AsyncIterator[PluginProcess]":
    port = ports.free_port()
    # A socket's path may have 107 characters.
    with demo_folder() as name:
        folder = Path(name)
        mounted = MountedConfig(folder / "pool")
        mounted.put_devices(*uuids, pool=pool, nodes={node: [{"uuid": uuid} for uuid in uuids]})
        async with KubeletOfNode(folder, random.Random(1)) as kubelet:
            process = control_plane.run.child(
                f"plugin-of-{pool}",
                [
                    *server_process.installed_command(),
                    "agent",
                    "--roles=device-plugin",
                    f"--node={node}",
                    f"--config={mounted.path}",
                    f"--plugins-directory={kubelet.plugins.directory}",
                    f"--pod-resources-directory={kubelet.pod_resources.directory}",
                    f"--run-directory={folder}",
                    f"--kubeconfig={control_plane.kubeconfig()}",
                    "--host=127.0.0.1",
                    f"--port={port}",
                ],
            )
            process.start()
            job = {
                "job_name": "device-plugin",
                "scrape_interval": "1s",
                "scrape_timeout": "1s",
                "static_configs": [{"targets": [f"127.0.0.1:{port}"]}],
            }
            try:
                yield PluginProcess(kubelet, job)
            finally:
                process.kill9()
