"""What runs against a `ControlPlane`.

kube-controller-manager and kube-scheduler are unmodified; the kubelets are a double.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, final

import yaml

from tests.cluster.environment import (
    binaries,
    client,
    credentials,
    kubelet,
    nodes,
    polling,
)
from tests.support import ports

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.cluster.environment import control_plane as control_planes
    from tests.cluster.environment import processes

STOCK_SCHEDULER = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
"""
_READY_S = 120
_KWOK_STAGES = Path(__file__).with_name("kwok-stages.yaml")

_CONTROLLERS = ",".join(
    (
        "*",
        # The nodes have no kubelet that renews a lease: they would be tainted and emptied.
        "-node-lifecycle-controller",
        "-node-ipam-controller",
        "-node-route-controller",
        "-cloud-node-lifecycle-controller",
        "-service-lb-controller",
    )
)


@final
class KubeControllerManager:
    """Every controller but those that judge nodes; each acts as its own service account.

    `kubectl get pods` shows a Deployment's pods created by
    `system:serviceaccount:kube-system:replicaset-controller`, as in a real cluster.
    """

    def __init__(self, control_plane: "control_planes.ControlPlane") -> None:
        self._control_plane = control_plane
        keys = control_plane.credentials
        kubeconfig = control_plane.kubeconfig(credentials.CONTROLLER_MANAGER)
        self.process: processes.ChildProcess = control_plane.run.child(
            "kube-controller-manager",
            [
                str(control_plane.programs.kube_controller_manager),
                f"--kubeconfig={kubeconfig}",
                "--bind-address=127.0.0.1",
                f"--secure-port={ports.free_port()}",
                f"--tls-cert-file={keys.serving.certificate}",
                f"--tls-private-key-file={keys.serving.key}",
                f"--service-account-private-key-file={keys.service_account_key}",
                f"--root-ca-file={keys.ca_file}",
                f"--controllers={_CONTROLLERS}",
                "--use-service-account-credentials=true",
                "--leader-elect=false",
                # The default of 20 a second would be what a test of rates measures.
                "--kube-api-qps=500",
                "--kube-api-burst=1000",
            ],
        )
        control_plane.clients.append(self.process)

    async def start(self) -> None:
        """Start it; returns when its controllers work, not when its port answers."""
        self.process.start()
        await self.process.wait_ready(self._has_default_account, within=_READY_S)

    async def _has_default_account(self) -> str | None:
        try:
            async with client.open_client(self._control_plane.kubeconfig()) as api:
                await api.get("/api/v1/namespaces/default/serviceaccounts/default")
        except client.ApiRefusedError as refused:
            return f"its controllers have not made the default service account: {refused}"
        return None


@final
class Kubelets:
    """The kubelet double of all nodes (kubelet.py), in a process of its own."""

    def __init__(self, control_plane: "control_planes.ControlPlane") -> None:
        kubeconfig = control_plane.kubeconfig(credentials.KUBELETS)
        self.process: processes.ChildProcess = control_plane.run.child(
            "kubelet-double",
            [sys.executable, "-m", kubelet.MODULE, "--kubeconfig", str(kubeconfig)],
            env={"PYTHONPATH": str(binaries.ROOT)},
        )
        control_plane.clients.append(self.process)

    async def start(self) -> None:
        """Start it; returns when it follows the pods."""
        self.process.start()
        await self.process.wait_ready(self._is_watching, within=_READY_S)

    def pause(self) -> None:
        """Freeze all kubelets: bound pods stay Pending, deleted ones Terminating."""
        self.process.pause()

    def resume(self) -> None:
        """Go on; what was missed is made up for."""
        self.process.resume()

    async def _is_watching(self) -> str | None:
        return None if kubelet.WATCHING in self.process.logs() else "it does not watch pods yet"


@final
class Kwok:
    """kwok, unmodified: plays the kubelets of the nodes that `nodes.create_kwok_nodes` makes.

    It makes them Ready, runs the pods that are bound to them and deletes those that
    are to go. The kubelet double leaves these nodes alone.
    """

    def __init__(self, control_plane: "control_planes.ControlPlane", program: "Path") -> None:
        kubeconfig = control_plane.kubeconfig(credentials.KUBELETS)
        self.process: processes.ChildProcess = control_plane.run.child(
            "kwok",
            [
                str(program),
                f"--kubeconfig={kubeconfig}",
                f"--config={_KWOK_STAGES}",
                f"--manage-nodes-with-annotation-selector={nodes.KWOK_ANNOTATION}=fake",
                # No leases: the controller that would judge them does not run.
                "--node-lease-duration-seconds=0",
                f"--server-address=127.0.0.1:{ports.free_port()}",
            ],
            env={"HOME": str(control_plane.run.scratch)},
        )

    async def start(self) -> None:
        """Start it; the first node that becomes Ready shows that it works."""
        self.process.start()


@final
class KubeScheduler:
    """The stock scheduler with a KubeSchedulerConfiguration of the caller.

    Two fields are filled in where the caller leaves them out: `clientConnection.kubeconfig`, and
    `leaderElection.leaderElect: false`, which costs 15 s at a restart after a kill.
    """

    def __init__(
        self,
        control_plane: "control_planes.ControlPlane",
        *,
        configuration: str = STOCK_SCHEDULER,
        name: str = "kube-scheduler",
        environment: "Mapping[str, str] | None" = None,
    ) -> None:
        """`name` names the log file; a second scheduler of the same run needs another."""
        self._control_plane = control_plane
        self._configuration_path = control_plane.run.directory / f"{name}.yaml"
        port = ports.free_port()
        self.url = f"https://127.0.0.1:{port}"
        self._ready = polling.https_probe(f"{self.url}/readyz", ca_file=control_plane.ca_file)
        keys = control_plane.credentials
        self.process: processes.ChildProcess = control_plane.run.child(
            name,
            [
                str(control_plane.programs.kube_scheduler),
                f"--config={self._configuration_path}",
                "--bind-address=127.0.0.1",
                f"--secure-port={port}",
                f"--tls-cert-file={keys.serving.certificate}",
                f"--tls-private-key-file={keys.serving.key}",
                # Metrics without a token, besides what may be read so by default.
                "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
            ],
            env=environment,
        )
        control_plane.clients.append(self.process)
        self.configure(configuration)

    def configure(self, configuration: str) -> None:
        """Replace the configuration; a running scheduler takes it up at its next start."""
        document = yaml.safe_load(configuration)
        if not isinstance(document, dict) or document.get("kind") != "KubeSchedulerConfiguration":
            raise AssertionError(f"not a KubeSchedulerConfiguration:\n{configuration}")
        connection = document.setdefault("clientConnection", {})
        connection.setdefault(
            "kubeconfig", str(self._control_plane.kubeconfig(credentials.SCHEDULER))
        )
        document.setdefault("leaderElection", {}).setdefault("leaderElect", False)
        self._configuration_path.write_text(yaml.safe_dump(document), encoding="utf-8")

    async def start(self) -> None:
        """Start it; returns when its informers have synced."""
        self.process.start()
        await self.process.wait_ready(self._ready, within=_READY_S)

    async def stop(self) -> None:
        await self.process.terminate()

    def kill9(self) -> None:
        self.process.kill9()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    def logs(self) -> str:
        return self.process.logs()
