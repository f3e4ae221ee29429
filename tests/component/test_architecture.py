"""docs/architecture.md follows requests; each step is a function that really runs, in that order."""

import asyncio
import contextlib
import itertools
import random
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import FrameType

import aiohttp
import grpc
import pytest

from api.kinds.gpudevice import GPUDevice
from api.names import DeviceName
from console.data.console_cluster import ConsoleCluster
from console.data.read_scope import ReadScope
from console.edge.viewer_login import LoggedIn
from console.processes.local_console import serving_page, viewer_of
from kube.informer import Informer
from kube.resources import DAEMON_SETS, GPU_DEVICES
from manifests.constants import FILTER_PATH, MUTATE_PODS_PATH
from reconciler.sinks.device import DeviceSink, observe_device
from tests.component.agent.kernelcache.cache_node import a_cache_node, an_image
from tests.component.agent.node import Agent, whole_devices
from tests.component.kernelcache.conftest import serving_caches
from tests.component.reconciler.handover_run import a_scaling_run
from tests.component.reconciler.inventory_run import an_inventory_run
from tests.component.reconciler.operator_world import an_operator_world
from tests.component.reconciler.scaling_run import a_scaling_run as a_run_of_waiting_pods
from tests.component.reconciler.upgrade_run import an_upgrade_run
from tests.support.bound_pods import a_bound_pod
from tests.support.cache_admission import a_cache
from tests.support.csi import UID, CsiClient, a_publish
from tests.support.kubelet.admission import KubeletOfNode
from tests.support.loop_clock import LoopClock
from tests.support.node_features import agent_device, agent_feature
from tests.support.polling import until, until_async
from tests.support.registry_caches import CacheRegistry, Signer
from tests.support.registry_double import RegistryDouble
from tests.support.reviews import a_pod_object, a_review
from tests.support.scheduling import a_wire_pod, extender_args
from tests.support.served_app import TOKEN, TestAuthority, served_app
from tests.support.source_trees import PACKAGES, files_of, name_of

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
MOST_STEPS = 12
MOST_MODULES = 75
"""Modules of ours that run from the first step of a walk to its last; docs/design/0010 has the figures."""


def walk(title: str) -> list[str]:
    """Return the functions that a section of the page numbers."""
    text = PAGE.read_text(encoding="utf-8")
    section = text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    steps = re.findall(r"^\d+\. `([\w.]+)`", section, re.MULTILINE)
    assert 0 < len(steps) <= MOST_STEPS, f"{title}: {len(steps)} steps"
    return steps


@contextmanager
def traced() -> Iterator[list[str]]:
    """Collect `module.qualname` of every Python function, at its first call, in order."""
    called: dict[str, None] = {}

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            called[f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}"] = None

    names: list[str] = []
    sys.setprofile(note)
    try:
        yield names
    finally:
        sys.setprofile(None)
        names += called


def assert_walked(title: str, called: list[str]) -> None:
    steps = walk(title)
    missing = [step for step in steps if step not in called]
    assert not missing, f"{PAGE.name}, {title}: never called: {missing}"
    order = sorted(steps, key=called.index)
    assert steps == order, f"{PAGE.name}, {title}: the steps run in this order: {order}"
    modules = entered_modules(called[called.index(steps[0]) : called.index(steps[-1]) + 1])
    print(f"{title}: {len(modules)} modules")
    assert len(modules) <= MOST_MODULES, f"{title}: {len(modules)} modules: {sorted(modules)}"


def entered_modules(called: list[str]) -> set[str]:
    """Return the modules of the product whose functions are called."""
    product = set(PACKAGES) - {"simulator"}
    existing = {name_of(path).removesuffix(".py").replace("/", ".") for path in files_of(*product)}
    return {
        module
        for function in called
        for module in itertools.accumulate(function.split("."), "{}.{}".format)
        if module in existing
    }


