"""Karpenter, unmodified, for this package; NodePools of its own for each test."""

import asyncio
import contextlib
import secrets
from typing import TYPE_CHECKING, Any

import pytest

from http_edge.system_clock import SystemClock
from kube.client import KubeClient
from kube.config.discovery import load_configuration
from simulator.node.joining_nodes import NodeBehaviour
from tests.cluster.autoscaling.real_cluster import NODE_CLASS, RealScalingCluster
from tests.cluster.environment import binaries, client, gpu_nodes, karpenter, polling
from tests.cluster.system.installation import NAMESPACE, GpuSystem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from tests.cluster.environment.components import Kwok
    from tests.cluster.environment.control_plane import ControlPlane
    from tests.cluster.environment.kubectl import Kubectl

    MakeNodePool = Callable[..., Awaitable[str]]


@pytest.fixture(scope="package")
def karpenter_process(
    control_plane: "ControlPlane",
    kubectl: "Kubectl",
    kwok: "Kwok",
    progress: "Callable[[str], None]",
) -> "Iterator[karpenter.Karpenter]":
    """Karpenter of this package; a test that kills it starts it again."""
    assert kwok.process.running
    program, folder = binaries.find_karpenter(progress)
    started = karpenter.Karpenter(control_plane, program)

    async def start() -> None:
        await karpenter.install_definitions(kubectl, folder)
        await started.start()
        async with client.open_client(control_plane.kubeconfig()) as api:
            await api.create(karpenter.NODE_CLASSES, karpenter.a_node_class(NODE_CLASS))

    asyncio.run(start())
    yield started
    started.process.kill9()


@pytest.fixture
async def agents(
    control_plane: "ControlPlane", karpenter_process: karpenter.Karpenter
) -> "AsyncIterator[dict[str, NodeBehaviour]]":
    """What agents and kubelets do on Karpenter's nodes, for one test: NodePool -> behaviour."""
    assert karpenter_process.process.running
    async with gpu_nodes.played(control_plane.kubeconfig(), namespace=NAMESPACE) as double:
        yield double


@pytest.fixture(scope="package")
def installed(
    control_plane: "ControlPlane", kubectl: "Kubectl", karpenter_process: karpenter.Karpenter
) -> "Iterator[GpuSystem]":
    """Our system beside Karpenter; at the end it is checked that it had every right that it needed."""
    assert karpenter_process.process.running
    system = GpuSystem(control_plane, kubectl, prefix="autoscaling-")
    try:
        asyncio.run(system.install())
        yield system
        asyncio.run(system.check_rights())
    finally:
        asyncio.run(system.uninstall())


@pytest.fixture
async def scaling_cluster(
    control_plane: "ControlPlane",
    installed: GpuSystem,
    karpenter_process: karpenter.Karpenter,
    agents: dict[str, NodeBehaviour],
    api: client.ApiClient,
    namespace: str,
    start_scheduler: "Callable[..., Awaitable[Any]]",
) -> "AsyncIterator[RealScalingCluster]":
    """The cluster of a story, with everything running and ready."""
    if not karpenter_process.process.running:
        await karpenter_process.start()
    await installed.restore()
    await start_scheduler()
    clock = SystemClock()
    configuration = await load_configuration(clock, kubeconfig=str(control_plane.kubeconfig()))
    async with KubeClient(configuration, clock) as kube:
        cluster = RealScalingCluster(
            api,
            kube,
            namespace=namespace,
            system=installed,
            autoscaler=karpenter_process,
            behaviour=agents,
        )
        yield cluster
        await cluster.clear()


@pytest.fixture
async def make_node_pool(
    karpenter_process: karpenter.Karpenter, api: client.ApiClient
) -> "AsyncIterator[MakeNodePool]":
    """`await make_node_pool(consolidate_after="5s", …)`: a NodePool that is ready; deleted with its nodes.

    The arguments are those of `karpenter.a_node_pool`, and `registration_delay` of its KWOKNodeClass.
    """
    made: list[str] = []

    async def make(name: str = "", *, registration_delay: str = "0s", **options: Any) -> str:
        name = name or f"n{secrets.token_hex(2)}"
        made.append(name)
        await api.create(
            karpenter.NODE_CLASSES,
            karpenter.a_node_class(name, registration_delay=registration_delay),
        )
        await api.create(karpenter.NODE_POOLS, karpenter.a_node_pool(name, **options))
        path = f"{karpenter.NODE_POOLS}/{name}"

        async def ready() -> bool:
            current = (await api.conditions(path)).get("Ready", {})
            assert current.get("status") == "True", f"{current}"
            return True

        await polling.eventually(ready, what=f"NodePool {name} ready")
        return name

    yield make
    if not karpenter_process.process.running:
        await karpenter_process.start()
    for name in made:
        with contextlib.suppress(client.ApiRefusedError):
            await api.delete(f"{karpenter.NODE_POOLS}/{name}")

    async def are_gone() -> bool:
        left = [claim["metadata"]["name"] for claim in await karpenter.claims_of(api, *made)]
        assert not left, f"{left}"
        return True

    await polling.eventually(are_gone, what="NodeClaims gone", every=0.5)
    for name in made:
        await api.delete(f"{karpenter.NODE_CLASSES}/{name}")
