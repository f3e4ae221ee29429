"""kubelet, unmodified, of one node."""

import contextlib
from typing import TYPE_CHECKING, Any, final

import yaml

from tests.cluster.environment import polling
from tests.cluster.node.environment import cluster_dns, numa, paths
from tests.support import ports

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from tests.cluster.environment import binaries, control_plane

_READY_S = 120


@final
class Kubelet:
    """Registers its node at the first start, and finds its pods again at the next ones."""

    def __init__(
        self,
        control_plane: "control_plane.ControlPlane",
        programs: "binaries.NodePrograms",
        *,
        node_name: str,
        labels: "Mapping[str, str]",
    ) -> None:
        self._healthz_port = ports.free_port()
        self._configuration = control_plane.run.directory / "kubelet.yaml"
        self._document = _configuration(control_plane, healthz_port=self._healthz_port)
        kubeconfig = control_plane.kubeconfig(f"system:node:{node_name}", groups=["system:nodes"])
        argv = [
            str(programs.kubelet),
            f"--config={self._configuration}",
            f"--kubeconfig={kubeconfig}",
            f"--hostname-override={node_name}",
            f"--root-dir={paths.KUBELET_ROOT}",
            f"--cert-dir={paths.KUBELET_ROOT / 'pki'}",
            f"--node-labels={','.join(f'{key}={value}' for key, value in labels.items())}",
            "--v=2",
        ]
        self.process = control_plane.run.child("kubelet", argv)
        self._among_numa_nodes = control_plane.run.child(
            "kubelet-numa", numa.argv_with_numa_nodes(argv)
        )

    async def start(self) -> None:
        """Start it; returns when it is healthy, which is before its node is Ready."""
        self._configuration.write_text(yaml.safe_dump(self._document), encoding="utf-8")
        self.process.start()
        healthy = polling.https_probe(
            f"http://127.0.0.1:{self._healthz_port}/healthz", ca_file=None
        )
        await self.process.wait_ready(healthy, within=_READY_S)

    async def stop(self) -> None:
        """End it the orderly way; containers run on."""
        await self.process.terminate()

    def kill9(self) -> None:
        self.process.kill9()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    @contextlib.asynccontextmanager
    async def aligning(
        self, policy: str, scope: str = "container", **more: Any
    ) -> "AsyncIterator[None]":
        """Run it inside with a topology policy, among two NUMA nodes; restarts it twice.

        `more` goes over its configuration.
        """
        usual, document = self.process, self._document
        await self.stop()
        self.process = self._among_numa_nodes
        self._document = document | {
            "topologyManagerPolicy": policy,
            "topologyManagerScope": scope,
            **more,
        }
        _forget_cpus()
        try:
            await self.start()
            yield
        finally:
            self.kill9()
            _forget_cpus()
            self.process, self._document = usual, document
            await self.start()

    def logs(self) -> str:
        return self.process.logs()


def _forget_cpus() -> None:
    """kubelet does not start with the state of another CPU manager policy."""
    (paths.KUBELET_ROOT / "cpu_manager_state").unlink(missing_ok=True)


def _configuration(
    control_plane: "control_plane.ControlPlane", *, healthz_port: int
) -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{paths.CONTAINERD_SOCKET}",
        "port": ports.free_port(),
        "healthzPort": healthz_port,
        # As clusters have it: the API server says who a user is, and what they may do here.
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(control_plane.ca_file)},
        },
        "authorization": {"mode": "Webhook"},
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{paths.NAME}",
        "failSwapOn": False,
        # A test machine's disk may be nearly full, and no test is about eviction.
        "evictionHard": {
            "memory.available": "1Mi",
            "nodefs.available": "1Mi",
            "imagefs.available": "1Mi",
        },
        "imageGCHighThresholdPercent": 100,
        "makeIPTablesUtilChains": False,
        "clusterDNS": [cluster_dns.ADDRESS],
        "clusterDomain": cluster_dns.DOMAIN,
        "podLogsDir": str(paths.POD_LOGS),
        "volumePluginDir": str(paths.STATE / "volume-plugins"),
        # A change of what a device plugin offers is on the node within it; the default is 10 s.
        "nodeStatusUpdateFrequency": "1s",
        "nodeStatusReportFrequency": "10s",
        # 10 s doubling to 300 s otherwise.
        "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},
    }
