"""Requests that fail because a test said so, and the log of what came in."""

import asyncio
import re

import aiohttp
import pytest

from simulator.apiserver.injection import Breakage, InjectedError
from simulator.apiserver.server import InMemoryApiServer
from tests.support.api_servers import Api
from tests.support.conformance import a_pod

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"


async def test_a_request_can_be_answered_with_a_status(server: InMemoryApiServer, api: Api) -> None:
    server.faults.fail("POST", "/configmaps$", 503)
    answer = await api.post(CONFIGMAPS, {"metadata": {"name": "c"}})
    assert answer.status == 503
    assert (await api.get(f"{CONFIGMAPS}/c")).status == 404
    await api.created(CONFIGMAPS, {"metadata": {"name": "c"}})


async def test_a_rule_picks_the_nth_request_and_as_many_as_it_says(
    server: InMemoryApiServer, api: Api
) -> None:
    server.faults.fail("GET", "/configmaps$", 500, nth=2, times=2)
    statuses = [(await api.get(CONFIGMAPS)).status for _ in range(4)]
    assert statuses == [200, 500, 500, 200]


async def test_a_rule_leaves_other_methods_and_paths_alone(
    server: InMemoryApiServer, api: Api
) -> None:
    server.faults.fail("POST", "/pods$", 500, times=9)
    assert (await api.get(PODS)).status == 200
    await api.created(CONFIGMAPS, {"metadata": {"name": "c"}})


async def test_a_rule_tells_a_watch_from_its_list(server: InMemoryApiServer, api: Api) -> None:
    path, query = re.compile("/configmaps$"), re.compile("watch=")
    server.faults.add(
        InjectedError(breakage=Breakage.STATUS, method="GET", path=path, query=query, times=9)
    )
    assert (await api.get(CONFIGMAPS)).status == 200
    assert (await api.get(CONFIGMAPS, watch="1")).status == 500


@pytest.mark.parametrize(("user", "expected_status"), [("system:admin", 500), ("another", 200)])
async def test_a_rule_may_be_for_one_user(
    server: InMemoryApiServer, api: Api, user: str, expected_status: int
) -> None:
    path = re.compile("/configmaps$")
    server.faults.add(InjectedError(breakage=Breakage.STATUS, method="", path=path, user=user))
    assert (await api.get(CONFIGMAPS)).status == expected_status


async def test_a_reset_before_leaves_nothing_behind(server: InMemoryApiServer, api: Api) -> None:
    server.faults.reset_before("POST", "/configmaps$")
    with pytest.raises(aiohttp.ClientError):
        await api.post(CONFIGMAPS, {"metadata": {"name": "c"}})
    assert (await api.get(f"{CONFIGMAPS}/c")).status == 404


async def test_a_reset_after_has_written(server: InMemoryApiServer, api: Api) -> None:
    await api.created(PODS, a_pod("p"))
    server.faults.reset_after("POST", "/binding$")
    binding = {"metadata": {"name": "p"}, "target": {"name": "n"}}
    with pytest.raises(aiohttp.ClientError):
        await api.post(f"{PODS}/p/binding", binding)
    assert (await api.get(f"{PODS}/p")).body["spec"]["nodeName"] == "n"


@pytest.mark.looptime
async def test_a_delay_holds_the_request_back(server: InMemoryApiServer, api: Api) -> None:
    loop = asyncio.get_running_loop()
    server.faults.delay("GET", "/configmaps$", 7.5)
    start = loop.time()
    assert (await api.get(CONFIGMAPS)).status == 200
    assert loop.time() - start >= 7.5


async def test_cleared_rules_do_nothing(server: InMemoryApiServer, api: Api) -> None:
    server.faults.fail("", "", 500, times=99)
    server.faults.clear()
    assert (await api.get(CONFIGMAPS)).status == 200


async def test_writes_are_counted_and_dry_runs_are_not(server: InMemoryApiServer, api: Api) -> None:
    await api.created(CONFIGMAPS, {"metadata": {"name": "c"}})
    await api.merge(f"{CONFIGMAPS}/c", {"data": {"a": "b"}}, dryRun="All")
    await api.get(f"{CONFIGMAPS}/c")
    await api.delete(f"{CONFIGMAPS}/c")
    writes = [(write.method, write.path) for write in server.requests.writes()]
    assert writes == [("POST", CONFIGMAPS), ("DELETE", f"{CONFIGMAPS}/c")]
    assert len(server.requests) == 4


async def test_writes_are_found_by_path_and_user(server: InMemoryApiServer, api: Api) -> None:
    await api.created(CONFIGMAPS, {"metadata": {"name": "c"}})
    await api.created(PODS, a_pod("p"))
    assert len(server.requests.writes(path="/pods")) == 1
    assert len(server.requests.writes(user="system:admin")) == 2
    assert server.requests.writes(user="somebody") == []
    server.requests.clear()
    assert len(server.requests) == 0


async def test_an_open_watch_can_be_cut(server: InMemoryApiServer, api: Api) -> None:
    version = (await api.get(CONFIGMAPS)).version
    async with api.watch(CONFIGMAPS, resourceVersion=version) as events:
        server.drop_watches()
        with pytest.raises(aiohttp.ClientError):
            await events.next()
    assert (await api.get(CONFIGMAPS)).status == 200
