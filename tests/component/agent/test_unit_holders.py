"""Pods that are over and have processes: what the agent tells the plugins, and goes on reporting."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import pytest

from agent.allocations.reporter import AllocationReporter
from agent.allocations.unit_holders import STUCK_AFTER_S, UnitHolders
from agent.kubelet.node_pods import NodePods, node_pod
from agent.problems.registry import ProblemRegistry
from api.foreign.core import Pod
from api.names import PodUid, UnitId
from api.nodefiles.node_pods_file import PODS_FILE, NodePodsFile, NodePodUnits
from telemetry.conditions import AgentDegraded
from tests.component.agent.allocations.reporting_node import (
    ReportingNode,
    a_node_pod,
    a_reporting_node,
)
from tests.support.bound_pods import a_bound_pod
from tests.support.loop_clock import LoopClock
from tests.support.polling import until, until_async

pytestmark = pytest.mark.looptime


class Node:
    """A node's watch of pods, its processes, and what is told of both."""

    def __init__(self, folder: Path, pods: NodePods | None = None) -> None:
        self.pods = pods or NodePods()
        self.problems = ProblemRegistry()
        self.running: set[PodUid] = set()
        self.reads = 0
        self.allocated: list[str] = []
        self.over: list[bool] = []
        self.path = folder / PODS_FILE
        self.synced = asyncio.Event()
        self.synced.set()

    def find(self, uids: Collection[PodUid]) -> set[PodUid]:
        self.reads += 1
        return self.running & set(uids)

    def show(self, pod: Pod) -> None:
        found = node_pod(pod)
        assert found is not None
        self.pods.upsert(found)

    def delete(self, name: str) -> None:
        found = self.pods.find("default", name)
        assert found is not None
        self.pods.discard(found)

    def reported(self) -> dict[str, NodePodUnits]:
        if not self.path.exists():
            return {}
        said = msgspec.json.decode(self.path.read_bytes(), type=NodePodsFile)
        return {pod.name: pod for pod in said.pods}

    def occupants(self, reporter: AllocationReporter | None = None) -> UnitHolders:
        return UnitHolders(
            self.pods,
            self.find,
            synced=self.synced,
            path=self.path,
            clock=LoopClock(),
            problems=self.problems,
            is_of_a_pool=lambda resource: resource.startswith("gpu."),
            allocated_units=reporter.allocated_units if reporter else lambda _: self.allocated,
            on_processes_ended=reporter.follow if reporter else lambda: self.over.append(True),
        )

    @asynccontextmanager
    async def reported_of(self) -> AsyncIterator[UnitHolders]:
        made = self.occupants()
        async with asyncio.TaskGroup() as group:
            task = group.create_task(made.run())
            yield made
            task.cancel()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def a_pod(name: str = "p", phase: str = "Running") -> Pod:
    return a_bound_pod(name, assigned={"main": ("GPU-1",)}, phase=phase)


UID = PodUid("uid-p")


async def test_pods_are_listed_with_their_allocated_or_assigned_units(node: Node):
    node.show(a_pod())
    node.show(a_bound_pod("none", resource="example.test/nic"))
    async with node.reported_of():
        await until(lambda: "p" in node.reported())
        assert node.reported() == {
            "p": NodePodUnits(uid=UID, namespace="default", name="p", units=["GPU-1"])
        }
        node.allocated = ["GPU-2"]
        await until(lambda: node.reported()["p"].units == ["GPU-2"])
    assert node.reads == 0


@pytest.mark.parametrize("current", ["deleted", "ended"])
async def test_a_pod_that_is_over_is_told_until_its_processes_are_gone(node: Node, current: str):
    node.show(a_pod())
    node.running = {UID}
    async with node.reported_of() as occupants:
        await until(lambda: "p" in node.reported())
        if current == "deleted":
            node.delete("p")
        else:
            node.show(a_pod(phase="Succeeded"))
        assert set(occupants.terminated()) == {UID}
        await until(lambda: node.reported()["p"].is_over)
        reads = node.reads
        await until(lambda: node.reads > reads + 3)
        assert (set(occupants.terminated()), node.over) == ({UID}, [])
        node.running = set()
        await until(lambda: node.reported() == {})
        assert (set(occupants.terminated()), node.over) == (set(), [True])
        # Nobody is examined any more.
        reads = node.reads
        await asyncio.sleep(60)
        assert node.reads == reads


async def test_a_pod_whose_phase_is_contradicted_is_alive(node: Node):
    pod = a_pod(phase="Succeeded")
    runs = msgspec.convert(
        {"phase": "Succeeded", "containerStatuses": [{"state": {"running": {}}}]}, type(pod.status)
    )
    node.show(msgspec.structs.replace(pod, status=runs))
    async with node.reported_of() as occupants:
        await until(lambda: "p" in node.reported())
        assert (set(occupants.terminated()), node.reported()["p"].is_over) == (set(), False)


async def test_a_pod_that_the_watch_shows_again_is_alive(node: Node):
    node.show(a_pod())
    node.running = {UID}
    async with node.reported_of() as occupants:
        await until(lambda: "p" in node.reported())
        node.delete("p")
        await until(lambda: node.reported()["p"].is_over)
        node.show(a_pod())
        await until(lambda: not node.reported()["p"].is_over)
        assert set(occupants.terminated()) == set()


