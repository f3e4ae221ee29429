"""The bounded history behind watches and pages."""

import asyncio

import pytest

from simulator.apiserver.server import InMemoryApiServer
from tests.support.api_servers import Api

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


async def _make(api: Api, count: int, prefix: str = "c") -> None:
    for index in range(count):
        await api.created(CONFIGMAPS, {"metadata": {"name": f"{prefix}{index}"}})


async def test_a_version_that_is_too_old_is_gone(api: Api) -> None:
    async with api.watch(CONFIGMAPS, resourceVersion="1") as events:
        event = await events.next()
        await events.end()
    assert event["type"] == "ERROR"
    assert event["object"]["kind"] == "Status"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
    assert event["object"]["message"].startswith("too old resource version: 1 (")


async def test_a_forgotten_history_is_gone_for_those_who_resume(
    server: InMemoryApiServer, api: Api
) -> None:
    version = (await api.get(CONFIGMAPS)).version
    await _make(api, 1)
    server.forget_history()
    async with api.watch(CONFIGMAPS, resourceVersion=version) as events:
        assert (await events.next())["object"]["code"] == 410
    version = (await api.get(CONFIGMAPS)).version
    async with api.watch(CONFIGMAPS, resourceVersion=version) as events:
        await _make(api, 1, "later")
        assert await events.next_change() == ("ADDED", "later0")


async def test_history_is_bounded(api: Api) -> None:
    version = (await api.get(CONFIGMAPS)).version
    await _make(api, 201)
    async with api.watch(CONFIGMAPS, resourceVersion=version) as events:
        assert (await events.next())["type"] == "ERROR"


async def test_the_limit_of_changes_is_always_there(api: Api) -> None:
    await _make(api, 150)
    version = (await api.get(CONFIGMAPS)).version
    await _make(api, 100, "d")
    async with api.watch(CONFIGMAPS, resourceVersion=version) as events:
        found = [await events.next_change() for _ in range(100)]
    assert found == [("ADDED", f"d{index}") for index in range(100)]


async def test_a_page_whose_version_is_forgotten_has_expired(
    server: InMemoryApiServer, api: Api
) -> None:
    await _make(api, 3)
    first = await api.get(CONFIGMAPS, limit="1")
    await _make(api, 1, "d")
    server.forget_history()
    token = first.body["metadata"]["continue"]
    answer = await api.get(CONFIGMAPS, limit="1", **{"continue": token})
    assert (answer.status, answer.reason) == (410, "Expired")


@pytest.mark.looptime
async def test_bookmarks_come_regularly_and_move_on(api: Api) -> None:
    loop = asyncio.get_running_loop()
    version = (await api.get(CONFIGMAPS)).version
    query = {"resourceVersion": version, "allowWatchBookmarks": "true"}
    async with api.watch(CONFIGMAPS, **query) as events:
        start = loop.time()
        # Another kind moves the version that the bookmark vouches for.
        await api.created("/api/v1/namespaces/default/secrets", {"metadata": {"name": "s"}})
        event = await events.next()
        assert event["type"] == "BOOKMARK"
        assert int(event["object"]["metadata"]["resourceVersion"]) > int(version)
        assert 9 <= loop.time() - start <= 11
        assert (await events.next())["type"] == "BOOKMARK"


@pytest.mark.looptime
async def test_bookmarks_are_sent_on_request_only(api: Api) -> None:
    version = (await api.get(CONFIGMAPS)).version
    async with api.watch(CONFIGMAPS, resourceVersion=version, timeoutSeconds="200") as events:
        with pytest.raises(TimeoutError):
            await events.next()


async def test_many_watchers_all_see_everything(api: Api) -> None:
    version = (await api.get(CONFIGMAPS)).version

    async def follow() -> list[tuple[str, str]]:
        async with api.watch(CONFIGMAPS, resourceVersion=version) as events:
            return [await events.next_change() for _ in range(30)]

    async with asyncio.TaskGroup() as group:
        watchers = [group.create_task(follow()) for _ in range(5)]
        await _make(api, 30)
    want = [("ADDED", f"c{index}") for index in range(30)]
    assert [task.result() for task in watchers] == [want] * 5