async def test_pod_to_reservation(tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text(TOKEN)
    async with served_app(TestAuthority(), token_file) as served:
        with traced() as called:
            reply = await served.post(MUTATE_PODS_PATH, a_review(a_pod_object()))
        assert reply.json["response"]["allowed"]
        assert served.reservations == 1
    assert_walked("Pod to reservation", called)


async def test_extender_args_to_answer(tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text(TOKEN)
    async with served_app(TestAuthority(), token_file) as served:
        with traced() as called:
            args = extender_args(a_wire_pod(whole=1), "n1")
            reply = await served.post(FILTER_PATH, args, Authorization=f"Bearer {TOKEN}")
        assert reply.json["NodeNames"] == ["n1"]
    assert_walked("ExtenderArgs to answer", called)


async def test_node_feature_to_device() -> None:
    async with an_inventory_run() as cluster:
        await cluster.add_node()
        with traced() as called:
            await cluster.publish(
                agent_feature("n1", [agent_device("n1", 0)], heartbeat=cluster.now())
            )
            await cluster.until_stable()
        assert len(await cluster.gpus()) == 1
    assert_walked("NodeFeature to GPUDevice", called)


async def test_device_event_to_index() -> None:
    async with an_inventory_run() as cluster:
        await cluster.add_node()
        sink = DeviceSink(cluster.index)
        informer = Informer(
            cluster.client,
            GPU_DEVICES,
            GPUDevice,
            sink=sink,
            clock=LoopClock(),
            project=observe_device,
        )
        async with asyncio.TaskGroup() as group:
            task = group.create_task(informer.run())
            await informer.synced.wait()
            with traced() as called:
                feature = agent_feature("n1", [agent_device("n1", 0)], heartbeat=cluster.now())
                await cluster.publish(feature)
                await cluster.until_stable()
                await until(lambda: bool(sink.store.names()))
            task.cancel()
    assert_walked("GPUDevice event to index", called)


async def test_changed_device_to_a_viewers_page() -> None:
    clock = LoopClock()
    async with an_inventory_run() as cluster, asyncio.TaskGroup() as group:
        await cluster.add_node()
        await cluster.publish(agent_feature("n1", [agent_device("n1", 0)], heartbeat=cluster.now()))
        await cluster.until_stable()
        (name,) = await cluster.gpus()
        scope = ReadScope.whole(system_namespace="gpu-control-plane")
        console = ConsoleCluster(cluster.client, clock, scope=scope, origin="a test")
        task = group.create_task(console._informers.run())
        await console._informers.wait_until_synced()
        console.tick()
        console._is_ready = True
        async with a_page(console, viewer_of(scope), clock) as stream:
            await stream.readuntil(b"\n\n")
            with traced() as called:
                status = {"status": {"product": "NVIDIA-H100"}}
                await cluster.client.merge_patch(
                    GPU_DEVICES, status, name=name, subresource="status"
                )
                await until(lambda: product_of(console, name) == "NVIDIA-H100")
                console.tick()
                event = await stream.readuntil(b"\n\n")
        assert b"NVIDIA-H100" in event
        task.cancel()
    assert_walked("Changed device to a viewer's page", called)


def product_of(console: ConsoleCluster, name: str) -> str:
    device = console._state.devices.get(DeviceName(name))
    return device.status.product if device is not None else ""


@asynccontextmanager
async def a_page(
    console: ConsoleCluster, viewer: LoggedIn, clock: LoopClock
) -> AsyncIterator[aiohttp.StreamReader]:
    """Log in to a console's page; the value is its stream."""
    async with (
        serving_page(console, viewer, clock) as address,
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session,
    ):
        url, token = address.split("/#token=")
        await session.get(f"{url}/api/v1/login", headers={"Authorization": f"Bearer {token}"})
        async with session.get(f"{url}/api/v1/stream") as answer:
            yield answer.content


@pytest.mark.looptime
async def test_cluster_policy_to_daemon_set() -> None:
    async with an_operator_world() as world:
        await world.add_node()
        await world.add_policy()
        with traced() as called:
            await world.until_stable()
        assert await world.objects_of(DAEMON_SETS)
    assert_walked("ClusterPolicy to DaemonSet", called)


@pytest.mark.looptime
async def test_a_new_driver_on_a_node() -> None:
    async with an_upgrade_run(1) as run:
        await run.add_pod("n0")
        await run.roll_out(2)
        with traced() as called:
            await run.step()
            await run.until("upgrade-done")
    assert_walked("A new driver on a node", called)


async def test_preferred_allocation_to_answer() -> None:
    with tempfile.TemporaryDirectory(prefix="gpu") as name:
        async with KubeletOfNode(Path(name), random.Random(1)) as kubelet:
            agent = Agent(kubelet, Path(name))
            async with agent.running(whole_devices(4)):
                with traced() as called:
                    got = await agent.admit(a_bound_pod("p", assigned={"main": ("GPU-2",)}))
            assert got == {"main": {"GPU-2"}}
    assert_walked("GetPreferredAllocation to answer", called)


async def test_waiting_pods_to_requests_for_nodes() -> None:
    async with a_run_of_waiting_pods() as run:
        await run.add_pods("a", "b", "c")
        with traced() as called:
            await run.run_pass()
        assert len(await run.ids()) == 2
    assert_walked("Waiting pods to requests for nodes", called)


async def test_new_node_to_its_pods() -> None:
    async with a_scaling_run("p", "q") as run:
        with traced() as called:
            await run.process.hand_over()
        await run.is_handed_over("p", "q")
    assert_walked("New node to its pods", called)


async def test_gkmcache_to_digest(tmp_path: Path) -> None:
    signer = Signer()
    async with RegistryDouble() as double:
        registry = CacheRegistry(double)
        registry.sign(registry.push(), signer)
        serving = serving_caches(
            TestAuthority(), tmp_path / "token", registry, verification={"keys": [signer.pem]}
        )
        async with serving as caches:
            with traced() as called:
                reply = await caches.mutate(a_cache(image=registry.image))
        assert reply.json["response"]["allowed"]
    assert_walked("GKMCache to digest", called)


async def test_pods_volume_to_its_files() -> None:
    with tempfile.TemporaryDirectory(prefix="gpu") as name:
        async with a_cache_node(Path(name)) as node:
            await node.add_cache(an_image(node.registry), warm="Demand")
            (node.folder / "kubelet" / "plugins_registry").mkdir()
            target = node.target(UID)
            target.parent.mkdir(parents=True)
            socket = node.folder / "kubelet" / "plugins" / "csi.gkm.io" / "csi.sock"

            async def is_published() -> bool:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await CsiClient(socket).publish(a_publish(target))
                    return True
                return False

            async with node.running(serves=True):
                store = node.role.reconciler
                # The steps are those that the call causes: the first one of the start is over.
                await until(lambda: store.plan is not None and not store._triggered.is_set())
                await until(socket.exists)
                with traced() as called:
                    await until_async(is_published)
    assert_walked("Pod's volume to its files", called)
