"""Our agent on the node, started as its container starts it."""

import contextlib
from typing import TYPE_CHECKING, final

import aiohttp

from tests.cluster.environment.server_process import installed_command
from tests.cluster.system.installation import NAMESPACE
from tests.support import ports

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.node.environment.real_node import RealNode
    from tests.cluster.node.stories.devices import NodeDevices

ALL_ROLES = "inventory,health,mig,telemetry,device-plugin"
_READY_S = 120


@final
class Agent:
    """One process with these roles, under the service account of the DaemonSet."""

    def __init__(
        self,
        control_plane: "ControlPlane",
        node: "RealNode",
        devices: "NodeDevices",
        *,
        name: str = "node-agent",
        hand_out: str = "CDI",
        roles: str = ALL_ROLES,
        flags: "Mapping[str, object] | None" = None,
    ) -> None:
        """`flags` go over those that all agents of the node have."""
        self._control_plane = control_plane
        self._node = node
        self._port = ports.free_port()
        self._kubeconfig = control_plane.run.directory / f"{name}.kubeconfig"
        arguments = {
            "--node": node.name,
            "--roles": roles,
            "--namespace": NAMESPACE,
            "--kubeconfig": self._kubeconfig,
            "--hand-out": hand_out,
            "--plugins-directory": node.plugins_directory,
            "--pod-resources-directory": node.pod_resources_directory,
            "--run-directory": node.run_directory,
            "--cdi-directory": node.cdi_directory,
            "--dev-root": node.dev_directory,
            "--sysfs": devices.sysfs,
            "--procfs": devices.procfs,
            "--host": "127.0.0.1",
            "--port": self._port,
            **(flags or {}),
        }
        flat = [str(part) for pair in arguments.items() for part in pair]
        self.process = control_plane.run.child(
            name, [*installed_command(), "agent", *flat], env={"PYTHONUNBUFFERED": "1"}
        )

    async def start(self) -> None:
        """Start it; returns when it is ready."""
        made = await self._control_plane.service_account_kubeconfig(
            NAMESPACE, "gpu-node-agent", node=self._node.name
        )
        self._kubeconfig.write_text(made.read_text(encoding="utf-8"), encoding="utf-8")
        self.process.start()
        await self.wait_ready()

    async def wait_ready(self) -> None:
        await self.process.wait_ready(self._missing, within=_READY_S)

    async def device_metrics(self) -> str:
        """Return the page of the devices' metrics."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{self._port}/metrics/devices") as answer,
        ):
            assert answer.status == 200
            return await answer.text()

    async def stop(self) -> None:
        await self.process.terminate()

    def kill9(self) -> None:
        self.process.kill9()

    async def _missing(self) -> str | None:
        with contextlib.suppress(aiohttp.ClientError):
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://127.0.0.1:{self._port}/readyz") as answer,
            ):
                return None if answer.status == 200 else await answer.text()
        return "its probes do not answer"
