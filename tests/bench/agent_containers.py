"""From a pod's binding to the first line of its container, on a real kubelet and containerd.

Pods with a time slice and pods without devices take turns on the node of `tests/cluster/node`, bound by an
administrator as our server binds: a Binding with the devices in an annotation. The container's runtime dates
its first line, to less than a millisecond. Needs root, and the programs that `make cluster-test` builds.

Correct: every pod with a slice sees the environment and the one device file of its annotation.
"""

import contextlib
import datetime as dt
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from api.annotations import encode_devices
from api.names import API_VERSION, ASSIGNMENT_ANNOTATION, DEVICES_ANNOTATION, UnitId
from manifests import constants
from manifests.install.crds import build_crds
from simulator.node.nfd import node_feature_crd
from tests.bench.agent_node import ALL_ROLES, POOL, RESOURCE
from tests.cluster.environment import (
    binaries,
    client,
    control_plane,
    kubectl,
    nodes,
    pods,
    polling,
    processes,
    server_process,
)
from tests.cluster.node.environment import paths, real_node
from tests.cluster.node.stories.devices import NodeDevices
from tests.support import ports

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NAMESPACE: Final = "bench"
DEVICES: Final = 8
SLICES: Final = 8
_API: Final = f"/apis/{API_VERSION}"
_CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_SHOW: Final = "echo $GPU_UNITS; ls /dev | grep -c '^nvidia[0-9]'; exec sleep 100000"


def why_not() -> str:
    """Say why there can be no real kubelet here; nothing where there can."""
    if os.geteuid() != 0:
        return "it runs containers, and needs root"
    built = binaries.ROOT / "build" / "kubernetes" / binaries.kubernetes_version()
    if not (built / "kubelet").exists():
        return "there is no kubelet in build/kubernetes: make cluster-test builds one"
    try:
        real_node.refuse_unfit_machine(user=0, kubelet_directory=paths.KUBELET_DEFAULT_ROOT)
    except AssertionError as error:
        return str(error)
    return ""


async def seconds_to_start(pairs: int) -> tuple[list[float], list[float]]:
    """Return how long pods with a slice took, and pods without devices, in turn."""
    with_devices: list[float] = []
    without: list[float] = []
    async with _a_bench() as bench:
        for number in range(pairs + 1):
            # Who begins is another each time; the first pair warms up.
            for is_first in (True, False):
                has_device = is_first == (number % 2 == 0)
                took_s = await bench.start_pod(number, has_device=has_device)
                if number:
                    (with_devices if has_device else without).append(took_s)
    return with_devices, without