async def test_an_agent_that_restarts_takes_up_what_was_told(node: Node):
    node.show(a_pod())
    async with node.reported_of():
        await until(lambda: "p" in node.reported())
    node.delete("p")
    node.running = {UID}
    async with node.reported_of() as occupants:
        await until(lambda: node.reported()["p"].is_over)
        node.running = set()
        await until(lambda: node.reported() == {})
        assert set(occupants.terminated()) == set()


async def test_an_agent_that_restarts_keeps_what_ended_meanwhile_and_has_processes(node: Node):
    """The pod garbage collector ended it, as its Node was gone; the machine ran on, and a finalizer keeps the pod."""
    node.show(a_pod())
    async with node.reported_of():
        await until(lambda: "p" in node.reported())
    node.running = {UID}
    node.show(a_pod(phase="Failed"))
    async with node.reported_of():
        await until(lambda: node.reported()["p"].is_over)
        assert node.reported()["p"].units == ["GPU-1"]
        node.running = set()
        await until(lambda: node.reported() == {})


async def test_a_file_that_makes_no_sense_is_replaced(node: Node):
    node.path.write_text("[" * 100_000)
    node.show(a_pod())
    async with node.reported_of():
        await until(lambda: node.path.read_text()[0] == "{")
        assert node.reported().keys() == {"p"}


async def test_nothing_is_told_before_the_pods_are_known(node: Node):
    node.synced.clear()
    async with node.reported_of():
        await asyncio.sleep(5)
        assert not node.path.exists()


async def test_processes_that_stay_are_told(node: Node):
    node.show(a_pod())
    node.running = {UID}
    async with node.reported_of():
        await until(lambda: "p" in node.reported())
        node.delete("p")
        await asyncio.sleep(STUCK_AFTER_S - 1)
        assert node.problems.summary().reason is AgentDegraded.AS_EXPECTED
        await asyncio.sleep(2)
        problem = node.problems.summary()
        assert problem.reason is AgentDegraded.PROCESSES_LEFT
        assert "default/p (GPU-1)" in problem.text
        node.running = set()
        await until(lambda: node.problems.summary().reason is AgentDegraded.AS_EXPECTED)


async def test_a_file_that_cannot_be_written_is_told_and_tried_again(node: Node):
    node.path.mkdir()
    node.show(a_pod())
    async with node.reported_of():
        await until(lambda: node.problems.summary().reason is AgentDegraded.NOT_PUBLISHED)
        node.path.rmdir()
        await until(lambda: node.problems.summary().reason is AgentDegraded.AS_EXPECTED)
        assert node.reported().keys() == {"p"}


@asynccontextmanager
async def a_reporter_beside(node: ReportingNode, folder: Path) -> AsyncIterator[Node]:
    beside = Node(folder, node.pods)
    node.terminated = lambda: occupants.terminated()  # noqa: PLW0108  # it is made below
    reporter = node.a_reporter()
    occupants = beside.occupants(reporter)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(item.run()) for item in (reporter, occupants)]
        yield beside
        for task in tasks:
            task.cancel()


async def is_said(node: ReportingNode, said: dict[str, str]) -> bool:
    return await node.said() == said


async def test_what_a_gone_pod_has_is_reported_until_its_processes_are_gone(tmp_path: Path):
    async with a_reporting_node() as node, a_reporter_beside(node, tmp_path) as beside:
        pod = a_node_pod("p")
        node.pods.upsert(pod)
        node.kubelet.give("p", main="GPU-7")
        await until_async(partial(is_said, node, {"uid-p/main": "GPU-7"}))
        beside.running = {UID}
        node.kubelet.answers.clear()
        node.pods.discard(pod)
        await asyncio.sleep(30)
        assert await node.said() == {"uid-p/main": "GPU-7"}
        assert beside.reported()["p"].units == ["GPU-7"]
        beside.running = set()
        await until_async(partial(is_said, node, {}), within_s=1.0)


async def test_what_an_init_container_of_a_gone_pod_has_is_held_until_its_processes_are_gone(
    tmp_path: Path,
):
    units = tuple(UnitId(f"GPU-{number}") for number in range(4))
    pod = replace(a_node_pod("p", init=4, main=2), assigned={"init": units, "main": units[:2]})
    async with a_reporting_node() as node, a_reporter_beside(node, tmp_path) as beside:
        node.pods.upsert(pod)
        node.kubelet.give("p", main="GPU-0 GPU-1")
        said = {"uid-p/main": "GPU-0 GPU-1", "uid-p/init": "GPU-2 GPU-3"}
        await until_async(partial(is_said, node, said))
        beside.running = {UID}
        node.kubelet.answers.clear()
        node.pods.discard(pod)
        await asyncio.sleep(30)
        assert await node.said() == said
        assert beside.reported()["p"].units == list(units)
        beside.running = set()
        await until_async(partial(is_said, node, {}), within_s=1.0)


async def test_what_a_pod_had_that_left_no_process_is_reported_no_more_within_a_second(
    tmp_path: Path,
):
    async with a_reporting_node() as node, a_reporter_beside(node, tmp_path):
        pod = a_node_pod("p")
        node.pods.upsert(pod)
        node.kubelet.give("p", main="GPU-7")
        await until_async(partial(is_said, node, {"uid-p/main": "GPU-7"}))
        node.pods.discard(pod)
        await until_async(partial(is_said, node, {}), within_s=1.0)
