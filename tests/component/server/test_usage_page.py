"""/metrics/usage names namespaces and pods to callers with the right to read it, and nothing to others."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from prometheus_client.parser import text_string_to_metric_families

from http_edge.reviews.kube_reviews import KubeReviews, TokenUser
from http_edge.reviews.review_cache import TokenRefusal
from http_edge.reviews.reviewed_tokens import MAX_TOKEN_BYTES
from kube.client import KubeClient
from kube.config.connection import StaticConnection
from kube.errors import KubeError, Unreachable
from manifests.constants import METRICS_PATH, USAGE_METRICS_PATH
from simulator.apiserver.server import InMemoryApiServer
from simulator.apiserver.webhooks.chain import User
from telemetry.usage_metrics import DEVICE_HOLDER, NAMESPACE_UNIT_SECONDS, NAMESPACE_UNITS
from tests.support.loop_clock import LoopClock
from tests.support.running_server import Cluster, a_server
from tests.support.served_app import Reply, ServedApp

OURS = (NAMESPACE_UNITS, NAMESPACE_UNIT_SECONDS, DEVICE_HOLDER)


@pytest.fixture(autouse=True)
def some_usage() -> Iterator[None]:
    NAMESPACE_UNITS.labels("whole", "team", "used").set(3)
    NAMESPACE_UNIT_SECONDS.labels("whole", "team", "used").inc(7)
    DEVICE_HOLDER.labels("GPU-1", "team", "trainer").set(1)
    yield
    for item in OURS:
        item.clear()


@pytest.fixture
def page(anonymous: ServedApp) -> ServedApp:
    anonymous.reviews.results = {
        "reader": TokenUser(username="prometheus"),
        "stranger": TokenRefusal.FORBIDDEN,
    }
    return anonymous


async def ask(page: ServedApp, token: str, method: str = "GET") -> Reply:
    return await page.call(method, USAGE_METRICS_PATH, Authorization=f"Bearer {token}")


async def test_a_reader_sees_namespaces_and_pods_and_nothing_of_the_open_page(
    page: ServedApp,
) -> None:
    reply = await ask(page, "reader")
    assert (reply.status, reply.content_type) == (200, "text/plain")
    families = {item.name: item for item in text_string_to_metric_families(reply.text)}
    assert set(families) == {
        "gpupool_namespace_units",
        "gpupool_namespace_unit_seconds",
        "gpu_device_holder",
    }
    (sample,) = families["gpu_device_holder"].samples
    assert sample.labels == {"uuid": "GPU-1", "namespace": "team", "pod": "trainer"}
    assert "_created" not in reply.text


async def test_the_open_page_names_neither_namespace_nor_pod(page: ServedApp) -> None:
    reply = await page.call("GET", METRICS_PATH)
    assert (reply.status, "team" in reply.text, "trainer" in reply.text) == (200, False, False)


@pytest.mark.parametrize(
    ("token", "status"), [("stranger", 403), ("unknown", 401), ("no token at all", 401)]
)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_others_learn_no_more_than_the_status(
    page: ServedApp, token: str, status: int, method: str
) -> None:
    reply = await ask(page, token, method)
    phrase = {401: "Unauthorized", 403: "Forbidden"}[status]
    text = f"{status}: {phrase}" if method == "GET" else ""
    assert (reply.status, reply.content_type, reply.text) == (status, "text/plain", text)


@pytest.mark.parametrize(
    "header",
    [
        *(
            "",
            "Bearer",
            "Bearer ",
            "Basic cmVhZGVy",
            "reader",
            "Bearer reader reader",
            "Bearerreader",
        ),
        pytest.param(f"Bearer {'x' * MAX_TOKEN_BYTES}", id="a long one"),
        "Bearer r\u00e9ader",
    ],
)
async def test_what_is_no_token_reaches_no_api_server(page: ServedApp, header: str) -> None:
    reply = await page.call("GET", USAGE_METRICS_PATH, Authorization=header)
    assert (reply.status, page.reviews.asked) == (401, [])


async def test_a_caller_without_a_header_is_asked_for_a_token(page: ServedApp) -> None:
    assert (await page.call("GET", USAGE_METRICS_PATH)).status == 401
    assert page.reviews.asked == []


async def test_the_scheme_is_read_in_any_case(page: ServedApp) -> None:
    reply = await page.call("GET", USAGE_METRICS_PATH, Authorization="bearer reader")
    assert reply.status == 200


async def test_an_api_server_that_is_away_is_no_leave(page: ServedApp) -> None:
    page.reviews.fault = Unreachable("refused", request_sent=False)
    reply = await ask(page, "reader")
    assert (reply.status, reply.text) == (503, "503: Service Unavailable")


async def test_nothing_can_be_posted_and_no_path_is_below_it(page: ServedApp) -> None:
    assert (await page.post(USAGE_METRICS_PATH, b"{}")).status == 405
    assert (await page.call("GET", f"{USAGE_METRICS_PATH}/whole")).status == 404


@asynccontextmanager
async def some_reviews() -> AsyncIterator[tuple[InMemoryApiServer, KubeReviews]]:
    users = {
        "reader": User(name="prometheus", groups=("monitoring",)),
        "server": User(name="server"),
    }
    async with InMemoryApiServer(LoopClock(), tokens=users) as api:
        api.reviewer.readers.add(("prometheus", USAGE_METRICS_PATH))
        connection = StaticConnection(api.url, token="server")
        async with KubeClient(connection, LoopClock()) as client:
            yield api, KubeReviews(client, USAGE_METRICS_PATH)


async def test_a_review_is_two_requests_and_a_bad_token_is_one() -> None:
    async with some_reviews() as (api, reviews):
        groups = ("monitoring", "system:authenticated")
        assert await reviews.review("reader") == TokenUser(username="prometheus", groups=groups)
        assert [request.path.rsplit("/", 1)[1] for request in api.requests] == [
            "tokenreviews",
            "subjectaccessreviews",
        ]
        api.requests.clear()
        assert await reviews.review("nothing") is TokenRefusal.UNAUTHENTICATED
        assert len(list(api.requests)) == 1
        assert await reviews.review("server") is TokenRefusal.FORBIDDEN


async def test_an_api_server_that_stops_is_an_error_of_the_review() -> None:
    async with some_reviews() as (api, reviews):
        await api.stop()
        with pytest.raises(KubeError):
            await reviews.review("reader")


@pytest.mark.looptime
async def test_the_server_asks_its_api_server(cluster: Cluster) -> None:
    cluster.api.reviewer.tokens["reader"] = User(name="prometheus")
    cluster.api.reviewer.readers.add(("prometheus", USAGE_METRICS_PATH))
    async with a_server(cluster) as server:
        await server.until_ready()
        for token, want in (("reader", 200), ("server", 403), ("nothing", 401)):
            status, _ = await server.get(USAGE_METRICS_PATH, token=token)
            assert status == want
