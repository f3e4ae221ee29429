"""The node's NodeFeature in virtual time: one write a change, one small one a minute, and whatever fails."""

import asyncio
import copy
import datetime as dt
import random

import pytest

from agent.inventory.node_devices import PublishedFeatures
from agent.inventory.publisher import HEARTBEAT_S, FeaturePublisher
from agent.problems.registry import ProblemRegistry
from api.foreign.nodefeature import HEARTBEAT_ANNOTATION, NODE_NAME_LABEL
from api.names import NodeName
from kube.errors import Conflict, Forbidden, NotFound, ServerError, TimedOut, TooManyRequests
from telemetry.conditions import AgentDegraded
from tests.support.agent_api import FEATURES, AgentApi
from tests.support.loop_clock import LoopClock

pytestmark = pytest.mark.looptime

NAME = "gpu-control-plane-agent-n1"
ONE = PublishedFeatures(devices=({"pci.address": "0000:17:00.0", "uuid": "GPU-1"},), node={})
TWO = PublishedFeatures(
    devices=(*ONE.devices, {"pci.address": "0000:18:00.0"}), node={"cuda.version": "12.8"}
)


@pytest.fixture
def api() -> AgentApi:
    made = AgentApi()
    made.add_node("n1")
    return made


@pytest.fixture
def problems() -> ProblemRegistry:
    return ProblemRegistry()


class Running:
    """A publisher that runs while the block does."""

    def __init__(self, api: AgentApi, problems: ProblemRegistry, **changes) -> None:
        self.publisher = FeaturePublisher(
            api,
            problems,
            LoopClock(),
            node=NodeName("n1"),
            namespace="gpu",
            rng=random.Random(7),
            **changes,
        )

    async def __aenter__(self) -> FeaturePublisher:
        self._group = asyncio.TaskGroup()
        await self._group.__aenter__()
        self._task = self._group.create_task(self.publisher.run())
        return self.publisher

    async def __aexit__(self, *error) -> None:
        self._task.cancel()
        await self._group.__aexit__(*error)


async def test_a_quiet_hour_is_one_write_and_a_heartbeat_a_minute(api, problems):
    async with Running(api, problems) as publisher:
        publisher.publish(ONE)
        for _ in range(3600):
            await asyncio.sleep(1)
            # Every look says the same again.
            publisher.publish(PublishedFeatures(devices=({**ONE.devices[0]},), node={}))
    assert api.count("apply", FEATURES) == 1
    assert api.count("json_patch", FEATURES) in {59, 60}
    assert len(api.writes) == api.count("apply", FEATURES) + api.count("json_patch", FEATURES)
    # The object and the node, when it begins.
    assert len(api.reads) == 2


async def test_the_heartbeat_is_never_older_than_a_minute(api, problems):
    async with Running(api, problems) as publisher:
        publisher.publish(ONE)
        clock = LoopClock()
        for second in range(600):
            await asyncio.sleep(1)
            current = api.feature(NAME)["metadata"]["annotations"][HEARTBEAT_ANNOTATION]
            age_s = clock.utc_now().timestamp() - _seconds(current)
            assert age_s <= HEARTBEAT_S + 1, second
            if second == 100:
                publisher.publish(TWO)


def _seconds(text: str) -> float:
    return dt.datetime.fromisoformat(text).timestamp()


async def test_nothing_is_published_before_the_first_content(api, problems):
    async with Running(api, problems):
        await asyncio.sleep(600)
    assert api.calls == 0


async def test_a_change_is_one_write_and_puts_the_heartbeat_off(api, problems):
    async with Running(api, problems) as publisher:
        publisher.publish(ONE)
        await asyncio.sleep(50)
        publisher.publish(TWO)
        await asyncio.sleep(1)
        elements = api.feature(NAME)["spec"]["features"]["instances"]["gpu.deckhouse.io/device"]
        assert [element["attributes"] for element in elements["elements"]] == list(TWO.devices)
        await asyncio.sleep(50)
    assert api.writes == [("apply", FEATURES), ("apply", FEATURES)]


async def test_it_goes_with_its_node(api, problems):
    async with Running(api, problems) as publisher:
        publisher.publish(ONE)
        await asyncio.sleep(1)
    (owner,) = api.feature(NAME)["metadata"]["ownerReferences"]
    assert owner == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "uid-node"}


async def test_an_agent_that_may_not_see_its_node_publishes_all_the_same(problems):
    api = AgentApi()
    async with Running(api, problems) as publisher:
        publisher.publish(ONE)
        await asyncio.sleep(1)
    assert "ownerReferences" not in api.feature(NAME)["metadata"]


async def test_a_restart_that_finds_the_same_writes_a_heartbeat_only_and_keeps_the_owner(
    api, problems
):
    async with Running(api, problems) as publisher:
        publisher.publish(ONE)
        await asyncio.sleep(1)
    api.writes.clear()
    async with Running(api, ProblemRegistry()) as publisher:
        publisher.publish(ONE)
        await asyncio.sleep(10)
        assert api.writes == [("json_patch", FEATURES)]
        publisher.publish(TWO)
        await asyncio.sleep(1)
    assert api.feature(NAME)["metadata"]["ownerReferences"][0]["uid"] == "uid-node"


