"""What the API server is asked about a token, and what becomes of its answers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from console.edge.token_login import ReviewedViewer
from console.processes.cluster_console import ConsoleReviews
from http_edge.reviews.review_cache import TokenRefusal
from kube.client import KubeClient
from kube.config.connection import StaticConnection
from kube.errors import Unreachable
from simulator.apiserver.server import InMemoryApiServer
from simulator.apiserver.webhooks.chain import User
from tests.support.loop_clock import LoopClock
from tests.support.ports import free_port
from tests.support.served_app import sample

POOLS, DEVICES = "gpupools.gpu.deckhouse.io", "gpudevices.gpu.deckhouse.io"


@asynccontextmanager
async def reviews_by(
    *rights: tuple[str, str],
) -> AsyncIterator[tuple[InMemoryApiServer, ConsoleReviews]]:
    """Yield an API server that knows alice with these rights to list: resource, namespace."""
    users = {"alice": User(name="alice", groups=("ml-team",)), "console": User(name="console")}
    async with InMemoryApiServer(LoopClock(), tokens=users) as api:
        api.reviewer.listers = {("alice", *right) for right in rights}
        connection = StaticConnection(api.url, token="console")
        async with KubeClient(connection, LoopClock()) as client:
            yield api, ConsoleReviews(client)


def reviewed(outcome: str) -> float:
    return sample("gpu_console_reviews_total", outcome=outcome)


@pytest.mark.parametrize(
    ("further", "nodes", "pods"),
    [
        ((), False, False),
        ((("nodes", ""),), True, False),
        ((("pods", ""),), False, True),
        ((("pods", "ml-team"),), False, False),
    ],
)
async def test_a_viewer_is_who_may_list_pools_and_devices(
    further: tuple[tuple[str, str], ...], nodes: bool, pods: bool
) -> None:
    before = reviewed("accepted")
    async with reviews_by((POOLS, ""), (DEVICES, ""), *further) as (api, reviews):
        found = await reviews.review("alice")
        assert isinstance(found, ReviewedViewer)
        assert (found.user.username, found.nodes, found.pods) == ("alice", nodes, pods)
        assert found.user.groups == ("ml-team", "system:authenticated")
        asked = [request.path.rsplit("/", 1)[1] for request in api.requests]
        assert asked == ["tokenreviews", *["subjectaccessreviews"] * 4]
    assert reviewed("accepted") == before + 1


@pytest.mark.parametrize(
    "rights", [(), ((POOLS, ""),), ((DEVICES, ""),), ((POOLS, "x"), (DEVICES, ""))]
)
async def test_who_may_not_list_both_sees_nothing(rights: tuple[tuple[str, str], ...]) -> None:
    before = reviewed("forbidden")
    async with reviews_by(("nodes", ""), ("pods", ""), *rights) as (_, reviews):
        assert await reviews.review("alice") is TokenRefusal.FORBIDDEN
    assert reviewed("forbidden") == before + 1


async def test_an_unknown_token_is_one_request() -> None:
    before = reviewed("unauthenticated")
    async with reviews_by() as (api, reviews):
        assert await reviews.review("nobody") is TokenRefusal.UNAUTHENTICATED
        assert len(list(api.requests)) == 1
    assert reviewed("unauthenticated") == before + 1


async def test_pods_of_a_namespace_are_a_right_of_their_own() -> None:
    async with reviews_by((POOLS, ""), (DEVICES, ""), ("pods", "ml-team")) as (_, reviews):
        found = await reviews.review("alice")
        assert isinstance(found, ReviewedViewer)
        assert await reviews.may_list_pods(found.user, "ml-team")
        assert not await reviews.may_list_pods(found.user, "secret")
        assert not await reviews.may_list_pods(found.user, "no-such")


async def test_an_api_server_that_is_away_is_counted() -> None:
    before = reviewed("failed")
    connection = StaticConnection(f"http://127.0.0.1:{free_port()}")
    async with KubeClient(connection, LoopClock()) as client:
        with pytest.raises(Unreachable):
            await ConsoleReviews(client).review("alice")
    assert reviewed("failed") == before + 1
