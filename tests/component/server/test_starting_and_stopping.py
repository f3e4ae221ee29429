"""`serve` from its start to its end: order, readiness, leading, and how it stops."""

import asyncio
import signal

import aiohttp
import pytest
from structlog.testing import capture_logs

from api.kinds.gpupool import GPUPool
from http_edge.listening_sockets import ListenError
from kube.resources import GPU_DEVICES, GPU_POOLS, PODS
from manifests import constants
from server.shutdown import YIELD_S
from simulator.node.kubelet import register_node
from tests.support.hand_made import a_device, a_pool
from tests.support.polling import until, until_async
from tests.support.running_server import Cluster, RunningServer, a_server
from tests.support.scheduling import a_wire_pod, binding_args, extender_args

pytestmark = pytest.mark.looptime

STANDING_BY = "lease lost: standing by, another replica may lead"


async def holds(server: RunningServer, check: str) -> bool:
    return bool((await server.checks()).get(check))


async def test_server_becomes_ready_when_everything_is_listed_and_it_leads(
    cluster: Cluster,
) -> None:
    """Lesson 21: a replica was ready before its caches were synced."""
    async with a_server(cluster) as server:
        await server.until_ready()
        assert await server.checks() == {
            "gpupools synced": True,
            "gpudevices synced": True,
            "gpunodeinventories synced": True,
            "nodes synced": True,
            "namespaces synced": True,
            "configmaps synced": True,
            "daemonsets synced": True,
            "operand pods synced": True,
            "scale signals synced": True,
            "nodeclaims synced": True,
            "nodepools synced": True,
            "nodefeatures synced": True,
            "gkmcaches synced": True,
            "clustergkmcaches synced": True,
            "gkmcachenodes synced": True,
            "clustergkmcachenodes synced": True,
            "pods synced": True,
            "certificate loaded": True,
            "reservation key loaded": True,
            "cache key loaded": True,
            "leading": True,
        }
        assert await cluster.lease_holder()


async def test_pods_are_listed_after_the_objects_that_their_reservations_refer_to(
    cluster: Cluster,
) -> None:
    async with a_server(cluster) as server:
        await server.until_ready()
    lists = [
        request.path.rsplit("/", maxsplit=1)[-1]
        for request in cluster.api.requests
        if request.method == "GET" and "/namespaces/" not in request.path
    ]
    before_pods = lists[: lists.index("pods")]
    assert set(before_pods) >= {"gpupools", "gpudevices", "nodes", "namespaces"}


async def test_server_is_live_but_not_ready_and_does_not_lead_while_a_list_is_missing(
    cluster: Cluster,
) -> None:
    """Lesson 21."""
    cluster.api.faults.delay("GET", r"/api/v1/nodes$", 60.0)
    async with a_server(cluster) as server:
        await until_async(lambda: holds(server, "gpudevices synced"))
        checks = await server.checks()
        assert (checks["nodes synced"], checks["pods synced"]) == (False, False)
        assert not await server.is_ready()
        assert (await server.get(constants.LIVENESS_PATH))[0] == 200
        assert not any("leases" in request.path for request in cluster.api.requests)


async def test_server_that_is_not_ready_has_kube_scheduler_wait(cluster: Cluster) -> None:
    cluster.api.faults.delay("GET", r"/api/v1/nodes$", 60.0)
    async with a_server(cluster) as server:
        await until_async(lambda: holds(server, "certificate loaded"))
        status, text = await server.call(
            "POST", constants.FILTER_PATH, extender_args(a_wire_pod(whole=1), "n1")
        )
        assert status == 200
        assert "gpu-control-plane is not ready: its caches are not synced" in text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_server_that_is_signalled_to_stop_releases_the_lease_and_exits_with_success(
    cluster: Cluster, number: signal.Signals
) -> None:
    """SIGTERM is the kubelet's, SIGINT a terminal's."""
    async with a_server(cluster) as server:
        await server.until_ready()
        signal.raise_signal(number)
        await until(lambda: server.is_over)
        assert server.ended is None
        assert await cluster.lease_holder() == ""
        assert (await server.get(constants.LIVENESS_PATH))[0] == 0


