"""What the agent knows of its kubelet: from kubelet's own port, or from the node's labels."""

import asyncio
from typing import TYPE_CHECKING, TypeVar

import msgspec
import pytest

from agent.inventory.kubelet_settings import REPORTED_AFTER, KubeletConfigurationReader
from agent.kubelet.configuration import KubeletPort, NodeOfKubelet
from agent.problems.registry import ProblemRegistry
from api.kinds.gpunodeinventory import (
    KubeletConfiguration,
    TopologyManagerPolicy,
    TopologyManagerScope,
)
from api.names import TOPOLOGY_MANAGER_POLICY_LABEL, TOPOLOGY_MANAGER_SCOPE_LABEL, NodeName
from kube.config.connection import StaticConnection
from kube.errors import Forbidden, KubeError, Undecodable, Unreachable, from_status
from telemetry.conditions import AgentDegraded
from tests.support.canned_api import CannedApi, Json
from tests.support.canned_api import status as a_status
from tests.support.loop_clock import LoopClock

if TYPE_CHECKING:
    from kube.resources import Resource

T = TypeVar("T")

SINGLE = KubeletConfiguration(
    topology_manager_policy=TopologyManagerPolicy.SINGLE_NUMA_NODE,
    topology_manager_scope=TopologyManagerScope.POD,
)
ANSWER = {
    "kubeletconfig": {
        "topologyManagerPolicy": "single-numa-node",
        "topologyManagerScope": "pod",
        "cpuManagerPolicy": "none",
    }
}
DENIED = from_status(403, b"Forbidden (user=agent, verb=get, resource=nodes)", None)
AWAY = Unreachable("connection refused", request_sent=False)


