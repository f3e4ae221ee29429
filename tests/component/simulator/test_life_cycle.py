"""Start, stop, users, https."""

import ssl

import aiohttp
import pytest

from simulator.apiserver.server import InMemoryApiServer
from simulator.apiserver.webhooks.chain import User
from tests.support.api_servers import Api
from tests.support.loop_clock import LoopClock
from tests.support.webhook_server import Authority

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


async def test_a_restart_keeps_objects_and_port_and_ends_watches() -> None:
    server = InMemoryApiServer(LoopClock())
    async with aiohttp.ClientSession() as session:
        async with server:
            url = server.url
            api = Api(session, url)
            created = await api.created(CONFIGMAPS, {"metadata": {"name": "c"}})
            async with api.watch(CONFIGMAPS, resourceVersion=created.version) as events:
                await server.stop()
                await events.end()
        with pytest.raises(aiohttp.ClientError):
            await api.get(CONFIGMAPS)
        async with server:
            assert server.url == url
            assert (await api.get(f"{CONFIGMAPS}/c")).body == created.body


async def test_starting_twice_is_an_error_and_stopping_twice_is_not() -> None:
    server = InMemoryApiServer(LoopClock())
    async with server:
        with pytest.raises(RuntimeError, match="started already"):
            await server.start()
    await server.stop()


async def test_users_come_from_tokens_and_strangers_are_refused() -> None:
    tokens = {"a-token": User(name="alice", groups=("team",))}
    async with (
        InMemoryApiServer(LoopClock(), tokens=tokens) as server,
        aiohttp.ClientSession() as nobody,
        aiohttp.ClientSession(headers={"Authorization": "Bearer other"}) as stranger,
        aiohttp.ClientSession(headers={"Authorization": "Bearer a-token"}) as alice,
    ):
        for session in (nobody, stranger):
            answer = await Api(session, server.url).get(CONFIGMAPS)
            assert (answer.status, answer.reason) == (401, "Unauthorized")
            assert (await Api(session, server.url).get("/readyz")).status == 200
        assert (await Api(alice, server.url).get(CONFIGMAPS)).status == 200
        assert [request.user for request in server.requests] == ["alice"]


async def test_https_is_served_with_the_context_given() -> None:
    authority = Authority()
    context = ssl.create_default_context(cadata=authority.pem.decode())
    serving = authority.server_context()
    async with (
        InMemoryApiServer(LoopClock(), ssl_context=serving) as server,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
    ):
        assert server.url.startswith("https://127.0.0.1:")
        assert (await Api(session, server.url).get(CONFIGMAPS)).status == 200


async def test_objects_are_dated_by_the_clock() -> None:
    clock = LoopClock()
    clock.wall_offset_s = -clock.utc_now().timestamp()
    async with InMemoryApiServer(clock) as server, aiohttp.ClientSession() as session:
        answer = await Api(session, server.url).created(CONFIGMAPS, {"metadata": {"name": "c"}})
    assert answer.body["metadata"]["creationTimestamp"].startswith("1970-01-01T00:00:0")


async def test_a_large_body_is_taken_and_a_huge_one_is_not(api: Api) -> None:
    body = {"metadata": {"name": "c"}, "data": {"a": "x" * 2_000_000}}
    assert (await api.post(CONFIGMAPS, body)).status == 201
    body = {"metadata": {"name": "d"}, "data": {"a": "x" * 4_000_000}}
    answer = await api.post(CONFIGMAPS, body)
    assert (answer.status, answer.reason) == (413, "RequestEntityTooLarge")
