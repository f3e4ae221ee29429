"""/debug/scale is for the extender's callers, over real TLS."""

import msgspec
import pytest

from kube.resources import GPU_POOLS
from manifests.constants import SCALING_PATH
from tests.support.examples import load_example
from tests.support.polling import until_async
from tests.support.running_server import Cluster, RunningServer, a_server
from tests.support.served_app import TOKEN, ServedApp

REPORT = b'{"leading":true,"pools":[]}'


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_caller_without_credentials_is_refused(anonymous: ServedApp, method: str) -> None:
    """The page names pods and what they ask for."""
    anonymous.scaling = REPORT
    reply = await anonymous.call(method, SCALING_PATH)
    assert (reply.status, reply.content_type) == (401, "text/plain")
    assert reply.text in {"", "a client certificate or a bearer token is needed"}


async def test_another_client_of_our_ca_is_refused(anonymous: ServedApp) -> None:
    anonymous.scaling, anonymous.pair = REPORT, anonymous.authority.client("somebody-else")
    assert (await anonymous.call("GET", SCALING_PATH)).status == 401


async def test_a_bearer_token_is_let_in(anonymous: ServedApp) -> None:
    anonymous.scaling = REPORT
    reply = await anonymous.call("GET", SCALING_PATH, Authorization=f"Bearer {TOKEN}")
    assert (reply.status, reply.content_type, reply.body) == (200, "application/json", REPORT)
    wrong = await anonymous.call("GET", SCALING_PATH, Authorization="Bearer wrong")
    assert (wrong.status, wrong.text) == (401, "the bearer token is wrong")


async def test_the_schedulers_certificate_is_let_in(scheduler: ServedApp) -> None:
    scheduler.scaling = REPORT
    assert (await scheduler.call("GET", SCALING_PATH)).json == {"leading": True, "pools": []}


async def test_a_replica_that_stands_by_says_so(scheduler: ServedApp) -> None:
    reply = await scheduler.call("GET", SCALING_PATH)
    assert reply.status == 200
    assert reply.json["leading"] is False


async def test_other_paths_and_methods_are_not_there(scheduler: ServedApp) -> None:
    assert (await scheduler.call("GET", f"{SCALING_PATH}/training")).status == 404
    assert (await scheduler.post(SCALING_PATH, b"{}")).status == 405


async def pools_on_page(server: RunningServer) -> list[str] | None:
    """Return the names of the pools; None where the replica says that it does not lead."""
    status, text = await server.get(SCALING_PATH)
    assert status == 200
    page = msgspec.json.decode(text)
    return [pool["name"] for pool in page["pools"]] if page["leading"] else None


@pytest.mark.looptime
async def test_the_leader_shows_pools_that_scale_and_a_standby_none(cluster: Cluster) -> None:
    (pool,) = load_example("pool-autoscaling")
    async with a_server(cluster) as server:
        await server.until_ready()
        await cluster.client.create(GPU_POOLS, pool)
        await until_async(lambda: has_pools(server, ["elastic"]))
        await cluster.give_lease_to("another-replica", duration_s=60)
        await until_async(lambda: has_pools(server, None))


async def has_pools(server: RunningServer, expected: list[str] | None) -> bool:
    return await pools_on_page(server) == expected
