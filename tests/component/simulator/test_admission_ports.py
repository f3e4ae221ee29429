"""What stands in for CEL and for cluster networking."""

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from simulator.apiserver.server import InMemoryApiServer
from simulator.apiserver.webhooks.chain import User
from simulator.apiserver.webhooks.matching import UnknownExpressionError, evaluate_rendered
from tests.support.api_servers import Api
from tests.support.conformance import a_pod
from tests.support.loop_clock import LoopClock
from tests.support.webhook_server import WebhookServer, deny, webhook_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

Json = dict[str, Any]

PODS = "/api/v1/namespaces/default/pods"
VALIDATING = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
NAMES_POOL = (
    "(object.spec.containers + object.spec.?initContainers.orValue([])).exists(c, "
    "(c.?resources.?limits.orValue({})).exists(k, k.startsWith('gpu.deckhouse.io/')) || "
    "(c.?resources.?requests.orValue({})).exists(k, k.startsWith('gpu.deckhouse.io/')))"
)
HAS_ANNOTATION = (
    "object.metadata.?annotations.orValue({}).exists(k, k.startsWith('gpu.deckhouse.io/'))"
)
LIMITS = {"gpu.deckhouse.io/pool": "1"}


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


def _request(pod: Json) -> Json:
    return {"object": pod}


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        pytest.param(a_pod("p"), False, id="nothing"),
        pytest.param(a_pod("p", limits={"cpu": "1"}), False, id="cpu only"),
        pytest.param(a_pod("p", limits=LIMITS), True, id="a limit"),
        pytest.param(
            a_pod("p", initContainers=[{"name": "i", "resources": {"requests": LIMITS}}]),
            True,
            id="a request of an init container",
        ),
        pytest.param(
            a_pod("p", metadata={"annotations": {"gpu.deckhouse.io/devices": "{}"}}),
            True,
            id="an annotation",
        ),
        pytest.param(
            a_pod("p", metadata={"annotations": {"other/devices": "{}"}}),
            False,
            id="another annotation",
        ),
    ],
)
def test_the_rendered_condition_lets_through_what_concerns_us(pod: Json, want: object) -> None:
    expression = f"{NAMES_POOL} || {HAS_ANNOTATION}"
    assert evaluate_rendered(expression, _request(pod)) is want


def test_another_expression_is_refused_by_name() -> None:
    with pytest.raises(UnknownExpressionError, match="does not know the expression 'true'"):
        evaluate_rendered("true", _request(a_pod("p")))
    with pytest.raises(UnknownExpressionError):
        evaluate_rendered(f"{NAMES_POOL} && true", _request(a_pod("p")))


async def test_only_pods_that_match_reach_the_webhook() -> None:
    conditions = [{"name": "ours", "expression": f"{NAMES_POOL} || {HAS_ANNOTATION}"}]
    async with _denying(matchConditions=conditions) as (api, hook):
        assert (await api.post(PODS, a_pod("plain"))).status == 201
        assert (await api.post(PODS, a_pod("gpu", limits=LIMITS))).status == 403
    assert len(hook.calls["/validate"]) == 1


async def test_an_expression_that_cannot_be_evaluated_blocks_under_fail() -> None:
    conditions = [{"name": "x", "expression": "true"}]
    async with _denying(matchConditions=conditions) as (api, hook):
        answer = await api.post(PODS, a_pod("p"))
        assert answer.status == 403
        assert "does not know the expression 'true'" in answer.message
    async with _denying(matchConditions=conditions, failurePolicy="Ignore") as (api, _):
        assert (await api.post(PODS, a_pod("p"))).status == 201
    assert hook.calls == {}