async def test_a_restart_that_finds_something_else_writes_at_once(api, problems):
    async with Running(api, problems) as publisher:
        publisher.publish(ONE)
        await asyncio.sleep(1)
    async with Running(api, ProblemRegistry()) as publisher:
        publisher.publish(TWO)
        await asyncio.sleep(1)
    assert api.count("apply", FEATURES) == 2


def _delete(api: AgentApi) -> None:
    del api.objects[FEATURES, NAME]
    # As where the node itself was made again.
    api.add_node("n1", "uid-another")


def _change_devices(api: AgentApi) -> None:
    feature = api.feature(NAME)
    feature["spec"]["features"]["instances"] = {}
    feature["metadata"]["generation"] += 1


def _change_label(api: AgentApi) -> None:
    api.feature(NAME)["metadata"]["labels"][NODE_NAME_LABEL] = "n2"


def _replace(api: AgentApi) -> None:
    feature = api.feature(NAME)
    feature["metadata"]["uid"] = "uid-of-another"
    feature["spec"] = {"features": {}}


def _take_annotations(api: AgentApi) -> None:
    del api.feature(NAME)["metadata"]["annotations"]


@pytest.mark.parametrize(
    "harm", [_delete, _change_devices, _change_label, _replace, _take_annotations]
)
async def test_a_foreign_change_is_undone_with_the_next_heartbeat(api, problems, harm):
    async with Running(api, problems) as publisher:
        publisher.publish(TWO)
        await asyncio.sleep(1)
        want = copy.deepcopy(api.feature(NAME)["spec"])
        harm(api)
        await asyncio.sleep(HEARTBEAT_S + 1)
        feature = api.feature(NAME)
        assert feature["spec"] == want
        assert feature["metadata"]["labels"] == {NODE_NAME_LABEL: "n1"}
        assert HEARTBEAT_ANNOTATION in feature["metadata"]["annotations"]
        uid = feature["metadata"]["ownerReferences"][0]["uid"]
        assert uid == ("uid-another" if harm is _delete else "uid-node")
        api.writes.clear()
        await asyncio.sleep(HEARTBEAT_S + 1)
        assert api.writes == [("json_patch", FEATURES)]


FAILURES = [
    NotFound(404, "NotFound", "the server could not find the requested resource"),
    Forbidden(403, "Forbidden", "nodefeatures is forbidden"),
    Conflict(409, "Conflict", "try again"),
    ServerError(500, "", "etcd is away"),
    TooManyRequests(429, "TooManyRequests", "later", retry_after_s=5.0),
    TimedOut("no answer", request_sent=True),
]


@pytest.fixture(params=FAILURES, ids=lambda item: type(item).__name__)
def failing(request, api: AgentApi) -> AgentApi:
    """Every write fails, until the list is emptied."""
    api.fail = [request.param] * 1000
    return api


async def test_a_failure_is_a_problem_and_retried_with_backoff(failing, problems):
    async with Running(failing, problems) as publisher:
        publisher.publish(ONE)
        await asyncio.sleep(300)
        calls = failing.calls
        assert 10 <= calls <= 120
        problem = problems.summary()
        assert problem.reason is AgentDegraded.NOT_PUBLISHED
        assert NAME in problem.text
        # What is to be said meanwhile is said in the end, and once.
        publisher.publish(TWO)
        failing.fail.clear()
        await asyncio.sleep(31)
        assert failing.count("apply", FEATURES) == 1
        assert problems.summary().reason is AgentDegraded.AS_EXPECTED


async def test_a_kind_of_failure_is_logged_once(api, problems):
    reported = []
    problems.set = lambda *words: reported.append(words)
    async with Running(api, problems) as publisher:
        publisher.publish(ONE)
        await asyncio.sleep(1)
        api.fail = [ServerError(500, "", f"text {number}") for number in range(8)]
        await asyncio.sleep(200)
        assert api.fail == []
    assert len(reported) == 1


async def test_an_outage_of_the_api_server_costs_no_write_afterwards_but_the_heartbeat(
    api, problems
):
    async with Running(api, problems) as publisher:
        publisher.publish(ONE)
        await asyncio.sleep(30)
        api.fail = [TimedOut("no answer", request_sent=False)] * 1000
        await asyncio.sleep(600)
        api.fail.clear()
        api.writes.clear()
        await asyncio.sleep(40)
    assert api.writes == [("json_patch", FEATURES)]


async def test_a_write_with_an_unknown_result_is_not_trusted(api, problems):
    async with Running(api, problems) as publisher:
        publisher.publish(ONE)
        await asyncio.sleep(1)
        api.fail_afterwards = [TimedOut("no answer", request_sent=True)]
        publisher.publish(TWO)
        await asyncio.sleep(0.2)
        assert not api.fail_afterwards
        publisher.publish(ONE)
        await asyncio.sleep(31)
        elements = api.feature(NAME)["spec"]["features"]["instances"]["gpu.deckhouse.io/device"]
        assert [element["attributes"] for element in elements["elements"]] == list(ONE.devices)
