"""What kubelet gave is asked for gently, reported once, and kept while a user does not answer."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from agent.allocations.entries import MAX_BYTES
from agent.kubelet.node_pods import ContainerRequest
from api.names import UnitId
from kube.resources import GPU_NODE_INVENTORIES
from pool.model import ContainerRole
from telemetry.conditions import AgentDegraded
from tests.component.agent.allocations.reporting_node import (
    NODE,
    ReportingNode,
    a_node_pod,
    a_reporting_node,
)
from tests.support.metric_samples import Counted
from tests.support.polling import until

pytestmark = pytest.mark.looptime
STATUS = "/status"


async def test_what_each_container_got_is_told_within_a_moment(node: ReportingNode) -> None:
    async with node.running():
        await asyncio.sleep(1)
        node.kubelet.give("p", main="G2 G1", side="G3")
        node.pods.upsert(a_node_pod(main=2, side=1, init=4))
        await asyncio.sleep(0.3)
        assert await node.said() == {"uid-p/main": "G1 G2", "uid-p/side": "G3"}
        assert (node.kubelet.counts(), node.writes()) == ({"p": 1}, 1)
        (first, _) = await node.entries()
        assert (first.namespace, first.pod, first.resource) == (
            "default",
            "p",
            "gpu.deckhouse.io/whole",
        )


async def test_what_nvidias_own_plugin_gave_is_told_as_well(node: ReportingNode) -> None:
    """A device that a pod has by it joins no pool meanwhile."""
    request = ContainerRequest("main", ContainerRole.MAIN, {"nvidia.com/gpu": 1, "other.com/x": 1})
    async with node.running():
        await asyncio.sleep(1)
        node.kubelet.give("p", "nvidia.com/gpu", main="G1")
        node.pods.upsert(replace(a_node_pod(), containers=(request,)))
        await asyncio.sleep(0.3)
        (entry,) = await node.entries()
        assert (entry.resource, entry.units, entry.uid) == ("nvidia.com/gpu", ["G1"], "uid-p")


@pytest.mark.parametrize(
    ("asked", "assigned", "given", "reported"),
    [
        pytest.param(
            {"init": 4, "main": 2},
            {"init": "G1 G2 G3 G4", "main": "G1 G2"},
            {"main": "G2 G3"},
            {"main": "G2 G3", "init": "G1 G4"},
            id="more than the main container",
        ),
        pytest.param(
            {"init": 2, "main": 2},
            {"init": "G1 G2", "main": "G1 G2"},
            {"main": "G1 G2"},
            {"main": "G1 G2"},
            id="as many as the main container",
        ),
        pytest.param(
            {"init": 1, "init_2": 2},
            {"init": "G1", "init_2": "G1 G2"},
            {},
            {"init": "G1", "init_2": "G2"},
            id="init containers alone",
        ),
        pytest.param(
            {"init": 3, "main": 1},
            {"init": "G1 G2 G3", "main": "G1"},
            {"main": "G7"},
            {"main": "G7", "init": "G1 G2"},
            id="kubelet gave another",
        ),
        pytest.param(
            {"init": 2, "main": 1}, None, {"main": "G1"}, {"main": "G1"}, id="without assignment"
        ),
    ],
)
async def test_units_that_init_containers_alone_have_are_reported_as_theirs(
    node: ReportingNode,
    asked: Any,
    assigned: dict[str, str] | None,
    given: dict[str, str],
    reported: dict[str, str],
) -> None:
    units = {name: tuple(map(UnitId, text.split())) for name, text in (assigned or {}).items()}
    pod = replace(a_node_pod(**asked), assigned=units or None)
    async with node.running() as reporter:
        node.pods.upsert(pod)
        await asyncio.sleep(1)
        assert await node.said() == {}, "kubelet does not know the pod yet"
        node.kubelet.give("p", **given)
        await asyncio.sleep(10)
        want = {f"uid-p/{name}": text for name, text in reported.items()}
        assert await node.said() == want
        used = {unit for text in reported.values() for unit in text.split()}
        assert reporter.units_in_use() == reporter.allocated_units(pod.uid) == used
        node.terminated = lambda: {pod.uid}
    async with node.running():
        node.pods.discard(pod)
        await asyncio.sleep(10)
        assert await node.said() == want


async def test_units_of_live_pods_are_known_to_be_in_use(node: ReportingNode) -> None:
    async with node.running() as reporter:
        assert reporter.units_in_use() == set()
        node.kubelet.give("p", main="G1 G2", side="G3")
        node.pods.upsert(a_node_pod(main=2, side=1))
        await asyncio.sleep(0.1)
        assert reporter.units_in_use() == {"G1", "G2", "G3"}
        node.pods.discard(a_node_pod())
        await asyncio.sleep(0.1)
        assert reporter.units_in_use() == set()


async def test_kubelet_is_asked_until_every_container_shows(node: ReportingNode) -> None:
    async with node.running():
        node.pods.upsert(a_node_pod(main=1, side=1))
        await asyncio.sleep(0.4)
        node.kubelet.give("p", main="G1")
        await asyncio.sleep(1.5)
        assert await node.said() == {"uid-p/main": "G1"}
        node.kubelet.give("p", main="G1", side="G2")
        await asyncio.sleep(2.3)
        assert await node.said() == {"uid-p/main": "G1", "uid-p/side": "G2"}
        asked = node.kubelet.counts()["p"]
        assert asked < 12
        await asyncio.sleep(60)
        assert node.kubelet.counts()["p"] == asked


async def test_a_pod_that_is_never_admitted_is_asked_about_seldom(node: ReportingNode) -> None:
    async with node.running():
        node.pods.upsert(a_node_pod())
        await asyncio.sleep(600)
        assert 300 <= node.kubelet.counts()["p"] <= 310
        assert node.writes() == 0


async def test_pods_that_ask_for_nothing_of_ours_are_not_asked_about(node: ReportingNode) -> None:
    async with node.running():
        node.pods.upsert(a_node_pod("ended", is_ended=True))
        other: Any = a_node_pod("other")
        object.__setattr__(other.containers[0], "counts", {"example.com/nic": 1})
        node.pods.upsert(other)
        await asyncio.sleep(600)
        assert node.kubelet.asked == []


@pytest.mark.parametrize("how", ["ended", "deleted"])
async def test_what_was_told_of_a_pod_goes_with_it(node: ReportingNode, how: str) -> None:
    async with node.running():
        for name in ("p", "q"):
            node.kubelet.give(name, main=f"G-{name}")
            node.pods.upsert(a_node_pod(name))
        await asyncio.sleep(1)
        assert await node.said() == {"uid-p/main": "G-p", "uid-q/main": "G-q"}
        if how == "ended":
            node.pods.upsert(a_node_pod("p", is_ended=True))
        else:
            node.pods.discard(a_node_pod("p"))
        await asyncio.sleep(0.3)
        assert await node.said() == {"uid-q/main": "G-q"}


async def test_a_burst_of_pods_is_one_write_in_a_while_and_few_calls(node: ReportingNode) -> None:
    async with node.running():
        for number in range(30):
            node.kubelet.give(f"p{number}", main=f"G{number}")
            node.pods.upsert(a_node_pod(f"p{number}"))
        await asyncio.sleep(3)
        assert len(await node.said()) == 30
        times = [at for at, _ in node.kubelet.asked]
        assert len(times) == 30
        assert all(later - at >= 0.95 for at, later in zip(times, times[20:], strict=False))
        assert node.writes() <= 15


async def test_an_agent_that_restarts_writes_nothing(node: ReportingNode) -> None:
    node.pods.replace_all([a_node_pod("p"), a_node_pod("q")])
    for name in ("p", "q"):
        node.kubelet.give(name, main=f"G-{name}")
    async with node.running():
        await asyncio.sleep(1)
    before = (await node.said(), node.writes())
    async with node.running():
        node.kubelet.answers.clear()
        await asyncio.sleep(30)
        assert (await node.said(), node.writes()) == before
        for name in ("p", "q"):
            node.kubelet.give(name, main=f"G-{name}")
        await asyncio.sleep(2000)
        assert (await node.said(), node.writes()) == before


async def test_an_agent_that_restarts_takes_back_what_ended_meanwhile(node: ReportingNode) -> None:
    node.pods.replace_all([a_node_pod("p"), a_node_pod("q")])
    for name in ("p", "q"):
        node.kubelet.give(name, main=f"G-{name}")
    async with node.running():
        await asyncio.sleep(1)
    node.pods.replace_all([a_node_pod("q")])
    async with node.running():
        await asyncio.sleep(1)
        assert await node.said() == {"uid-q/main": "G-q"}


async def test_before_the_pods_are_known_nothing_is_taken_back(node: ReportingNode) -> None:
    node.pods.replace_all([a_node_pod()])
    node.kubelet.give("p", main="G1")
    async with node.running():
        await asyncio.sleep(1)
    node.pods.replace_all([])
    node.synced.clear()
    async with node.running():
        await asyncio.sleep(60)
        assert await node.said() == {"uid-p/main": "G1"}


async def test_an_inventory_that_is_not_there_yet_is_waited_for() -> None:
    async with a_reporting_node(has_inventory=False) as node, node.running():
        node.kubelet.give("p", main="G1")
        node.pods.upsert(a_node_pod())
        await asyncio.sleep(120)
        assert node.problems.summary().reason is AgentDegraded.AS_EXPECTED
        assert len(node.api.requests) < 60
        await node.add_inventory()
        await asyncio.sleep(31)
        assert await node.said() == {"uid-p/main": "G1"}


async def test_an_inventory_that_is_another_is_filled_again(node: ReportingNode) -> None:
    async with node.running():
        node.kubelet.give("p", main="G1")
        node.pods.upsert(a_node_pod())
        await asyncio.sleep(1)
        await node.client.delete(GPU_NODE_INVENTORIES, NODE)
        await node.add_inventory()
        node.kubelet.give("q", main="G2")
        node.pods.upsert(a_node_pod("q"))
        await asyncio.sleep(1)
        assert await node.said() == {"uid-p/main": "G1", "uid-q/main": "G2"}
        await node.client.delete(GPU_NODE_INVENTORIES, NODE)
        await node.add_inventory()
        await asyncio.sleep(601)
        assert await node.said() == {"uid-p/main": "G1", "uid-q/main": "G2"}


@pytest.mark.parametrize("status", [409, 500, 503, 403])
async def test_a_write_that_fails_is_tried_again_counted_and_told(
    node: ReportingNode, status: int
) -> None:
    counted = Counted()
    node.api.faults.fail("PATCH", STATUS, status, times=3)
    async with node.running():
        node.kubelet.give("p", main="G1")
        node.pods.upsert(a_node_pod())
        for _ in range(100):
            await asyncio.sleep(0.01)
            if node.problems.summary().reason is AgentDegraded.NOT_PUBLISHED:
                break
        assert node.problems.summary().reason is AgentDegraded.NOT_PUBLISHED
        await asyncio.sleep(60)
        assert await node.said() == {"uid-p/main": "G1"}
        assert node.problems.summary().reason is AgentDegraded.AS_EXPECTED
    assert counted.growth("gpu_agent_publications_total") == {
        ("failed", "allocations"): 3,
        ("written", "allocations"): 1,
    }
    assert counted.growth("gpu_task_failures_total") == {("agent.allocations",): 3}


async def test_a_write_of_which_nobody_knows_what_became_is_looked_at(node: ReportingNode) -> None:
    rule = node.api.faults.reset_after("PATCH", STATUS)
    async with node.running():
        node.kubelet.give("p", main="G1")
        node.pods.upsert(a_node_pod())
        await until(lambda: bool(rule.seen))
        node.pods.discard(a_node_pod())
        await asyncio.sleep(60)
        assert await node.said() == {}


async def test_a_silent_kubelet_is_a_problem_and_what_it_said_stays(node: ReportingNode) -> None:
    async with node.running():
        node.kubelet.give("p", main="G1")
        node.pods.upsert(a_node_pod())
        await asyncio.sleep(1)
        node.kubelet.is_away = True
        node.kubelet.asked.clear()
        node.pods.upsert(a_node_pod("q"))
        await asyncio.sleep(60)
        assert node.problems.summary().reason is AgentDegraded.KUBELET_SILENT
        assert 10 < len(node.kubelet.asked) < 60
        assert await node.said() == {"uid-p/main": "G1"}
        node.kubelet.is_away = False
        node.kubelet.give("q", main="G2")
        await asyncio.sleep(10)
        assert node.problems.summary().reason is AgentDegraded.AS_EXPECTED
        assert await node.said() == {"uid-p/main": "G1", "uid-q/main": "G2"}


async def test_settled_pods_are_looked_at_every_few_minutes(node: ReportingNode) -> None:
    async with node.running():
        node.kubelet.give("p", main="G1")
        node.pods.upsert(a_node_pod())
        await asyncio.sleep(299)
        assert node.kubelet.counts() == {"p": 1}
        node.kubelet.give("p", main="G9")
        await asyncio.sleep(5)
        assert await node.said() == {"uid-p/main": "G9"}
        await asyncio.sleep(600)
        assert node.kubelet.counts()["p"] == 5


async def test_a_kubelet_that_forgot_takes_nothing_away(node: ReportingNode) -> None:
    """Its checkpoint was lost; the container has its devices as long as it runs."""
    async with node.running():
        node.kubelet.give("p", main="G1")
        node.pods.upsert(a_node_pod())
        await asyncio.sleep(1)
        node.kubelet.give("p", main="")
        await asyncio.sleep(400)
        assert node.kubelet.counts()["p"] == 2
        assert await node.said() == {"uid-p/main": "G1"}


async def test_another_kubelet_is_asked_about_everybody_slowly(node: ReportingNode) -> None:
    async with node.running():
        for number in range(20):
            node.kubelet.give(f"p{number}", main=f"G{number}")
            node.pods.upsert(a_node_pod(f"p{number}"))
        await asyncio.sleep(10)
        node.kubelet.asked.clear()
        node.kubelet_identity = 2
        await asyncio.sleep(3)
        assert 5 <= len(node.kubelet.asked) <= 13
        await asyncio.sleep(10)
        assert set(node.kubelet.counts().values()) == {1}
        assert len(node.kubelet.asked) == 20


async def test_a_new_pod_does_not_wait_for_settled_ones(node: ReportingNode) -> None:
    async with node.running():
        for number in range(20):
            node.kubelet.give(f"p{number}", main=f"G{number}")
            node.pods.upsert(a_node_pod(f"p{number}"))
        await asyncio.sleep(10)
        node.kubelet_identity = 2
        await asyncio.sleep(1.1)
        node.kubelet.give("new", main="G99")
        node.pods.upsert(a_node_pod("new"))
        await asyncio.sleep(0.5)
        assert (await node.said())["uid-new/main"] == "G99"


async def test_names_of_pods_that_are_gone_are_forgotten(node: ReportingNode) -> None:
    async with node.running() as reporter:
        for number in range(300):
            node.kubelet.give(f"p{number}", main="G1")
            node.pods.upsert(a_node_pod(f"p{number}"))
            await asyncio.sleep(0.2)
            node.pods.discard(a_node_pod(f"p{number}"))
        assert len(reporter._names) <= 103


async def test_what_an_object_does_not_hold_is_left_out_and_that_is_said_once(
    node: ReportingNode,
) -> None:
    for name in ("p", "q"):
        node.kubelet.give(name, main=f"G-{name}" + "x" * (MAX_BYTES * 2 // 3))
        node.pods.upsert(a_node_pod(name))
    with capture_logs() as logs:
        async with node.running():
            await asyncio.sleep(5)
            node.kubelet.give("r", main="G-r")
            node.pods.upsert(a_node_pod("r"))
            await asyncio.sleep(5)
            assert [entry.pod for entry in await node.entries()] == ["p"]
    reported = [line for line in logs if line["event"].startswith("allocations truncated")]
    assert [(line["reported"], line["recorded"]) for line in reported] == [(1, 2)]


async def test_the_more_pods_a_node_has_the_longer_a_write_gathers(node: ReportingNode) -> None:
    """kubelet answers for 20 pods a second; a write after each GATHER_S would be 150."""
    node.pods.replace_all([a_node_pod(f"p{number:03}") for number in range(300)])
    for number in range(300):
        node.kubelet.give(f"p{number:03}", main=f"G{number}")
    async with node.running():
        await asyncio.sleep(30)
        assert len(await node.entries()) == 300
        assert 60 <= node.writes() <= 110
