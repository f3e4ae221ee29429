"""A client in process gets what a client over HTTP gets: one scenario over both ways, compared answer by answer."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from kube.client import KubeClient, WriteResponse
from kube.config.connection import StaticConnection
from kube.errors import KubeError, NotFound, TimedOut, Unreachable
from kube.resources import CUSTOM_RESOURCE_DEFINITIONS, GPU_POOLS, NAMESPACES, NODES, PODS, Resource
from kube.transport import ApiRequest, Transport
from manifests.install.crds import build_crds
from simulator.apiserver.server import InMemoryApiServer
from simulator.apiserver.webhooks.chain import User
from telemetry.metrics import REGISTRY
from tests.support.loop_clock import LoopClock

WAYS = ("http", "in process")
TOKENS = {"t0": User(name="alice"), "t1": User(name="bob")}
POOL = {"apiVersion": "gpu.deckhouse.io/v1alpha1", "kind": "GPUPool", "metadata": {"name": "p"}}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@asynccontextmanager
async def opened(
    way: str, *, token: str = "t0", timeout_s: float = 120.0, agent: str = "alice/1.2"
) -> AsyncIterator[tuple[InMemoryApiServer, KubeClient]]:
    clock = LoopClock()
    async with InMemoryApiServer(clock, tokens=TOKENS) as api:
        transport = Transport if way == "http" else api.in_process
        connection = StaticConnection(api.url, token=token)
        async with KubeClient(
            connection, clock, user_agent=agent, timeout_s=timeout_s, make_transport=transport
        ) as client:
            yield api, client


def a_pod(name: str) -> dict[str, Any]:
    containers = [{"name": "c", "image": "i"}]
    meta = {"name": name, "namespace": "default", "labels": {"app": "x"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": containers}}


class Outcomes:
    """What a client was answered, without what differs from run to run."""

    def __init__(self) -> None:
        self.all: list[str] = []

    async def of(self, request: Awaitable[object]) -> None:
        try:
            answer = await request
        except KubeError as error:
            self.all.append(_plain(f"{type(error).__name__}: {error}"))
        else:
            self.all.append(_plain(msgspec.json.encode(answer).decode()))


def _plain(text: str) -> str:
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "UID", text)
    return re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)


async def _scenario(way: str) -> tuple[list[str], list[object]]:
    outcomes = Outcomes()
    async with opened(way) as (api, client):

        async def read(resource: Resource, name: str, namespace: str | None = None) -> object:
            return await client.get(resource, dict[str, Any], name, namespace=namespace)

        async def listed(**options: Any) -> object:
            found = await client.list_(PODS, dict[str, Any], **options)
            return [found.items, found.resource_version]

        async def written(request: Awaitable[WriteResponse]) -> object:
            return (await request).decode(dict[str, Any])

        for definition in build_crds():
            created = written(client.create(CUSTOM_RESOURCE_DEFINITIONS, definition))
            await outcomes.of(created)
        apply = client.apply
        for request in (
            client.server_version,
            lambda: written(client.create(PODS, a_pod("a"))),
            lambda: written(client.create(PODS, a_pod("a"))),
            lambda: written(client.create(PODS, a_pod("b"))),
            lambda: written(client.create(PODS, a_pod("Bad_Name"))),
            lambda: written(client.create(NODES, {"metadata": {"name": "n%1 ?"}})),
            lambda: read(PODS, "a", "default"),
            lambda: read(PODS, "none", "default"),
            lambda: listed(namespace="default", label_selector="app in (x, y)", page_size=1),
            lambda: listed(field_selector="metadata.name=b"),
            lambda: listed(label_selector="app in ("),
            lambda: client.merge_patch(
                PODS, {"metadata": {"labels": {"a": "b"}}}, name="a", namespace="default"
            ),
            lambda: client.json_patch(
                PODS,
                [{"op": "test", "path": "/kind", "value": "x"}],
                name="a",
                namespace="default",
            ),
            lambda: written(apply(GPU_POOLS, {**POOL, "spec": {}}, field_manager="m1")),
            lambda: written(apply(GPU_POOLS, {**POOL, "spec": {"weird": 1}}, field_manager="m1")),
            lambda: written(apply(NAMESPACES, _namespace({"l": "1"}), field_manager="m1")),
            lambda: written(
                apply(NAMESPACES, _namespace({"l": "2"}), field_manager="m2", force=False)
            ),
            lambda: client.delete(PODS, "a", namespace="default", uid="another"),
            lambda: client.delete(PODS, "a", namespace="default", grace_period_s=0),
            lambda: client.delete(PODS, "a", namespace="default"),
            lambda: client.can_list(PODS),
            lambda: written(client.create(PODS, a_pod("c") | {"padding": "x" * (3 * 1024 * 1024)})),
            lambda: read(PODS, "b", "default"),
        ):
            await outcomes.of(request())  # type: ignore[no-untyped-call]  # lambdas have no types
        return outcomes.all, list(api.requests)


def _namespace(labels: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "labels": labels}}


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
async def test_every_answer_and_the_log_of_requests_are_those_of_http():
    """Managed fields included: the user agent names the manager."""
    over_http, in_process = [await _scenario(way) for way in WAYS]
    assert in_process == over_http
    assert any('"manager":"alice"' in answer for answer in in_process[0])


async def test_a_token_names_the_user(way: str):
    async with opened(way, token="t1") as (api, client):
        await client.create(PODS, a_pod("a"))
        assert {seen.user for seen in api.requests} == {"bob"}
    async with opened(way, token="unknown") as (_, client):
        with pytest.raises(KubeError, match="401 Unauthorized"):
            await client.create(PODS, a_pod("a"))


async def test_injected_errors(way: str):
    async with opened(way, timeout_s=0.05) as (api, client):
        api.faults.fail("POST", "pods", 503)
        with pytest.raises(KubeError, match="503"):
            await client.create(PODS, a_pod("a"))
        api.faults.reset_before("POST", "pods")
        with pytest.raises(Unreachable) as reset:
            await client.create(PODS, a_pod("a"))
        assert reset.value.request_sent
        with pytest.raises(NotFound):
            await client.get(PODS, dict[str, Any], "a", namespace="default")
        api.faults.reset_after("POST", "pods")
        with pytest.raises(Unreachable) as reset:
            await client.create(PODS, a_pod("a"))
        assert reset.value.request_sent
        await client.get(PODS, dict[str, Any], "a", namespace="default")
        api.faults.delay("POST", "pods", 3600.0)
        with pytest.raises(TimedOut) as late:
            await client.create(PODS, a_pod("b"))
        assert late.value.request_sent
        with pytest.raises(NotFound):
            await client.get(PODS, dict[str, Any], "b", namespace="default")


async def test_a_server_that_is_stopped_is_not_reached(way: str):
    async with opened(way) as (api, client):
        await client.create(PODS, a_pod("a"))
        await api.stop()
        with pytest.raises(Unreachable) as refused:
            await client.create(PODS, a_pod("b"))
        assert not refused.value.request_sent
        await api.start()
        await client.get(PODS, dict[str, Any], "a", namespace="default")


@asynccontextmanager
async def _watching(
    client: KubeClient, version: str = "", *, timeout_s: int = 3600, idle_timeout_s: float = 3600
) -> AsyncIterator[AsyncIterator[bytes]]:
    version = version or await _version(client)
    async with client.watch(
        PODS, resource_version=version, timeout_s=timeout_s, idle_timeout_s=idle_timeout_s
    ) as lines:
        yield lines


async def _version(client: KubeClient) -> str:
    return (await client.list_(PODS, dict[str, Any])).resource_version


async def _name(lines: AsyncIterator[bytes]) -> str:
    event = msgspec.json.decode(await anext(lines))
    return f"{event['type']} {event['object']['metadata'].get('name')}"


async def test_a_watch_brings_what_was_and_what_comes(way: str):
    async with opened(way) as (_, client):
        version = await _version(client)
        await client.create(PODS, a_pod("a"))
        async with _watching(client, version) as lines:
            assert await _name(lines) == "ADDED a"
            await client.create(PODS, a_pod("b"))
            assert await _name(lines) == "ADDED b"
            await client.delete(PODS, "a", namespace="default", grace_period_s=0)
            assert await _name(lines) == "DELETED a"


async def test_a_watch_ends_in_order_or_breaks(way: str):
    async with opened(way) as (api, client):
        async with _watching(client, timeout_s=1) as lines:
            assert await _name(lines) == "BOOKMARK None"
            assert [line async for line in lines] == []
        async with _watching(client, idle_timeout_s=0.05) as lines:
            with pytest.raises(TimedOut):
                await anext(lines)
        async with _watching(client) as lines:
            asyncio.get_running_loop().call_later(0.02, api.drop_watches)
            with pytest.raises(Unreachable):
                await anext(lines)
        async with _watching(client) as lines:
            stopping = asyncio.create_task(api.stop())  # noqa: TID251  # ends with the test
            assert [line async for line in lines] == []
            await stopping


async def test_a_watch_of_a_version_that_is_forgotten(way: str):
    async with opened(way) as (api, client):
        version = await _version(client)
        await client.create(PODS, a_pod("a"))
        api.forget_history()
        async with _watching(client, version) as lines:
            event = msgspec.json.decode(await anext(lines))
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


async def test_requests_are_measured(way: str):
    def count(method: str, code: str) -> float:
        labels = {"method": method, "resource": "pods", "code": code}
        return REGISTRY.get_sample_value("gpu_api_request_duration_seconds_count", labels) or 0.0

    async with opened(way) as (_, client):
        before = [count("POST", "201"), count("POST", "409"), count("WATCH", "200")]
        await client.create(PODS, a_pod("a"))
        with pytest.raises(KubeError):
            await client.create(PODS, a_pod("a"))
        async with _watching(client):
            pass
        after = [count("POST", "201"), count("POST", "409"), count("WATCH", "200")]
    assert [late - early for late, early in zip(after, before, strict=True)] == [1, 1, 1]


async def test_closing_the_client_breaks_its_watches_alone():
    async with opened("in process") as (api, client):
        way = api.in_process(
            StaticConnection("", token="t1"), LoopClock(), user_agent="b", timeout_s=9
        )
        await way.open()
        query = {"watch": "true", "resourceVersion": await _version(client)}
        request = ApiRequest(method="GET", path=PODS.path(None), label="pods", query=query)
        async with way.stream(request, idle_timeout_s=3600) as theirs, _watching(client) as ours:
            await way.close()
            with pytest.raises(Unreachable):
                await anext(theirs)
            await client.create(PODS, a_pod("a"))
            assert await _name(ours) == "ADDED a"
