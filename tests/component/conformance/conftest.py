"""The server under test: always the one in memory, and a real one where the environment names it."""

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from tests.support.api_servers import (
    Api,
    in_memory_api,
    real_api,
    real_api_is_configured,
    unique,
)
from tests.support.conformance import CRDS, Hooks, Widgets, a_definition, until
from tests.support.webhook_server import webhook_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_SERVERS = ["in-memory", *(["real"] if real_api_is_configured() else [])]


@pytest.fixture(params=_SERVERS)
async def api(request: pytest.FixtureRequest) -> "AsyncIterator[Api]":
    async with in_memory_api() if request.param == "in-memory" else real_api() as opened:
        yield opened


@pytest.fixture
async def namespace(api: Api) -> str:
    name = unique("c")
    await api.created("/api/v1/namespaces", {"metadata": {"name": name}})
    return name


@pytest.fixture
def pods(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


@pytest.fixture
def configmaps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


@asynccontextmanager
async def _widgets(api: Api, scope: str, namespace: str) -> "AsyncIterator[Widgets]":
    group = unique("g") + ".example"
    await api.created(CRDS, a_definition(group, scope))
    space = f"/namespaces/{namespace}" if namespace else ""
    path = f"/apis/{group}/v1{space}/widgets"
    try:
        await until(lambda: api.get(path), lambda answer: answer.status == 200)
        yield Widgets(group, path)
    finally:
        await api.delete(f"{CRDS}/widgets.{group}")


@pytest.fixture
async def widgets(api: Api) -> "AsyncIterator[Widgets]":
    async with _widgets(api, "Cluster", "") as served:
        yield served


@pytest.fixture
async def spaced_widgets(api: Api, namespace: str) -> "AsyncIterator[Widgets]":
    async with _widgets(api, "Namespaced", namespace) as served:
        yield served


@pytest.fixture
async def hooks(api: Api, namespace: str) -> "AsyncIterator[Hooks]":
    async with webhook_server() as server:
        made = Hooks(api, namespace, server)
        yield made
        await made.remove()


