"""The server under test: always the one in memory, and a real one where the environment names it."""

from functools import partial
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from manifests.install.crds import build_crds
from tests.support.api_servers import (
    Api,
    in_memory_api,
    real_api,
    real_api_is_configured,
    unique,
)
from tests.support.conformance import CRDS, GROUP_PATH, Hooks, Widgets, a_definition, until
from tests.support.webhook_server import webhook_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_SERVERS = ["in-memory", *(["real"] if real_api_is_configured() else [])]


@pytest.fixture(params=_SERVERS)
async def api(request: pytest.FixtureRequest) -> "AsyncIterator[Api]":
    async with in_memory_api() if request.param == "in-memory" else real_api() as opened:
        yield opened


@pytest.fixture
def on_the_real_server(api: Api) -> None:
    """For facts that clients of a cluster rely on, and that the server in memory leaves out."""
    if not api.is_real:
        pytest.skip("the API server in memory serves events.k8s.io/v1 only")


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


async def _define(api: Api, scope: str) -> str:
    """Define the kind in a group of its own; return the group once it is served."""
    group = unique("g") + ".example"
    await api.created(CRDS, a_definition(group, scope))
    everywhere = f"/apis/{group}/v1/widgets"
    await until(lambda: api.get(everywhere), lambda answer: answer.status == 200)
    return group


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def real_groups() -> "AsyncIterator[dict[str, str]]":
    """Scope -> group of the kind on the real server, where a new definition costs two seconds."""
    if not real_api_is_configured():
        yield {}
        return
    async with real_api() as api:
        groups = {scope: await _define(api, scope) for scope in ("Cluster", "Namespaced")}
        yield groups
        for group in groups.values():
            await api.delete(f"{CRDS}/widgets.{group}")


async def _empty_group(api: Api, scope: str, real_groups: dict[str, str]) -> str:
    if not api.is_real:
        return await _define(api, scope)
    group = real_groups[scope]
    if scope == "Cluster":
        await api.delete(f"/apis/{group}/v1/widgets")
    return group


@pytest.fixture
async def widgets(api: Api, real_groups: dict[str, str]) -> Widgets:
    """A kind of cluster scope without objects."""
    group = await _empty_group(api, "Cluster", real_groups)
    return Widgets(group, f"/apis/{group}/v1/widgets")


@pytest.fixture
async def spaced_widgets(api: Api, namespace: str, real_groups: dict[str, str]) -> Widgets:
    """A namespaced kind, in a namespace without objects."""
    group = await _empty_group(api, "Namespaced", real_groups)
    return Widgets(group, f"/apis/{group}/v1/namespaces/{namespace}/widgets")


@pytest.fixture
async def pools(api: Api) -> "AsyncIterator[str]":
    """The path of GPUPools, of which none are left after the test; all our kinds are served."""
    definitions = build_crds()
    for definition in definitions:
        answer = await api.post(CRDS, definition)
        # The real server keeps them from an earlier test.
        assert answer.status in {201, 409}, answer.body
    for definition in definitions:
        path = f"{GROUP_PATH}/{definition['spec']['names']['plural']}"
        await until(partial(api.get, path), lambda answer: answer.status == 200)
    path = f"{GROUP_PATH}/gpupools"
    yield path
    await api.delete(path)


@pytest.fixture
async def hooks(api: Api, namespace: str) -> "AsyncIterator[Hooks]":
    async with webhook_server() as server:
        made = Hooks(api, namespace, server)
        yield made
        await made.remove()
