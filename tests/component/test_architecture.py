"""docs/architecture.md follows five requests; each step is a function that really runs, in that order."""

import asyncio
import random
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from api.kinds.gpudevice import GPUDevice
from kube.informer import Informer
from kube.resources import GPU_DEVICES
from manifests.constants import FILTER_PATH, MUTATE_PODS_PATH
from reconciler.sinks.device_sink import DeviceSink, observe_device
from tests.component.agent.node import Agent, whole_devices
from tests.component.reconciler.inventory_run import an_inventory_run
from tests.support.bound_pods import a_bound_pod
from tests.support.kubelet.admission import KubeletOfNode
from tests.support.loop_clock import LoopClock
from tests.support.node_features import agent_device, agent_feature
from tests.support.polling import until
from tests.support.reviews import a_pod_object, a_review
from tests.support.scheduling import a_wire_pod, extender_args
from tests.support.served_app import TOKEN, TestAuthority, served_app

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
MOST_STEPS = 12


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
            await cluster.settle()
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
                await cluster.settle()
                await until(lambda: bool(sink.store.names()))
            task.cancel()
    assert_walked("GPUDevice event to index", called)


async def test_preferred_allocation_to_answer() -> None:
    with tempfile.TemporaryDirectory(prefix="gpu") as name:
        async with KubeletOfNode(Path(name), random.Random(1)) as kubelet:
            agent = Agent(kubelet, Path(name))
            async with agent.running(whole_devices(4)):
                with traced() as called:
                    got = await agent.admit(a_bound_pod("p", assigned={"main": ("GPU-2",)}))
            assert got == {"main": {"GPU-2"}}
    assert_walked("GetPreferredAllocation to answer", called)