async def test_draining_server_hands_over_at_once_and_is_ready_while_no_other_replica_is(
    cluster: Cluster,
) -> None:
    async with a_server(cluster, drain_s=1.0) as server:
        await server.until_ready()
        signal.raise_signal(signal.SIGTERM)
        await until_async(lambda: holds(server, "handing over"))
        await until_async(lambda: is_lease_free(cluster))
        assert await server.is_ready()
        question = extender_args(a_wire_pod(whole=1), "n1")
        _, text = await server.call("POST", constants.FILTER_PATH, question)
        assert "gpu-control-plane is not ready" in text
        await until(lambda: server.is_over)
        assert server.ended is None


async def is_lease_free(cluster: Cluster) -> bool:
    return await cluster.lease_holder() == ""


async def test_standby_that_is_signalled_to_stop_was_and_stays_unready(cluster: Cluster) -> None:
    await cluster.give_lease_to("another-replica", duration_s=60)
    async with a_server(cluster, drain_s=0.5) as server:
        await until_async(lambda: holds(server, "pods synced"))
        signal.raise_signal(signal.SIGTERM)
        await until_async(lambda: holds_not_ready(server))
        await until(lambda: server.is_over)
    assert await cluster.lease_holder() == "another-replica"


async def test_lease_expires_while_a_binding_may_be_in_flight(
    cluster: Cluster,
) -> None:
    """The next leader does not wait for Bindings after a release."""
    await register_node(cluster.client, "n1", {"gpu.deckhouse.io/whole": 1})
    async with a_server(cluster, drain_s=0.2) as server:
        await server.until_ready()
        await add_device(cluster)
        await cluster.client.create(PODS, a_pool_pod("p"))
        uid = (await cluster.stored_pod("p")).metadata.uid
        cluster.api.faults.delay("POST", "/binding$", 60.0)
        pod = {**a_wire_pod(whole=1), "metadata": {"name": "p", "namespace": "default", "uid": uid}}
        await server.call("POST", constants.FILTER_PATH, extender_args(pod, "n1"))
        _, text = await server.call("POST", constants.BIND_PATH, binding_args("p", PodUID=uid))
        assert "it is not known whether" in text
        holder = await cluster.lease_holder()
        with capture_logs() as logs:
            signal.raise_signal(signal.SIGTERM)
            await until(lambda: server.is_over)
        assert "lease kept: bindings may be on their way" in {log["event"] for log in logs}
    assert await cluster.lease_holder() == holder != ""


async def add_device(cluster: Cluster) -> None:
    await cluster.client.create(GPU_POOLS, a_pool())

    async def has_phase() -> bool:
        pool = await cluster.client.get(GPU_POOLS, GPUPool, "whole")
        return bool(pool.status.phase)

    await until_async(has_phase)
    device = a_device("n1", 0, "whole")
    await cluster.client.create(GPU_DEVICES, device)
    await cluster.client.merge_patch(
        GPU_DEVICES,
        {"status": device["status"]},
        name=device["metadata"]["name"],
        subresource="status",
    )

    async def has_device() -> bool:
        pool = await cluster.client.get(GPU_POOLS, GPUPool, "whole")
        return pool.status is not None and pool.status.capacity.total == 1

    await until_async(has_device)


def a_pool_pod(name: str) -> dict[str, object]:
    limits = {"gpu.deckhouse.io/whole": "1"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "c0", "image": "i", "resources": {"limits": limits}}]},
    }


async def test_draining_server_closes_each_connection_with_its_next_response(
    cluster: Cluster,
) -> None:
    async with a_server(cluster, drain_s=1.0) as server:
        await server.until_ready()
        async with aiohttp.ClientSession() as session:

            async def connection() -> str | None:
                async with session.get(f"{server.url}/livez", ssl=False) as answer:
                    return answer.headers.get("Connection")

            assert await connection() is None
            signal.raise_signal(signal.SIGTERM)
            await until_async(lambda: holds(server, "handing over"))
            assert await connection() == "close"
        await until(lambda: server.is_over)


