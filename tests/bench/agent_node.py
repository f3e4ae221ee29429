"""A node for the agent that is measured: a driver, a PCI bus, kubelet's double, an API server.

kubelet's double runs in the measuring process, the API server and the agent have processes of their own.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
import time
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import aiohttp
import msgspec

from api.names import API_VERSION, ASSIGNMENT_ANNOTATION, RESOURCE_PREFIX
from api.nodefiles.node_devices_file import DEVICES_FILE, NodeDevice, NodeDevices
from api.nodefiles.poolconfig import CONFIG_KEY, ConfiguredDevice, PoolConfig
from http_edge.system_clock import SystemClock
from kube.client import KubeClient
from kube.config.connection import StaticConnection
from kube.resources import GPU_DEVICES, GPU_NODE_INVENTORIES, GPU_POOLS, NODES
from tests.bench.agent_kubelet import AllocationState
from tests.bench.processes import child, free_port, make_certificates
from tests.bench.report import ROOT
from tests.support.kubelet.plugins import PluginsOfKubelet
from tests.support.kubelet.pod_resources import PodResourcesServer
from tests.support.nvml.library import FakeNvml, a_device

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

NODE: Final = "n1"
POOL: Final = "bench"
RESOURCE: Final = RESOURCE_PREFIX + POOL
ALL_ROLES: Final = "inventory,health,mig,device-plugin"
PLUGIN: Final = "device-plugin"
GRACE_S: Final = 60.0
POLL_S: Final = 0.001
_BYTECODE: Final = ROOT / "build" / "bytecode"
"""Modules compiled, as the image has them: a process that compiles them is larger and later."""


@final
class Node:
    """Everything but the agent."""

    def __init__(self, folder: Path, url: str, *, devices: int, slices: int) -> None:
        self.folder = folder
        self.url = url
        self.units = devices * slices
        self.slices = slices
        self.devices = [a_device(number) for number in range(devices)]
        self.driver = FakeNvml(folder / "root/usr/lib/x86_64-linux-gnu", *self.devices)
        self.allocation_state = AllocationState(RESOURCE)
        self.kubelet = PluginsOfKubelet(folder / "plugins")
        self.pod_resources = PodResourcesServer(folder / "pods", self.allocation_state)
        self.pod_resources.is_limited = False
        self.run_directory = folder / "run"
        self.run_directory.mkdir()
        self._healths = 0
        for device in self.devices:
            function = folder / "sys/bus/pci/devices" / device.address.lower()[4:]
            function.mkdir(parents=True)
            facts = {"vendor": "0x10de", "device": "0x2330", "class": "0x030200", "numa_node": "0"}
            for name, text in facts.items():
                (function / name).write_text(f"{text}\n", encoding="ascii")
            (function / "driver").symlink_to("/sys/bus/pci/drivers/nvidia")
        (folder / "dev").mkdir()
        shared = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
        for name in (*(f"nvidia{device.minor}" for device in self.devices), *shared):
            (folder / "dev" / name).symlink_to("/dev/null")
        (folder / "proc").mkdir()

    def flags(self, roles: str, port: int) -> list[str]:
        """Return the agent's command line."""
        given = {
            "node": NODE,
            "roles": roles,
            "plugins-directory": self.kubelet.directory,
            "pod-resources-directory": self.pod_resources.directory,
            "run-directory": self.run_directory,
            "cdi-directory": self.folder / "cdi",
            "driver-root": self.folder / "root",
            "dev-root": self.folder / "dev",
            "sysfs": self.folder / "sys",
            "procfs": self.folder / "proc",
            "host": "127.0.0.1",
            "port": port,
        }
        if roles == PLUGIN:
            given["config"] = self.folder / CONFIG_KEY
        return [f"--{name}={value}" for name, value in given.items()]

    def write_pool(self) -> None:
        """Write what the control plane mounts into a pool's plugin, and what the node's agent says."""
        devices = [ConfiguredDevice(uuid=device.uuid, numa_node=0) for device in self.devices]
        config = PoolConfig(
            version="v1", pool=POOL, resource=RESOURCE, slices=self.slices, nodes={NODE: devices}
        )
        (self.folder / CONFIG_KEY).write_bytes(msgspec.json.encode(config))
        self.publish_health()

    def publish_health(self, faulty: str = "") -> None:
        """Say as the node's agent does which device has a fault."""
        devices = [
            NodeDevice(
                uuid=device.uuid,
                address=device.address.lower()[4:],
                nodes=[f"/dev/nvidia{device.minor}"],
                is_healthy=device.uuid != faulty,
                reason="Xid79" if device.uuid == faulty else "",
            )
            for device in self.devices
        ]
        fresh = self.run_directory / f"{DEVICES_FILE}.new"
        fresh.write_bytes(msgspec.json.encode(NodeDevices(version="v1", devices=devices)))
        fresh.replace(self.run_directory / DEVICES_FILE)

    async def create_objects(self, client: KubeClient) -> None:
        """Create what the control plane has: the node, its inventory, a pool of all its devices."""
        for kind, resource in (("Node", NODES), ("GPUNodeInventory", GPU_NODE_INVENTORIES)):
            version = "v1" if kind == "Node" else API_VERSION
            body = {"apiVersion": version, "kind": kind, "metadata": {"name": NODE}}
            await client.create(resource, body)
        allocation: dict[str, Any] = {"mode": "Exclusive"}
        if self.slices > 1:
            allocation = {"mode": "TimeSlice", "slicesPerDevice": self.slices}
        pool = {"metadata": {"name": POOL}, "spec": {"allocation": allocation}}
        await client.create(GPU_POOLS, {"apiVersion": API_VERSION, "kind": "GPUPool", **pool})
        for device in self.devices:
            name = f"{NODE}-{device.minor}"
            meta = {"name": name, "annotations": {ASSIGNMENT_ANNOTATION: POOL}}
            body = {"apiVersion": API_VERSION, "kind": "GPUDevice", "metadata": meta}
            await client.create(GPU_DEVICES, body)
            status = {"nodeName": NODE, "uuid": device.uuid, "poolRef": {"name": POOL}}
            await client.merge_patch(
                GPU_DEVICES, {"status": status}, name=name, subresource="status"
            )

    def faulty(self) -> int:
        """Return how many units kubelet knows to be unhealthy."""
        return self.kubelet.capacity(RESOURCE) - self.kubelet.allocatable(RESOURCE)

    def is_served(self) -> bool:
        """Say whether kubelet has all units, healthy or not."""
        return self.kubelet.capacity(RESOURCE) == self.units


