"""The condition AgentDegraded: the worst of all problems, written where it differs."""

import asyncio
import random

import pytest

from agent.problems.condition import BEGINNING_S, CHECK_EVERY_S, DegradedConditionWriter
from agent.problems.registry import ProblemRegistry
from api.names import NodeName
from kube.errors import Forbidden, ServerError
from telemetry.conditions import AgentDegraded
from tests.support.agent_api import INVENTORIES, AgentApi
from tests.support.loop_clock import LoopClock

FINE = "the agent works without restrictions"
HANGS, FAILS = AgentDegraded.DRIVER_HANGS, AgentDegraded.DRIVER_FAILS


def test_the_first_reason_of_the_enum_wins_and_all_texts_are_joined():
    problems = ProblemRegistry()
    problems.set("plugin b", AgentDegraded.NOT_REGISTERED, "b is not known")
    problems.set("driver", HANGS, "no answer")
    problems.set("plugin a", AgentDegraded.NOT_REGISTERED, "a is not known")
    problems.set("plugin c", AgentDegraded.NOT_REGISTERED, "a is not known")
    problem = problems.summary()
    assert problem.reason is HANGS
    assert problem.text == "no answer; a is not known; b is not known"
    problems.clear("driver")
    assert problems.summary().reason is AgentDegraded.NOT_REGISTERED
    for source in ("plugin a", "plugin b", "plugin c", "never set"):
        problems.clear(source)
    assert problems.summary().reason is AgentDegraded.AS_EXPECTED


def test_only_a_new_problem_is_a_change():
    problems = ProblemRegistry()
    problems.clear("driver")
    assert not problems.changed.is_set()
    problems.set("driver", HANGS, "no answer")
    problems.changed.clear()
    problems.set("driver", HANGS, "no answer")
    assert not problems.changed.is_set()
    problems.set("driver", FAILS, "no answer")
    assert problems.changed.is_set()


class Running:
    def __init__(self, api: AgentApi, problems: ProblemRegistry) -> None:
        self._condition = DegradedConditionWriter(
            api, problems, LoopClock(), node=NodeName("n1"), rng=random.Random(3)
        )

    async def __aenter__(self) -> None:
        self._group = asyncio.TaskGroup()
        await self._group.__aenter__()
        self._task = self._group.create_task(self._condition.run())
        await asyncio.sleep(2)

    async def __aexit__(self, *error) -> None:
        self._task.cancel()
        await self._group.__aexit__(*error)


def current(api: AgentApi) -> tuple[str, ...]:
    (one,) = api.objects[INVENTORIES, "n1"]["status"]["conditions"]
    assert one["type"] == "AgentDegraded"
    return one["status"], one["reason"], one["message"], one["lastTransitionTime"][11:]


@pytest.fixture
def api() -> AgentApi:
    made = AgentApi()
    made.add_inventory("n1")
    return made


@pytest.mark.looptime
async def test_the_condition_follows_the_problems_and_its_time_the_status(api):
    problems = ProblemRegistry()
    async with Running(api, problems):
        assert current(api) == ("False", "AsExpected", FINE, "00:00:00Z")
        await asyncio.sleep(8)
        problems.set("driver", HANGS, "no answer")
        await asyncio.sleep(10)
        assert current(api) == ("True", "DriverHangs", "no answer", "00:00:11Z")
        problems.set("driver", FAILS, "error 9")
        await asyncio.sleep(10)
        assert current(api) == ("True", "DriverFails", "error 9", "00:00:11Z")
        problems.clear("driver")
        await asyncio.sleep(10)
        assert current(api)[:2] == ("False", "AsExpected")
    assert len(api.writes) == 4


@pytest.mark.looptime
async def test_a_restart_and_a_quiet_hour_write_nothing(api):
    async with Running(api, ProblemRegistry()):
        pass
    api.writes.clear()
    api.reads.clear()
    async with Running(api, ProblemRegistry()):
        await asyncio.sleep(3600)
    assert api.writes == []
    assert len(api.reads) <= 3600 / CHECK_EVERY_S + 1


@pytest.mark.looptime
async def test_a_problem_within_a_moment_is_not_written(api):
    problems = ProblemRegistry()
    async with Running(api, problems):
        api.writes.clear()
        for _ in range(5):
            problems.set("driver", HANGS, "no answer")
            await asyncio.sleep(0.05)
            problems.clear("driver")
        await asyncio.sleep(10)
    assert api.writes == []


@pytest.mark.looptime
async def test_an_inventory_that_is_not_there_yet_is_waited_for():
    api, problems = AgentApi(), ProblemRegistry()
    problems.set("driver", HANGS, "no answer")
    async with Running(api, problems):
        await asyncio.sleep(100)
        assert api.writes == []
        assert api.calls < 60
        api.add_inventory("n1")
        await asyncio.sleep(31)
        assert current(api)[:2] == ("True", "DriverHangs")


@pytest.mark.looptime
async def test_a_removed_condition_comes_back(api):
    problems = ProblemRegistry()
    problems.set("driver", HANGS, "no answer")
    async with Running(api, problems):
        api.objects[INVENTORIES, "n1"]["status"]["conditions"] = []
        await asyncio.sleep(CHECK_EVERY_S + 2)
        assert current(api)[:2] == ("True", "DriverHangs")


@pytest.mark.looptime
@pytest.mark.parametrize("error", [Forbidden(403, "", "no"), ServerError(503, "", "later")])
async def test_a_failed_write_is_retried_with_backoff(api, error):
    problems = ProblemRegistry()
    api.fail = [error] * 1000
    async with Running(api, problems):
        await asyncio.sleep(300)
        assert 10 <= api.calls <= 100
        api.fail.clear()
        problems.set("driver", HANGS, "no answer")
        await asyncio.sleep(31)
        assert current(api)[:2] == ("True", "DriverHangs")
    assert len(api.writes) == 1


@pytest.mark.looptime
async def test_a_problem_that_outlasts_a_restart_is_not_cleared_in_between(api):
    before = ProblemRegistry()
    before.set("driver", HANGS, "no answer")
    async with Running(api, before):
        pass
    was = current(api)
    api.writes.clear()
    problems = ProblemRegistry()
    async with Running(api, problems):
        # A look at a driver that hangs takes its time.
        await asyncio.sleep(6)
        problems.set("driver", HANGS, "no answer")
        await asyncio.sleep(60)
    assert api.writes == []
    assert current(api) == was


@pytest.mark.looptime
async def test_a_problem_that_is_over_after_a_restart_is_cleared_soon(api):
    before = ProblemRegistry()
    before.set("driver", HANGS, "no answer")
    async with Running(api, before):
        pass
    async with Running(api, ProblemRegistry()):
        await asyncio.sleep(BEGINNING_S + 2)
        assert current(api)[:2] == ("False", "AsExpected")