def a_node(labels: dict[str, str] | None = None, address: str = "10.0.0.1") -> NodeOfKubelet:
    addresses = [
        {"type": "Hostname", "address": "n1"},
        {"type": "InternalIP", "address": address},
    ]
    status = {"addresses": addresses, "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}}}
    whole = {"metadata": {"name": "n1", "labels": labels}, "status": status}
    return msgspec.convert(whole, NodeOfKubelet)


class World:
    """A Node, its kubelet, and the reader of both."""

    def __init__(self) -> None:
        self.node = a_node()
        self.answer: KubeletConfiguration | KubeError = SINGLE
        self.asked: list[str] = []
        self.process = (1, 1, 1)
        self.changes = 0
        self.problems = ProblemRegistry()
        self.reader = KubeletConfigurationReader(
            self,
            self,
            LoopClock(),
            node=NodeName("n1"),
            problems=self.problems,
            kubelet_identity=lambda: self.process,
            on_change=self.changed,
        )

    def changed(self) -> None:
        self.changes += 1

    async def get(
        self, resource: "Resource", type_: type[T], name: str, *, namespace: str | None = None
    ) -> T:
        assert (resource.plural, name, namespace) == ("nodes", "n1", None)
        assert isinstance(self.node, type_)
        return self.node

    async def configuration(self, url: str) -> KubeletConfiguration:
        self.asked.append(url)
        if isinstance(self.answer, KubeError):
            raise self.answer
        return self.answer


@pytest.fixture
def world() -> World:
    return World()


async def test_it_is_read_at_the_address_of_the_node(world: World):
    await world.reader.read()
    assert world.asked == ["https://10.0.0.1:10250"]
    assert (world.reader.configuration, world.changes) == (SINGLE, 1)
    assert world.problems.summary().reason is AgentDegraded.AS_EXPECTED


def test_an_address_of_ipv6_is_in_brackets():
    assert a_node(address="fd00::1").url == "https://[fd00::1]:10250"


async def test_labels_of_the_node_go_over_kubelet(world: World):
    world.node = a_node({TOPOLOGY_MANAGER_POLICY_LABEL: "restricted"})
    await world.reader.read()
    assert world.asked == []
    assert world.reader.configuration == KubeletConfiguration(
        topology_manager_policy=TopologyManagerPolicy.RESTRICTED
    )
    world.node = a_node(
        {TOPOLOGY_MANAGER_POLICY_LABEL: "single-numa-node", TOPOLOGY_MANAGER_SCOPE_LABEL: "pod"}
    )
    await world.reader.read()
    assert world.reader.configuration == SINGLE


async def test_an_invalid_label_is_named_with_what_is_valid(world: World):
    world.node = a_node({TOPOLOGY_MANAGER_POLICY_LABEL: "strict"})
    await world.reader.read()
    assert world.reader.configuration is None
    problem = world.problems.summary()
    assert problem.reason is AgentDegraded.KUBELET_CONFIGURATION_UNKNOWN
    assert "'strict'" in problem.text
    assert (
        f"{TOPOLOGY_MANAGER_POLICY_LABEL} of the node is one of none, best-effort" in problem.text
    )


async def test_without_the_right_it_is_unknown_and_the_problem_says_what_to_do(world: World):
    await world.reader.read()
    world.answer = DENIED
    await world.reader.read()
    assert world.reader.configuration is None
    problem = world.problems.summary()
    assert problem.reason is AgentDegraded.KUBELET_CONFIGURATION_UNKNOWN
    assert "count as topologyManagerPolicy none" in problem.text
    assert "nodes/configz" in problem.text
    assert TOPOLOGY_MANAGER_POLICY_LABEL in problem.text
    world.answer = SINGLE
    await world.reader.read()
    assert world.problems.summary().reason is AgentDegraded.AS_EXPECTED


async def test_a_kubelet_that_is_away_keeps_its_settings_and_is_reported_after_a_while(
    world: World,
):
    await world.reader.read()
    world.answer = AWAY
    for _ in range(REPORTED_AFTER - 1):
        await world.reader.read()
        assert world.problems.summary().reason is AgentDegraded.AS_EXPECTED
    await world.reader.read()
    assert world.reader.configuration == SINGLE
    assert "as before (policy single-numa-node, scope pod)" in world.problems.summary().text


async def test_a_node_without_an_address_yet_is_unknown(world: World):
    world.node = NodeOfKubelet()
    await world.reader.read()
    assert world.asked == []
    assert "no InternalIP" in world.problems.summary().text


@pytest.mark.looptime
async def test_another_kubelet_process_is_asked_at_once_and_the_same_every_minute(world: World):
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(world.reader.run())
        await asyncio.sleep(59)
        assert len(world.asked) == 1
        world.process = (1, 2, 2)
        world.answer = KubeletConfiguration()
        await asyncio.sleep(2)
        assert len(world.asked) == 2
        assert world.reader.configuration == KubeletConfiguration()
        await asyncio.sleep(62)
        assert len(world.asked) == 3
        assert world.changes == 2
        reading.cancel()


async def test_kubelets_port_gets_the_token_of_the_api_server():
    async with CannedApi() as kubelet:
        kubelet.will_answer(Json(ANSWER))
        port = KubeletPort(StaticConnection("https://elsewhere", token="secret"), LoopClock())
        assert await port.configuration(kubelet.url) == SINGLE
        (seen,) = kubelet.seen
        assert (seen.method, seen.path) == ("GET", "/configz")
        assert seen.headers["Authorization"] == "Bearer secret"


async def test_a_kubelet_that_refuses_or_says_something_else():
    async with CannedApi() as kubelet:
        kubelet.will_answer(
            Json(a_status(403, "Forbidden"), status=403),
            Json({"kubeletconfig": {"topologyManagerPolicy": "of-tomorrow"}}),
            Json([]),
        )
        port = KubeletPort(StaticConnection("https://elsewhere"), LoopClock())
        with pytest.raises(Forbidden):
            await port.configuration(kubelet.url)
        with pytest.raises(Undecodable, match="of-tomorrow"):
            await port.configuration(kubelet.url)
        with pytest.raises(Undecodable):
            await port.configuration(kubelet.url)
