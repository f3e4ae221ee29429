"""Webhooks that are reached as a Service: the map that stands in for cluster networking."""

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp

from simulator.apiserver.server import InMemoryApiServer
from simulator.apiserver.webhooks.chain import User
from tests.support.api_servers import Api
from tests.support.conformance import a_pod
from tests.support.loop_clock import LoopClock
from tests.support.webhook_server import WebhookServer, deny, webhook_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

Json = dict[str, Any]

PODS = "/api/v1/namespaces/default/pods"
VALIDATING = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


@asynccontextmanager
async def _denying(**changes: object) -> "AsyncIterator[tuple[Api, WebhookServer]]":
    """A server whose pods are all denied by a webhook that is reached as a Service."""
    async with webhook_server("hook.system.svc") as hook:
        services = {"system/hook": hook.url}
        tokens = {"t": User(name="alice", groups=("team",), uid="u-1")}
        async with (
            InMemoryApiServer(LoopClock(), services=services, tokens=tokens) as server,
            aiohttp.ClientSession(headers={"Authorization": "Bearer t"}) as session,
        ):
            hook.answers["/validate"] = deny("no", code=403)
            service = {"namespace": "system", "name": "hook", "path": "/validate", "port": 443}
            client = {"service": service, "caBundle": hook.authority.bundle}
            config = {**hook.config("/validate", "default"), "clientConfig": client, **changes}
            api = Api(session, server.url)
            await api.created(VALIDATING, {"metadata": {"name": "v"}, "webhooks": [config]})
            yield api, hook


async def test_a_service_is_reached_through_the_map_under_its_own_name() -> None:
    async with _denying() as (api, hook):
        assert (await api.post(PODS, a_pod("p"))).status == 403
        (request,) = hook.calls["/validate"]
    assert request["userInfo"] == {
        "username": "alice",
        "groups": ["team", "system:authenticated"],
        "uid": "u-1",
    }


async def test_a_service_that_is_not_in_the_map_is_not_found() -> None:
    service = {"namespace": "system", "name": "other", "path": "/", "port": 443}
    async with _denying(clientConfig={"service": service}) as (api, _):
        answer = await api.post(PODS, a_pod("p"))
    assert answer.status == 500
    assert answer.message.endswith('failed to call webhook: service "other" not found')