@final
class _Bench:
    """The node with our agent on it, and pods that are bound to it."""

    def __init__(
        self,
        api: client.ApiClient,
        node: real_node.RealNode,
        ctl: kubectl.Kubectl,
        devices: NodeDevices,
    ) -> None:
        self._api = api
        self._node = node
        self._kubectl = ctl
        self._devices = devices

    async def create_objects(self) -> None:
        """Create what the control plane would have."""
        await self._api.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
        await self._api.create(accounts, {"metadata": {"name": "default"}})
        ours = {"metadata": {"name": constants.DEFAULT_NAMESPACE}}
        await self._api.create("/api/v1/namespaces", ours)
        for crd in (*build_crds(), node_feature_crd()):
            await self._api.create(_CRDS, crd)
        await polling.eventually(self._are_served, what="our kinds are served", within=30)
        allocation = {"mode": "TimeSlice", "slicesPerDevice": SLICES}
        await self._create("gpupools", "GPUPool", POOL, spec={"allocation": allocation})
        await self._create("gpunodeinventories", "GPUNodeInventory", self._node.name)
        for device in self._devices.devices:
            name = f"{self._node.name}-{device.minor}"
            meta = {"annotations": {ASSIGNMENT_ANNOTATION: POOL}}
            await self._create("gpudevices", "GPUDevice", name, metadata=meta)
            status = {
                "nodeName": self._node.name,
                "uuid": device.uuid,
                "poolRef": {"name": POOL},
            }
            await self._api.patch(f"{_API}/gpudevices/{name}/status", {"status": status})

    async def _create(
        self, plural: str, kind: str, name: str, metadata: Any = None, **more: Any
    ) -> None:
        meta = {"name": name, **(metadata or {})}
        body = {"apiVersion": API_VERSION, "kind": kind, "metadata": meta, **more}
        await self._api.create(f"{_API}/{plural}", body)

    async def _are_served(self) -> bool:
        with contextlib.suppress(client.ApiRefusedError):
            for plural in ("gpupools", "gpudevices", "gpunodeinventories"):
                await self._api.get(f"{_API}/{plural}")
            return True
        return False

    async def is_offered(self) -> bool:
        """Say whether kubelet has all slices."""
        status = (await self._api.get(f"{nodes.NODES}/{self._node.name}"))["status"]
        return bool(status["allocatable"].get(RESOURCE) == str(DEVICES * SLICES))

    async def start_pod(self, number: int, *, has_device: bool) -> float:
        """Bind a pod and return the seconds until its container's first line."""
        name = f"{'with' if has_device else 'without'}-{number}"
        device = self._devices.devices[number % DEVICES]
        unit = UnitId(f"{device.uuid}::{number // DEVICES}")
        body = self._node.a_pod(
            name,
            ["sh", "-c", _SHOW],
            limits={RESOURCE: 1} if has_device else None,
            nodeName=None,
            schedulerName="nobody",
            automountServiceAccountToken=False,
        )
        await self._api.create(pods.collection(NAMESPACE), body)
        meta: dict[str, Any] = {"name": name}
        if has_device:
            meta["annotations"] = {DEVICES_ANNOTATION: encode_devices({"main": (unit,)})}
        target = {"apiVersion": "v1", "kind": "Node", "name": self._node.name}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": meta, "target": target}
        bound_at = time.time_ns() / 1e9
        await self._api.create(f"{pods.collection(NAMESPACE)}/{name}/binding", binding)
        await pods.wait_for_pod(self._api, NAMESPACE, name, pods.is_running)
        done = await self._kubectl("logs", "-n", NAMESPACE, name, "--timestamps")
        (at, units), (_, files) = (line.split(" ", 1) for line in done.stdout.splitlines()[:2])
        expected = (unit, "1") if has_device else ("", "0")
        assert (units, files) == expected, f"{name} has {units!r} and {files} device files"
        return _seconds(at) - bound_at


@contextlib.asynccontextmanager
async def _a_bench() -> "AsyncIterator[_Bench]":
    logs = binaries.ROOT / "build" / "bench-node-logs"
    with processes.Run(logs) as run:
        plane = control_plane.ControlPlane(run, binaries.find_binaries(_quietly))
        await plane.start()
        ctl = kubectl.Kubectl(plane.programs.kubectl, plane, run.directory / "kubectl-cache")
        node = real_node.RealNode(plane, binaries.find_node_programs(_quietly), ctl)
        devices: NodeDevices | None = None
        try:
            await node.start()
            devices = NodeDevices(Path(run.scratch) / "devices", DEVICES)
            await devices.make_devices(node)
            async with client.open_client(plane.kubeconfig()) as api:
                bench = _Bench(api, node, ctl, devices)
                await bench.create_objects()
                agent = run.child("node-agent", _command(plane, node, devices))
                agent.start()
                await polling.eventually(bench.is_offered, what="all slices", within=60)
                yield bench
                await agent.terminate()
        finally:
            await node.close()
            if devices is not None:
                devices.remove()


def _command(
    plane: control_plane.ControlPlane, node: real_node.RealNode, devices: NodeDevices
) -> list[str]:
    given = {
        "node": node.name,
        "roles": ALL_ROLES,
        "kubeconfig": plane.kubeconfig(),
        "plugins-directory": node.plugins_directory,
        "pod-resources-directory": node.pod_resources_directory,
        "run-directory": node.run_directory,
        "cdi-directory": node.cdi_directory,
        "dev-root": node.dev_directory,
        "sysfs": devices.sysfs,
        "procfs": devices.procfs,
        "host": "127.0.0.1",
        "port": ports.free_port(),
    }
    flags = [f"--{name}={value}" for name, value in given.items()]
    return [*server_process.installed_command(), "agent", *flags]


def _seconds(stamp: str) -> float:
    """Read RFC 3339 with nanoseconds."""
    whole, _, fraction = stamp.removesuffix("Z").partition(".")
    return dt.datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{fraction or 0}")


def _quietly(_line: str) -> None:
    """What is built is told elsewhere."""
