"""Kernel caches on the node of real containers: our server, our agent with its CSI driver, and a registry with TLS.

The agent is a process with the roles of the DaemonSet that caches need, and keeps its store below the node's state.
Content that nothing needs goes after a second here, not after five minutes.
"""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cluster.environment import binaries, registries
from tests.cluster.node.caches.cache_images import ALIEN, CacheImage, CacheImages, SigningKey
from tests.cluster.node.caches.caches import Caches
from tests.cluster.node.caches.node_oracle import STORE
from tests.cluster.node.environment import paths
from tests.cluster.node.stories.agents import Agent
from tests.cluster.node.stories.devices import NodeDevices
from tests.cluster.system.installation import GpuSystem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from tests.cluster.environment.client import ApiClient
    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.environment.kubectl import Kubectl
    from tests.cluster.environment.processes import Run
    from tests.cluster.environment.registries import RunningRegistry
    from tests.cluster.node.environment.real_node import RealNode

DEVICES = 4
ROLES = "inventory,device-plugin,caches,csi"
GRACE_S = 1
IMAGES = ("llama:1", "llama:2", "llama:3", "mistral:1")


@pytest.fixture(scope="package")
def devices(node: "RealNode", tmp_path_factory: pytest.TempPathFactory) -> "Iterator[NodeDevices]":
    made = NodeDevices(Path(tmp_path_factory.mktemp("devices")), DEVICES)
    asyncio.run(made.make_devices(node))
    yield made
    made.remove()


@pytest.fixture(scope="package")
def registry(run: "Run", progress: "Callable[[str], None]") -> "RunningRegistry":
    """docker-registry, for everybody."""
    program = binaries.find_docker_registry(progress)
    return asyncio.run(registries.start_docker_registry(run, program, is_public=True))


@pytest.fixture(scope="package")
def private_registry(run: "Run", progress: "Callable[[str], None]") -> "RunningRegistry":
    """docker-registry, for its user."""
    program = binaries.find_docker_registry(progress)
    return asyncio.run(registries.start_docker_registry(run, program))


@pytest.fixture(scope="package")
def signer(run: "Run") -> SigningKey:
    """The signer whom the whole cluster trusts."""
    return SigningKey(run.scratch)


@pytest.fixture(scope="package")
def cache_images(run: "Run", registry: "RunningRegistry", signer: SigningKey) -> CacheImages:
    return CacheImages(registry, run.scratch / "cache-images", signer)


@pytest.fixture(scope="package")
def private_images(
    run: "Run", private_registry: "RunningRegistry", signer: SigningKey
) -> CacheImages:
    return CacheImages(private_registry, run.scratch / "private-images", signer)


@pytest.fixture(scope="package")
def images(cache_images: CacheImages) -> dict[str, CacheImage]:
    """Signed images that fit the node's devices, `alien` that fits none, and `unsigned`."""

    async def push() -> dict[str, CacheImage]:
        pushed = await asyncio.gather(
            *(cache_images.push(name) for name in IMAGES),
            cache_images.push("alien:1", arch=ALIEN),
            cache_images.push("unsigned:1", is_signed=False),
        )
        return dict(zip((*IMAGES, "alien", "unsigned"), pushed, strict=True))

    return asyncio.run(push())


@pytest.fixture(scope="package")
def authorities(
    run: "Run", registry: "RunningRegistry", private_registry: "RunningRegistry"
) -> Path:
    """The file with the certificates of both registries."""
    bundle = run.scratch / "registries.crt"
    texts = [item.ca_file.read_text("ascii") for item in (registry, private_registry)]
    bundle.write_text("".join(texts), encoding="ascii")
    return bundle


@pytest.fixture(scope="package")
def installed_here(
    control_plane: "ControlPlane",
    kubectl: "Kubectl",
    node: "RealNode",
    authorities: Path,
    registry: "RunningRegistry",
    private_registry: "RunningRegistry",
    signer: SigningKey,
) -> "Iterator[GpuSystem]":
    """The server, which runs no agents itself: the agent of these tests is a process."""
    settings = {
        "device_plugin": {"mode": "None"},
        "node_agent": {"enabled": False},
        "kernel_caches": {
            "verification": {"keys": [signer.public_pem]},
            "registries": {
                "ca_file": str(authorities),
                "private": [registry.host, private_registry.host],
            },
        },
    }
    system = GpuSystem(control_plane, kubectl, prefix="caches-", settings=settings)

    try:
        asyncio.run(system.install())
        yield system
        asyncio.run(system.check_rights())
    finally:
        asyncio.run(system.uninstall())


@pytest.fixture(scope="package")
def running_agent(
    installed_here: GpuSystem,
    control_plane: "ControlPlane",
    node: "RealNode",
    devices: NodeDevices,
    authorities: Path,
    registry: "RunningRegistry",
    private_registry: "RunningRegistry",
) -> "Iterator[Agent]":
    flags = {
        "--registries-private": f"{registry.host},{private_registry.host}",
        "--caches-directory": STORE,
        "--caches-grace": GRACE_S,
        "--kubelet-directory": paths.KUBELET_ROOT,
        "--registries-ca-file": authorities,
    }
    started = Agent(control_plane, node, devices, name="caches-agent", roles=ROLES, flags=flags)
    asyncio.run(started.start())
    yield started
    asyncio.run(started.stop())


@pytest.fixture
async def agent(
    running_agent: Agent, installed_here: GpuSystem, registry: "RunningRegistry", node: "RealNode"
) -> Agent:
    """The agent, running and ready, as are server, registry and kubelet; tests may kill any of them."""
    if not registry.process.running:
        await registry.restart()
    if not node.kubelet.process.running:
        await node.kubelet.start()
    await installed_here.restore()
    if not running_agent.process.running:
        await running_agent.start()
    await running_agent.wait_ready()
    return running_agent


@pytest.fixture
async def caches(
    api: "ApiClient", namespace: str, node: "RealNode", agent: Agent, images: dict[str, CacheImage]
) -> "AsyncIterator[Caches]":
    """Caches and pods in the test's namespace; afterwards they are deleted, and the node has nothing of them."""
    made = Caches(api, namespace, node)
    yield made
    await made.clear()