async def test_draining_server_is_unready_when_another_one_has_led_for_a_while(
    cluster: Cluster,
) -> None:
    async with a_server(cluster, drain_s=2 * YIELD_S) as server:
        await server.until_ready()
        signal.raise_signal(signal.SIGTERM)
        await until_async(lambda: holds(server, "handing over"))
        await cluster.give_lease_to("another-replica", duration_s=60)
        assert await server.is_ready()
        await until_async(lambda: holds_not_ready(server))
        assert await cluster.lease_holder() == "another-replica"
        await until(lambda: server.is_over)


async def test_draining_server_without_leader_election_is_unready_and_still_answers(
    cluster: Cluster,
) -> None:
    async with a_server(cluster, drain_s=1.0, leadership={"enabled": False}) as server:
        await server.until_ready()
        signal.raise_signal(signal.SIGTERM)
        await until_async(lambda: holds_not_ready(server))
        question = extender_args(a_wire_pod(whole=1), "n1")
        status, text = await server.call("POST", constants.FILTER_PATH, question)
        assert (status, '"Error":""' in text) == (200, True)
        assert "no GPUPool serves gpu.deckhouse.io/whole" in text
        await until(lambda: server.is_over)
        assert server.ended is None


async def holds_not_ready(server: RunningServer) -> bool:
    status, report = await server.get(constants.READINESS_PATH)
    return status == 503 and "[-] stopping" in report


async def test_request_in_flight_is_finished_before_the_end(cluster: Cluster) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}}
    await cluster.client.create(
        PODS, {**pod, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    )
    uid = (await cluster.stored_pod("p")).metadata.uid
    cluster.api.faults.delay("POST", "/binding$", 0.5)
    async with a_server(cluster) as server:
        await server.until_ready()
        await server.call(
            "POST",
            constants.FILTER_PATH,
            extender_args({**a_wire_pod(), "metadata": {"name": "p", "uid": uid}}, "n1"),
        )
        async with asyncio.TaskGroup() as group:
            bind = group.create_task(
                server.call("POST", constants.BIND_PATH, binding_args("p", PodUID=uid))
            )
            await until(lambda: any("/binding" in request.path for request in cluster.api.requests))
            signal.raise_signal(signal.SIGTERM)
        assert bind.result() == (200, '{"Error":""}')
        await until(lambda: server.is_over)
        assert server.ended is None
        assert (await cluster.stored_pod("p")).spec.node_name == "n1"


async def test_second_replica_waits_unready_and_takes_over_when_the_lease_is_free(
    cluster: Cluster,
) -> None:
    await cluster.give_lease_to("another-replica", duration_s=60)
    async with a_server(cluster) as server:
        await until_async(lambda: holds(server, "pods synced"))
        await until_async(lambda: holds(server, "certificate loaded"))
        assert (await server.checks())["leading"] is False
        assert not await server.is_ready()
        await cluster.give_lease_to("")
        await server.until_ready()


async def test_server_whose_lease_was_taken_stands_by_and_serves_again_when_it_is_free(
    cluster: Cluster,
) -> None:
    async with a_server(cluster) as server:
        await server.until_ready()
        with capture_logs() as logs:
            await cluster.give_lease_to("another-replica", duration_s=60)
            await until_async(lambda: misses(server, "leading"))
            await until(lambda: STANDING_BY in {log["event"] for log in logs})
        assert await cluster.lease_holder() == "another-replica"
        assert (await server.get(constants.LIVENESS_PATH))[0] == 200
        await cluster.give_lease_to("")
        await server.until_ready()


async def misses(server: RunningServer, check: str) -> bool:
    return (await server.checks()).get(check) is False


async def test_server_without_leader_election_touches_no_lease(cluster: Cluster) -> None:
    async with a_server(cluster, leadership={"enabled": False}) as server:
        await server.until_ready()
        assert "leading" not in await server.checks()
    assert not any("leases" in request.path for request in cluster.api.requests)


async def test_port_that_is_taken_is_named(cluster: Cluster) -> None:
    async with a_server(cluster) as first:
        port = int(first.url.rsplit(":", maxsplit=1)[1])
        await first.until_ready()
        async with a_server(cluster, port=port) as second:
            await until(lambda: second.is_over)
    assert isinstance(second.ended, ListenError)
    assert str(second.ended).startswith(f"cannot listen on 127.0.0.1:{port}: ")
