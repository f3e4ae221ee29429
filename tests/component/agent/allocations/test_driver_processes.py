"""The node's report of processes with the driver open: when it is written, and when it is not."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from agent.driver_processes.open_drivers import OpenProcess
from agent.driver_processes.process_reporter import DriverProcessReporter
from agent.driver_processes.reported_processes import Reading
from agent.errors import DriverUnavailableError, HiddenProcessesError
from api.kinds.gpunodeinventory import MAX_DRIVER_PROCESSES, DriverProcess, GPUNodeInventory
from api.names import PodUid
from kube.resources import GPU_NODE_INVENTORIES
from telemetry.conditions import AgentDegraded
from tests.component.agent.allocations.reporting_node import (
    NODE,
    ReportingNode,
    a_node_pod,
    a_reporting_node,
)
from tests.support.loop_clock import LoopClock

pytestmark = pytest.mark.looptime
NVTOP = OpenProcess(70, "nvtop")
CURRENT = DriverProcess(command="nvtop", pid=70)
MINUTE = 60.0
STATUS = "/apis/gpu.deckhouse.io/v1alpha1/gpunodeinventories/n1/status"


class Search:
    """Finds what it is told to; each reading of `turns` goes before."""

    def __init__(self) -> None:
        self.reading: Reading = {}
        self.turns: list[Reading] = []
        self.error: Exception | None = None
        self.searches = 0

    async def find(self) -> Reading:
        self.searches += 1
        if self.error is not None:
            raise self.error
        return self.turns.pop(0) if self.turns else self.reading


@asynccontextmanager
async def reporting(node: ReportingNode, search: Search) -> AsyncIterator[None]:
    """An agent that reports, until the block ends."""
    reporter = DriverProcessReporter(
        search,
        node.pods,
        node.client,
        synced=node.synced,
        clock=LoopClock(),
        node=NODE,
        namespace="ours",
        problems=node.problems,
    )
    async with asyncio.TaskGroup() as group:
        task = group.create_task(reporter.run())
        yield
        task.cancel()


async def current(node: ReportingNode) -> list[DriverProcess] | None:
    found = await node.client.get(GPU_NODE_INVENTORIES, GPUNodeInventory, NODE)
    return found.status.driver_processes


def writes(node: ReportingNode) -> int:
    return sum("agent-driver-processes" in write.query for write in node.api.requests.writes())


@pytest.fixture
def search() -> Search:
    return Search()


async def test_lasting_processes_are_shown_and_taken_back_when_they_end(
    node: ReportingNode, search: Search
):
    search.reading = {NVTOP: None}
    async with reporting(node, search):
        await asyncio.sleep(MINUTE)
        assert await current(node) == [CURRENT]
        search.reading = {}
        await asyncio.sleep(MINUTE)
        assert await current(node) is None
        assert writes(node) == 2


async def test_pod_is_named_as_the_watch_shows_it(node: ReportingNode, search: Search):
    pod = replace(a_node_pod("train"), containers=())
    node.pods.upsert(pod)
    search.reading = {OpenProcess(80, "python3"): pod.uid, NVTOP: None}
    async with reporting(node, search):
        await asyncio.sleep(MINUTE)
        named = DriverProcess(command="python3", namespace="default", pod="train", uid=pod.uid)
        assert await current(node) == [CURRENT, named]
        node.pods.discard(pod)
        await asyncio.sleep(MINUTE)
        assert await current(node) == [CURRENT, named]
        assert writes(node) == 1


async def test_pod_that_requests_a_device_is_not_reported(node: ReportingNode, search: Search):
    pod = a_node_pod("train")
    node.pods.upsert(pod)
    search.reading = {OpenProcess(80, "python3"): pod.uid}
    async with reporting(node, search):
        await asyncio.sleep(10 * MINUTE)
    assert writes(node) == 0


async def test_nothing_is_written_in_a_quiet_hour(node: ReportingNode, search: Search):
    search.reading = {NVTOP: None}
    async with reporting(node, search):
        await asyncio.sleep(MINUTE)
        node.api.requests.clear()
        await asyncio.sleep(60 * MINUTE)
    assert node.api.requests.writes() == []


async def test_process_that_looks_at_the_driver_for_a_moment_is_not_reported(
    node: ReportingNode, search: Search
):
    for pid in range(200):
        search.turns += [{OpenProcess(pid, "nvidia-smi"): None}, {}]
    async with reporting(node, search):
        await asyncio.sleep(60 * MINUTE)
    assert writes(node) == 0


async def test_processes_that_change_all_the_time_cost_two_writes_a_minute(
    node: ReportingNode, search: Search
):
    for pid in range(0, 2000, 2):
        same = OpenProcess(pid, f"job-{pid}")
        search.turns += [{same: None}, {same: None}, {}]
    async with reporting(node, search):
        await asyncio.sleep(60 * MINUTE)
    assert 60 < writes(node) <= 120


async def test_restarted_agent_writes_nothing(node: ReportingNode, search: Search):
    search.reading = {NVTOP: None}
    async with reporting(node, search):
        await asyncio.sleep(MINUTE)
    node.api.requests.clear()
    async with reporting(node, search):
        await asyncio.sleep(10 * MINUTE)
    assert node.api.requests.writes() == []


async def test_restarted_agent_keeps_the_name_of_a_pod_that_is_gone(
    node: ReportingNode, search: Search
):
    pod = replace(a_node_pod("train"), containers=())
    node.pods.upsert(pod)
    search.reading = {OpenProcess(80, "python3"): pod.uid}
    async with reporting(node, search):
        await asyncio.sleep(MINUTE)
    node.pods.discard(pod)
    async with reporting(node, search):
        await asyncio.sleep(MINUTE)
    assert [item.pod for item in await current(node) or ()] == ["train"]


async def test_more_than_fit_are_counted(node: ReportingNode, search: Search):
    count = MAX_DRIVER_PROCESSES + 3
    search.reading = {OpenProcess(n + 100, "x"): PodUid(f"uid-{n}") for n in range(count)}
    async with reporting(node, search):
        await asyncio.sleep(MINUTE)
    found = await node.client.get(GPU_NODE_INVENTORIES, GPUNodeInventory, NODE)
    assert len(found.status.driver_processes or ()) == MAX_DRIVER_PROCESSES
    assert found.status.driver_processes_omitted == 3


async def test_report_stays_while_the_kernel_does_not_answer(node: ReportingNode, search: Search):
    search.reading = {NVTOP: None}
    async with reporting(node, search):
        await asyncio.sleep(MINUTE)
        search.error = DriverUnavailableError(AgentDegraded.DRIVER_HANGS, "it hangs")
        with capture_logs() as logs:
            await asyncio.sleep(10 * MINUTE)
        assert await current(node) == [CURRENT]
        assert [log["error"] for log in logs] == ["it hangs"]
        search.error, search.reading = None, {}
        await asyncio.sleep(MINUTE)
        assert await current(node) is None


async def test_where_processes_are_hidden_nothing_is_reported_and_the_log_says_so_once(
    node: ReportingNode, search: Search
):
    search.reading = {NVTOP: None}
    async with reporting(node, search):
        await asyncio.sleep(MINUTE)
    search.error = HiddenProcessesError("set hostPID")
    with capture_logs() as logs:
        async with reporting(node, search):
            await asyncio.sleep(10 * MINUTE)
    assert await current(node) is None
    said = [log["error"] for log in logs if log["log_level"] == "warning"]
    assert said == ["set hostPID"]


async def test_write_that_fails_is_repeated_and_a_problem_until_then(
    node: ReportingNode, search: Search
):
    search.reading = {NVTOP: None}
    node.api.faults.fail("PATCH", STATUS, 500, times=3)
    async with reporting(node, search):
        await asyncio.sleep(20)
        assert node.problems.summary().reason is AgentDegraded.NOT_PUBLISHED
        await asyncio.sleep(5 * MINUTE)
        assert await current(node) == [CURRENT]
        assert node.problems.summary().reason is AgentDegraded.AS_EXPECTED


async def test_write_whose_answer_is_lost_is_not_repeated(node: ReportingNode, search: Search):
    search.reading = {NVTOP: None}
    node.api.faults.reset_after("PATCH", STATUS)
    async with reporting(node, search):
        await asyncio.sleep(5 * MINUTE)
        assert await current(node) == [CURRENT]
    assert writes(node) == 1


async def test_node_without_an_inventory_is_no_problem_and_gets_its_report_later(search: Search):
    search.reading = {NVTOP: None}
    async with a_reporting_node(has_inventory=False) as node, reporting(node, search):
        await asyncio.sleep(10 * MINUTE)
        assert node.problems.summary().reason is AgentDegraded.AS_EXPECTED
        await node.add_inventory()
        await asyncio.sleep(5 * MINUTE)
        assert await current(node) == [CURRENT]


async def test_report_comes_back_where_the_object_was_created_again(
    node: ReportingNode, search: Search
):
    search.reading = {NVTOP: None}
    async with reporting(node, search):
        await asyncio.sleep(MINUTE)
        await node.client.delete(GPU_NODE_INVENTORIES, NODE)
        await node.add_inventory()
        await asyncio.sleep(15 * MINUTE)
        assert await current(node) == [CURRENT]
