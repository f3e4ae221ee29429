"""The fake kubelet mounts inline volumes through a real CSI driver, and tells why one is not there."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent.csi.identity_service import IdentityService
from agent.csi.node_service import NodeService
from agent.csi.registration import RegisteredDriver
from agent.csi.volume_source import Absence, CacheVolume, NotThere
from agent.csi.volume_targets import VolumeTargets
from agent.problems.registry import ProblemRegistry
from api.cache_name import CacheName
from api.csi.names import CACHE_ATTRIBUTE, DRIVER_NAME, NAMESPACE_ATTRIBUTE
from api.foreign.core import Pod
from demo.node_caches import LinkedVolumes
from http_edge.system_clock import SystemClock
from kube.client import KubeClient
from kube.config.connection import StaticConnection
from kube.errors import NotFound
from kube.resources import EVENTS, NAMESPACES, PODS
from simulator.apiserver.server import InMemoryApiServer
from simulator.node.inline_volumes import InlineVolumes
from simulator.node.kubelet import FakeKubelet, register_node
from tests.component.agent.csi.driver import calls_of_driver
from tests.support.csi import A_DIGEST, StoreDouble
from tests.support.polling import until, until_async

NODE, NAMESPACE = "n1", "team-a"
LLAMA = CacheName(name="llama", namespace=NAMESPACE)
ATTRIBUTES = {CACHE_ATTRIBUTE: "llama", NAMESPACE_ATTRIBUTE: NAMESPACE}
PREFIX = 'MountVolume.SetUp failed for volume "cache" : '


@dataclass
class Node:
    client: KubeClient
    kubelet: FakeKubelet
    volumes: InlineVolumes
    store: StoreDouble = field(default_factory=StoreDouble)
    links: LinkedVolumes = field(default_factory=LinkedVolumes)

    @property
    def root(self) -> Path:
        return self.volumes.root(NODE)

    @property
    def pods(self) -> Path:
        return self.root / "pods"

    def add_cache(self, text: str = "kernel") -> None:
        content = self.root / "content"
        content.mkdir()
        (content / "kernel.cubin").write_text(text)
        self.store.caches[LLAMA] = CacheVolume(
            content=content, digest=A_DIGEST, has_shared_objects=False
        )

    @contextlib.asynccontextmanager
    async def driver(self) -> AsyncIterator[RegisteredDriver]:
        socket = self.root / "plugins" / "csi.sock"
        node = NodeService(NODE, self.store, VolumeTargets(self.pods, self.links), pods=self.pods)
        calls = calls_of_driver()
        driver = RegisteredDriver(
            socket,
            self.root / "plugins_registry",
            endpoint=str(socket),
            handlers=[IdentityService().handlers(calls), node.handlers(calls)],
            clock=SystemClock(),
            problems=ProblemRegistry(),
        )
        await driver.reconcile()
        try:
            yield driver
        finally:
            await driver.close()

    async def create_pod(self) -> None:
        csi = {"driver": DRIVER_NAME, "volumeAttributes": ATTRIBUTES}
        spec = {
            "nodeName": NODE,
            "containers": [{"name": "main", "image": "i"}],
            "volumes": [{"name": "cache", "csi": csi}, {"name": "tmp", "emptyDir": {}}],
        }
        await self.client.create(
            PODS,
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "worker", "namespace": NAMESPACE},
                "spec": spec,
            },
        )

    async def pod(self) -> Pod:
        return await self.client.get(PODS, Pod, "worker", namespace=NAMESPACE)

    async def is_running(self) -> bool:
        return (await self.pod()).status.phase == "Running"

    async def notes(self) -> list[str]:
        found = (await self.client.list_(EVENTS, dict[str, Any], namespace=NAMESPACE)).items
        return [item["note"] for item in found if item["reason"] == "FailedMount"]


@pytest.fixture
def folder() -> Iterator[Path]:
    # A socket's path may have 107 characters.
    with tempfile.TemporaryDirectory(prefix="gpu") as name:
        yield Path(name)


@pytest.fixture
async def node(server: InMemoryApiServer, folder: Path) -> AsyncIterator[Node]:
    clock, volumes = SystemClock(), InlineVolumes(nodes=folder)
    volumes.root(NODE).joinpath("pods").mkdir(parents=True)
    volumes.root(NODE).joinpath("plugins_registry").mkdir()
    async with KubeClient(StaticConnection(server.url), clock) as client:
        await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        await register_node(client, NODE, {})
        kubelet = FakeKubelet(client, clock, volumes=volumes)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(kubelet.run())
            yield Node(client, kubelet, volumes)
            running.cancel()


async def test_a_pod_starts_once_its_cache_is_there_and_sees_its_files(node: Node):
    node.store.caches[LLAMA] = NotThere(absence=Absence.NOT_READY, reason="it is being extracted")
    async with node.driver() as driver:
        await node.create_pod()
        await until_async(lambda: _is_reported(node))
        assert await node.notes() == [
            f"{PREFIX}rpc error: code = Unavailable desc = {LLAMA}: it is being extracted"
        ]
        assert not await node.is_running()
        node.add_cache()
        await until_async(node.is_running)
        assert driver.is_registered
        mounted = node.volumes.mount_of(await node.pod(), "cache")
        assert [path.name for path in mounted.iterdir()] == ["kernel.cubin"]
        assert [mount.mount_point for mount in node.links.mounts()] == [str(mounted)]
        await node.client.delete(PODS, "worker", namespace=NAMESPACE)
        await until_async(lambda: _is_gone(node))
        assert list(node.pods.iterdir()) == []
        assert node.links.mounts() == ()


async def test_a_pod_that_has_finished_gives_its_cache_back(node: Node):
    node.add_cache()
    async with node.driver():
        await node.create_pod()
        await until_async(node.is_running)
        await node.kubelet.finish(await node.pod())
        await until(lambda: not list(node.pods.iterdir()))
        assert node.links.mounts() == ()


async def test_without_a_driver_a_pod_waits_for_it(node: Node):
    node.add_cache()
    await node.create_pod()
    await until_async(lambda: _is_reported(node))
    assert await node.notes() == [
        f"{PREFIX}driver name csi.gkm.io not found in the list of registered CSI drivers"
    ]
    async with node.driver():
        await until_async(node.is_running)


async def test_a_pod_stays_until_its_driver_has_unmounted(node: Node):
    node.add_cache()
    async with node.driver():
        await node.create_pod()
        await until_async(node.is_running)
    await node.client.delete(PODS, "worker", namespace=NAMESPACE)
    pod = await node.pod()
    assert node.volumes.mount_of(pod, "cache").is_dir()
    async with node.driver():
        await until_async(lambda: _is_gone(node))


async def _is_reported(node: Node) -> bool:
    return bool(await node.notes())


async def _is_gone(node: Node) -> bool:
    with contextlib.suppress(NotFound):
        await node.pod()
        return False
    return True
