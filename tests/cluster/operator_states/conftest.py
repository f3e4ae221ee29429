"""A server with `node_software` on, and nodes of two systems with a GPU: most run containers, and two virtual machines.

All nodes but the first of each system have a label that keeps the operands off: a machine with two cores plays the pods of
the others. Of these the first of a system is open, and the others have the startup taint of autoscaling and a pool's taint.
"""

import asyncio
import functools
import secrets
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from api.kinds.nvidia.sandbox_operands import WorkloadType
from api.names import AGENT_NOT_READY_TAINT, OPERANDS_LABEL, WORKLOAD_CONFIG_LABEL
from manifests.nvidia.operator_crds import build_operator_crds
from manifests.yaml import render
from reconciler.node_software.objects import RESOURCES
from simulator.node.nfd import node_feature_crd
from tests.cluster.environment import client, components, definitions, nodes, polling
from tests.cluster.environment.audit import AuditLog, Write
from tests.cluster.environment.server_process import ServerProcess, with_image
from tests.cluster.system.installation import NAMESPACE, SERVER_USER, GpuSystem, remove
from tests.support import ports
from tests.support.published_crds import published_crd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.environment.kubectl import Kubectl

Json = dict[str, Any]
ObjectName = tuple[str, str]

DAEMON_SETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
MONITORS = "servicemonitors.monitoring.coreos.com"
PLURALS = frozenset(item.plural for item in RESOURCES.values())
WRITTEN = PLURALS | {
    "nodes",
    *(f"{kind}{part}" for kind in ("clusterpolicies", "nvidiadrivers") for part in ("", "/status")),
}
ALL, RUNNING, MACHINES = 60, 4, 2
"""Nodes, those of them that run containers by operands, and those that run virtual machines."""
POOL_TAINT = {"key": "test.example.com/pool", "effect": "NoSchedule"}
TAINTS = [{"key": AGENT_NOT_READY_TAINT, "effect": "NoSchedule"}, POOL_TAINT]
FEATURE = "feature.node.kubernetes.io/"
IMAGES = {
    f"{name}_IMAGE": f"registry.test/{name.lower().replace('_', '-')}:1"
    for name in (
        "CC_MANAGER",
        "CONTAINER_TOOLKIT",
        "DCGM",
        "DCGM_EXPORTER",
        "DEVICE_PLUGIN",
        "DRIVER",
        "DRIVER_MANAGER",
        "GFD",
        "KATA_SANDBOX_DEVICE_PLUGIN",
        "MIG_MANAGER",
        "NODE_STATUS_EXPORTER",
        "SANDBOX_DEVICE_PLUGIN",
        "VALIDATOR",
        "VFIO_MANAGER",
        "VGPU_DEVICE_MANAGER",
        "VGPU_MANAGER",
    )
}
_LEASE = {"duration_s": 60}


@dataclass(frozen=True, kw_only=True)
class System:
    """What a node says about itself."""

    name: str
    version: str
    kernel: str
    runtime: str
    workload: WorkloadType | None = None
    """What an administrator chose for it."""
    has_features: bool = True
    """Node Feature Discovery runs there."""

    @property
    def labels(self) -> dict[str, str]:
        release = f"{FEATURE}system-os_release"
        chosen = {WORKLOAD_CONFIG_LABEL: self.workload.value} if self.workload else {}
        if not self.has_features:
            return chosen
        return chosen | {
            f"{FEATURE}pci-10de.present": "true",
            f"{FEATURE}kernel-version.full": self.kernel,
            f"{release}.ID": self.name,
            f"{release}.VERSION_ID": self.version,
            f"{release}.VERSION_ID.major": self.version.partition(".")[0],
            "nvidia.com/mig.capable": "true",
        }

    @property
    def status(self) -> Json:
        info = {"containerRuntimeVersion": self.runtime, "kernelVersion": self.kernel}
        return {"status": {"nodeInfo": info}}


UBUNTU = System(
    name="ubuntu", version="22.04", kernel="5.15.0-140-generic", runtime="containerd://1.7.27"
)
RHEL = System(name="rhel", version="9.4", kernel="5.14.0-427.el9.x86_64", runtime="cri-o://1.31.4")
NOBLE = System(
    name="ubuntu", version="24.04", kernel="6.8.0-60-generic", runtime="containerd://2.1.4"
)


@dataclass
class NodeSoftware:
    """The server, and what the tests ask the API server."""

    control_plane: "ControlPlane"
    kubectl: "Kubectl"
    server: ServerProcess
    systems: dict[str, System] = field(default_factory=dict)
    """By node."""

    @property
    def running(self) -> list[str]:
        return list(self.systems)[:RUNNING]

    @property
    def machines(self) -> list[str]:
        """Nodes of virtual machines."""
        return [name for name, system in self.systems.items() if system.workload]

    @functools.cached_property
    def audit(self) -> AuditLog:
        return self.control_plane.audit


async def written(software: NodeSoftware, mark: int) -> list[Write]:
    """Return what the server wrote for node software: neither its lease, nor the inventories of nodes, which change while pods come."""
    found = await software.audit.writes(mark, user=SERVER_USER)
    return [item for item in found if item.resource in WRITTEN]


