"""The term object: written by the leader by compare and set, with numbers that never repeat."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from api.kinds.leadershipterm import GPUControlPlaneTerm
from kube.client import KubeClient
from kube.config.connection import StaticConnection
from kube.errors import AlreadyExists, Conflict, KubeError, NotFound, Unreachable
from kube.resources import CUSTOM_RESOURCE_DEFINITIONS, GPU_CONTROL_PLANE_TERMS, PODS
from manifests import constants
from manifests.install.crds import build_crds
from server.leadership.fence import Fence, LeadershipLostError
from simulator.node.kubelet import register_node
from tests.support.loop_clock import LoopClock
from tests.support.polling import until, until_async
from tests.support.running_server import ADMIN_TOKEN, Cluster, a_server
from tests.support.scheduling import a_wire_pod, binding_args, extender_args

pytestmark = pytest.mark.looptime

NAME = constants.LEASE_NAME
PLURAL = GPU_CONTROL_PLANE_TERMS.plural


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[KubeClient]:
    configuration = StaticConnection(cluster.api.url, token=ADMIN_TOKEN)
    async with KubeClient(configuration, LoopClock(), timeout_s=1.0) as client:
        yield client


async def stored(cluster: Cluster) -> tuple[str, int]:
    term = await cluster.client.get(GPU_CONTROL_PLANE_TERMS, GPUControlPlaneTerm, NAME)
    return term.spec.holder, term.spec.number


def leads() -> bool:
    return True


def writes(cluster: Cluster) -> list[str]:
    return [write.method for write in cluster.api.requests.writes(path=f"/{PLURAL}")]


async def test_each_takeover_has_a_higher_number(cluster: Cluster, client: KubeClient) -> None:
    first, second = Fence(client, NAME, "first"), Fence(client, NAME, "second")
    for number in range(1, 7):
        fence = (first, second)[number % 2]
        fence.end()
        await fence.begin(leads)
        assert fence.token == "/".join(map(str, await stored(cluster)))
        assert await stored(cluster) == (("first", "second")[number % 2], number)


async def test_term_that_is_ours_is_not_written_again(cluster: Cluster, client: KubeClient) -> None:
    fence = Fence(client, NAME, "first")
    fence.end()
    for _ in range(3):
        await fence.begin(leads)
    assert await stored(cluster) == ("first", 1)
    assert writes(cluster) == ["POST"]


@pytest.mark.parametrize("method", ["POST", "PATCH"])
async def test_write_whose_response_was_lost_is_found_and_not_repeated(
    method: str, cluster: Cluster, client: KubeClient
) -> None:
    if method == "PATCH":
        await Fence(client, NAME, "earlier").begin(leads)
    cluster.api.faults.reset_after(method, f"/{PLURAL}")
    fence = Fence(client, NAME, "first")
    fence.end()
    with pytest.raises(Unreachable):
        await fence.begin(leads)
    await fence.begin(leads)
    assert fence.token == "/".join(map(str, await stored(cluster)))
    assert writes(cluster).count(method) == 1


async def test_replica_that_lost_the_lease_before_the_write_writes_nothing(
    cluster: Cluster, client: KubeClient
) -> None:
    await Fence(client, NAME, "leader").begin(leads)
    with pytest.raises(LeadershipLostError):
        await Fence(client, NAME, "late").begin(lambda: False)
    assert await stored(cluster) == ("leader", 1)


async def test_write_after_that_of_another_replica_is_refused(
    cluster: Cluster, client: KubeClient
) -> None:
    """The earlier leader paused after its read; the next leader wrote."""
    await Fence(client, NAME, "earlier").begin(leads)
    late, leader = Fence(client, NAME, "late"), Fence(client, NAME, "leader")
    async with asyncio.TaskGroup() as group:
        cluster.api.faults.delay("PATCH", f"/{PLURAL}", 0.5)
        attempt = group.create_task(raised(late))
        await until(lambda: "PATCH" in writes(cluster))
        await leader.begin(leads)
    assert isinstance(attempt.result(), Conflict)
    assert await stored(cluster) == ("leader", 2)
    assert not await late.holds()
    assert await leader.holds()


async def test_of_two_replicas_that_create_the_first_term_one_gets_a_conflict(
    cluster: Cluster, client: KubeClient
) -> None:
    async with asyncio.TaskGroup() as group:
        attempts = [
            group.create_task(raised(Fence(client, NAME, name))) for name in ("first", "second")
        ]
    refused = [one for attempt in attempts if (one := attempt.result()) is not None]
    assert [type(item) for item in refused] == [AlreadyExists]
    assert (await stored(cluster))[1] == 1


async def raised(fence: Fence) -> KubeError | None:
    try:
        await fence.begin(leads)
    except KubeError as error:
        return error
    return None


async def test_numbers_of_one_process_never_repeat_though_the_object_was_deleted(
    cluster: Cluster, client: KubeClient
) -> None:
    fence = Fence(client, NAME, "first")
    fence.end()
    await fence.begin(leads)
    await cluster.client.delete(GPU_CONTROL_PLANE_TERMS, NAME)
    assert not await fence.holds()
    fence.end()
    await fence.begin(leads)
    assert await stored(cluster) == ("first", 2)


async def test_server_without_the_kind_is_not_ready_until_it_is_there(cluster: Cluster) -> None:
    (definition,) = (crd for crd in build_crds() if crd["metadata"]["name"].startswith(PLURAL))
    await cluster.client.delete(CUSTOM_RESOURCE_DEFINITIONS, definition["metadata"]["name"])
    async with a_server(cluster) as server:
        await until_async(lambda: holds_the_lease(cluster))
        await asyncio.sleep(0.2)
        assert not await server.is_ready()
        await cluster.client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
        await server.until_ready()
    assert await stored(cluster) == (await cluster.lease_holder(), 1)


async def holds_the_lease(cluster: Cluster) -> bool:
    try:
        return bool(await cluster.lease_holder())
    except NotFound:
        return False


@pytest.mark.parametrize("code", [403, 422])
async def test_refused_binding_makes_the_leader_write_a_missing_term_again(
    code: int, cluster: Cluster
) -> None:
    await register_node(cluster.client, "n1", {})
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}}
    await cluster.client.create(
        PODS, {**pod, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    )
    uid = (await cluster.stored_pod("p")).metadata.uid
    seen = {**a_wire_pod(), "metadata": {"name": "p", "namespace": "default", "uid": uid}}
    async with a_server(cluster) as server:
        await server.until_ready()
        holder, _ = await stored(cluster)
        await cluster.client.delete(GPU_CONTROL_PLANE_TERMS, NAME)
        cluster.api.faults.fail("POST", "/binding$", code)
        await server.call("POST", constants.FILTER_PATH, extender_args(seen, "n1"))
        _, refused = await server.call("POST", constants.BIND_PATH, binding_args("p", PodUID=uid))
        assert str(code) in refused
        await until_async(lambda: is_stored(cluster))
        assert await stored(cluster) == (holder, 2)
        await server.until_ready()
        answer = await server.call("POST", constants.BIND_PATH, binding_args("p", PodUID=uid))
        assert answer == (200, '{"Error":""}')
        assert server.ended is None


async def is_stored(cluster: Cluster) -> bool:
    try:
        await stored(cluster)
    except NotFound:
        return False
    return True


async def test_leader_whose_lease_was_emptied_leads_again_under_another_term(
    cluster: Cluster,
) -> None:
    """It takes the Lease at its next look, so that it is never seen without it."""
    async with a_server(cluster) as server:
        await server.until_ready()
        for number in (2, 3):
            await cluster.give_lease_to("")
            await until_async(lambda: has_number(cluster, number))  # noqa: B023  # awaited here
            await server.until_ready()
        assert await stored(cluster) == (await cluster.lease_holder(), 3)


async def has_number(cluster: Cluster, number: int) -> bool:
    return (await stored(cluster))[1] == number