@final
class AgentProcess:
    """A running agent."""

    def __init__(self, process: subprocess.Popen[str], port: int, log: Path) -> None:
        self.process = process
        self.port = port
        self._log = log

    @property
    def pid(self) -> int:
        return self.process.pid

    async def wait(self, holds: "Callable[[], bool]", what: str) -> float:
        """Wait until it holds; return the seconds that it took, to the millisecond."""
        began = time.perf_counter()
        while not holds():
            if self.process.poll() is not None or time.perf_counter() - began > GRACE_S:
                text = self._log.read_text(encoding="utf-8")[-3000:]
                raise AssertionError(f"{what}: not so; the agent's log ends with\n{text}")
            await asyncio.sleep(POLL_S)
        return time.perf_counter() - began

    async def ask(self, session: aiohttp.ClientSession, path: str) -> int:
        """Ask a probe as kubelet and Prometheus do; return the status."""
        async with session.get(f"http://127.0.0.1:{self.port}{path}") as answer:
            await answer.read()
            return answer.status

    async def wait_ready(self) -> None:
        async with aiohttp.ClientSession() as session, asyncio.timeout(GRACE_S):
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    if await self.ask(session, "/readyz") == 200:
                        return
                await asyncio.sleep(0.02)

    def stop(self) -> None:
        """End it as kubelet does."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(timeout=GRACE_S) == 0, self._log.read_text("utf-8")[-3000:]


@contextmanager
def running_agent(node: Node, roles: str) -> "Iterator[AgentProcess]":
    """Start the agent; it is not ready yet."""
    port, log = free_port(), node.folder / "agent.log"
    host, _, api_port = node.url.removeprefix("https://").partition(":")
    env = _environment() | {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": api_port}
    arguments = (str(node.folder), "agent", *node.flags(roles, port))
    with (
        log.open("wb") as lines,
        child("tests.bench.agent_process", *arguments, env=env, stderr=lines) as process,
    ):
        yield AgentProcess(process, port, log)


@asynccontextmanager
async def a_node(*, devices: int, slices: int) -> "AsyncIterator[tuple[Node, KubeClient]]":
    """Open a node without an agent, and a client of its API server."""
    # A socket's path may have 107 characters.
    with tempfile.TemporaryDirectory(prefix="gpu", dir="/tmp") as name:
        folder = Path(name)
        make_certificates(folder)
        (folder / "token").write_text("bench", encoding="ascii")
        options = ("--certificates", str(folder))
        with child("tests.bench.agent_api", *options, env=_environment()) as api:
            assert api.stdout is not None
            line = await asyncio.to_thread(api.stdout.readline)
            url = line.strip()
            trusted = StaticConnection(url, ssl_ca_cert=str(folder / "ca.crt"))
            node = Node(folder, url, devices=devices, slices=slices)
            await node.pod_resources.start()
            try:
                async with KubeClient(trusted, SystemClock()) as client, node.kubelet:
                    await node.create_objects(client)
                    yield node, client
            finally:
                await node.pod_resources.stop()


def _environment() -> dict[str, str]:
    """Return the image's: modules are compiled, and there are no authorities but the cluster's own."""
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return kept | {
        "PYTHONPYCACHEPREFIX": str(_BYTECODE),
        "SSL_CERT_FILE": "/nonexistent",
        "SSL_CERT_DIR": "/nonexistent",
    }