async def until_idle(software: NodeSoftware) -> None:
    async def is_idle() -> bool:
        mark = await software.audit.mark()
        await asyncio.sleep(2)
        moving = Counter(item.resource for item in await written(software, mark))
        assert not moving, f"{moving}"
        return True

    await polling.eventually(is_idle, what="a server at rest")


async def join(
    api: client.ApiClient,
    prefix: str,
    system: System,
    count: int,
    *,
    with_operands: int,
    taints: "Sequence[Json]" = TAINTS,
) -> list[str]:
    """Add nodes as kubelet and then Node Feature Discovery do, with taints but for the first; return their names."""
    names = await nodes.create_kwok_nodes(api, count, prefix=prefix)
    slots = asyncio.Semaphore(32)

    async def describe(name: str, number: int) -> None:
        off = {} if number < with_operands else {OPERANDS_LABEL: "false"}
        async with slots:
            await api.patch(f"{nodes.NODES}/{name}/status", system.status)
            body: Json = {"metadata": {"labels": system.labels | off}}
            if number:
                body["spec"] = {"taints": taints}
            await api.patch(f"{nodes.NODES}/{name}", body)

    async with asyncio.TaskGroup() as group:
        for number, name in enumerate(names):
            group.create_task(describe(name, number))
    return names


class Installation:
    """Definitions, rights, server, scheduler and nodes; taken away at the end."""

    def __init__(self, control_plane: "ControlPlane", kubectl: "Kubectl") -> None:
        self._control_plane = control_plane
        self._kubectl = kubectl
        self._manifests = ""
        self._processes: list[Any] = []
        self._nodes: list[str] = []

    async def install(self) -> NodeSoftware:
        found = await self.prepare()
        await asyncio.gather(found.server.start(), self._join(found))
        # Labels and inventories of nodes, which come without any policy.
        await until_idle(found)
        return found

    async def prepare(self) -> NodeSoftware:
        """Install all but the nodes, and do not start the server."""
        name, port = f"node-software-{secrets.token_hex(2)}", ports.free_port()
        settings = {
            "listen": {"host": "127.0.0.1", "port": port},
            "tls": {"ip_addresses": ["127.0.0.1"]},
            "drain_s": 0.5,
            "leadership": _LEASE,
            "bootstrap": {"operands": "External"},
            "node_agent": {"enabled": False},
            "node_software": {"enabled": True, "images": IMAGES},
        }
        file = self._control_plane.run.directory / "node-software.render.yaml"
        file.write_text(yaml.safe_dump(with_image(settings)))
        targets = ("crds", "rbac", "policy")
        rendered = await asyncio.gather(
            *(GpuSystem.render(target, "--settings", str(file)) for target in targets)
        )
        self._manifests = render([node_feature_crd()]) + "".join(rendered)
        await self._kubectl(
            *("apply", "--server-side", "--validate=strict", "-f", "-"),
            stdin=self._manifests,
            timeout_s=120,
        )
        await definitions.until_served(self._kubectl, build_operator_crds())
        account = await self._control_plane.service_account_kubeconfig(
            NAMESPACE, "gpu-control-plane"
        )
        server = ServerProcess(
            self._control_plane.run,
            settings=settings,
            kubeconfig=account,
            port=port,
            name=name,
        )
        self._processes.append(server.process)
        scheduler = components.KubeScheduler(self._control_plane, name=f"{name}-scheduler")
        self._processes.append(scheduler.process)
        await scheduler.start()
        return NodeSoftware(self._control_plane, self._kubectl, server)

    async def add_nodes(
        self, software: NodeSoftware, system: System, prefix: str, count: int, **how: Any
    ) -> None:
        """Let nodes `join`, as it says, and remember them."""
        self._nodes += nodes.node_names(nodes.KWOK_PREFIX + prefix, count)
        async with client.open_client(self._control_plane.kubeconfig()) as api:
            for name in await join(api, prefix, system, count, **how):
                software.systems[name] = system

    async def _join(self, software: NodeSoftware) -> None:
        kinds = ((UBUNTU, "ubuntu"), (RHEL, "rhel"))
        vgpu = replace(UBUNTU, workload=WorkloadType.VM_VGPU)
        passthrough = replace(RHEL, workload=WorkloadType.VM_PASSTHROUGH)
        running = RUNNING // len(kinds)
        remaining = (ALL - RUNNING - MACHINES) // len(kinds)
        plan = [
            *((system, f"soft-{name}", running, running) for system, name in kinds),
            (vgpu, "soft-vgpu", 1, 1),
            (passthrough, "soft-passthrough", 1, 1),
            *((system, f"soft-many-{name}", remaining, 0) for system, name in kinds),
        ]
        for system, prefix, count, running in plan:
            await self.add_nodes(software, system, prefix, count, with_operands=running)

    async def uninstall(self) -> None:
        for process in reversed(self._processes):
            if process.running:
                await process.terminate()
        await remove(self._control_plane, self._kubectl, self._manifests)
        async with client.open_client(self._control_plane.kubeconfig()) as api:
            await nodes.delete_nodes(api, self._nodes)


@pytest.fixture
async def monitors(kubectl: Any) -> AsyncIterator[Json]:
    """The definition of ServiceMonitor, which a test applies."""
    yield published_crd(MONITORS)
    await kubectl("delete", "--ignore-not-found", "crd", MONITORS)
