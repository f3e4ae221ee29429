"""An API server that is away, refuses or talks nonsense: the process stays up, says so, and recovers."""

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import pytest
from structlog.testing import capture_logs

from api.names import DEVICES_ANNOTATION, RESERVATION_ANNOTATION, RESOURCE_PREFIX
from kube.resources import GPU_POOLS, PODS
from manifests import constants
from simulator.node.kubelet import register_node
from telemetry.logs import OUTAGE_EVERY_S, Outages
from telemetry.metrics import REGISTRY
from tests.support.polling import until, until_async
from tests.support.reviews import a_pool_object
from tests.support.running_server import Cluster, RunningServer, a_server
from tests.support.served_app import sample

pytestmark = pytest.mark.looptime

LISTS = ("gpupools", "gpudevices", "nodes", "namespaces")


def failed_requests(resource: str, code: int) -> float:
    """How often a list or watch was answered so."""
    return sample(
        "gpu_api_request_duration_seconds_count", method="GET", resource=resource, code=str(code)
    )


@pytest.mark.parametrize("codes", [(401, 403, 409, 410), (422, 429, 500, 503)])
async def test_lists_that_are_refused_are_told_counted_and_asked_for_again(
    cluster: Cluster, codes: tuple[int, ...]
) -> None:
    refusals = dict(zip(LISTS, codes, strict=True))
    for resource, code in refusals.items():
        cluster.api.faults.fail("GET", f"/{resource}$", code)
    counted = {refusal: failed_requests(*refusal) for refusal in refusals.items()}
    with capture_logs() as logs:
        async with a_server(cluster) as server:
            await server.until_ready()
    assert {refusal: failed_requests(*refusal) for refusal in refusals.items()} == {
        item: count + 1 for item, count in counted.items()
    }
    reported = [log for log in logs if log.get("resource") in refusals and "error" in log]
    assert sorted(log["resource"] for log in reported) == sorted(LISTS)
    assert all(log["log_level"] == "warning" for log in reported)
    assert all(str(refusals[log["resource"]]) in log["error"] for log in reported)


@pytest.mark.parametrize("code", [401, 403, 500])
async def test_secret_that_cannot_be_written_is_told_counted_and_asked_for_again(
    cluster: Cluster, code: int
) -> None:
    cluster.api.faults.fail("POST", r"/secrets$", code)
    counted = sum_of("gpu_certificate_errors_total")
    with capture_logs() as logs:
        async with a_server(cluster) as server:
            await server.until_ready()
    assert sum_of("gpu_certificate_errors_total") > counted
    assert any(str(code) in str(log.get("error", "")) for log in logs)


def sum_of(name: str) -> float:
    return sum(
        found.value
        for family in REGISTRY.collect()
        for found in family.samples
        if found.name == name
    )


async def test_server_that_starts_before_the_api_server_becomes_ready_with_it(
    cluster: Cluster,
) -> None:
    await cluster.api.stop()
    with capture_logs() as logs:
        async with a_server(cluster) as server:
            await until(lambda: reports_every_list(logs))
            await cluster.api.start()
            await server.until_ready()
    assert all(log["log_level"] == "warning" for log in logs if "error" in log)


async def test_api_server_that_is_away_is_a_line_at_once_and_then_one_in_ten_seconds(
    cluster: Cluster,
) -> None:
    loop = asyncio.get_running_loop()
    await cluster.api.stop()
    with capture_logs() as logs:
        async with a_server(cluster):
            outages, lines, seen = Outages(), list[float](), 0
            end = loop.time() + 65.0
            while loop.time() < end:
                await asyncio.sleep(0.05)
                for record in logs[seen:]:
                    if "cause" in record and outages.summary(record, loop.time()):
                        lines.append(loop.time())
                seen = len(logs)
    waiting = [log for log in logs if log["log_level"] not in {"info", "debug"}]
    assert len(waiting) > 30
    assert {log.get("cause") for log in waiting} == {"Unreachable"}
    assert 4 <= len(lines) <= 7
    assert all(later - line >= OUTAGE_EVERY_S - 0.1 for line, later in itertools.pairwise(lines))


def reports_every_list(logs: Sequence[Mapping[str, object]]) -> bool:
    reported = {log.get("resource") for log in logs if "error" in log}
    return reported >= set(LISTS)


async def test_server_that_meets_something_else_at_the_address_becomes_ready_later(
    cluster: Cluster,
) -> None:
    port = urlsplit(cluster.api.url).port
    await cluster.api.stop()
    nonsense = await asyncio.start_server(talk_nonsense, "127.0.0.1", port)
    with capture_logs() as logs:
        async with a_server(cluster) as server:
            await until(lambda: reports_every_list(logs))
            nonsense.close()
            await nonsense.wait_closed()
            await cluster.api.start()
            await server.until_ready()


async def talk_nonsense(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"\x15\x03\x01 not http\r\n\r\n")
    await writer.drain()
    writer.close()
    await writer.wait_closed()


async def test_api_server_that_restarts_costs_neither_the_process_nor_its_memory(
    cluster: Cluster,
) -> None:
    async with a_server(cluster) as server:
        await server.until_ready()
        await cluster.client.create(GPU_POOLS, a_pool("before"))
        await until_async(lambda: has_pool(server, "before"))
        await cluster.api.stop()
        assert (await server.get(constants.LIVENESS_PATH))[0] == 200
        await cluster.api.start()
        await server.until_ready()
        await cluster.client.create(GPU_POOLS, a_pool("after"))
        await until_async(lambda: has_pool(server, "after"))
        assert await has_pool(server, "before")
    assert server.ended is None


async def has_pool(server: RunningServer, pool: str) -> bool:
    return f'pool="{pool}"' in await server.metric("gpupool_capacity_total")


def a_pool(name: str) -> dict[str, object]:
    pool = a_pool_object(name, allocation={"mode": "Exclusive"})
    return {**pool, "metadata": {"name": name}}


async def test_lease_that_cannot_be_renewed_for_a_moment_costs_nothing(cluster: Cluster) -> None:
    async with a_server(cluster) as server:
        await server.until_ready()
        fault = cluster.api.faults.fail("PUT", "/leases/", 500, times=2)
        with capture_logs() as logs:
            await until(lambda: fault.seen >= 4)
        assert await server.is_ready()
    assert "stopped leading" not in {log["event"] for log in logs}
    assert [log["cause"] for log in logs if log["event"] == "lease not renewed"] == [
        "ServerError"
    ] * 2


async def test_lease_that_cannot_be_renewed_for_long_costs_readiness_until_it_can(
    cluster: Cluster,
) -> None:
    async with a_server(cluster) as server:
        await server.until_ready()
        cluster.api.faults.fail("PUT", "/leases/", 500, times=1_000_000)
        await until_async(lambda: is_unready(server))
        assert not server.is_over
        cluster.api.faults.clear()
        await server.until_ready()


async def is_unready(server: RunningServer) -> bool:
    return (await server.get(constants.READINESS_PATH))[0] == 503


NESTED = '{"id":"x","pool":"whole","x":' + "[" * 20_000 + "]" * 20_000 + "}"


async def test_pod_with_a_nonsensical_annotation_ends_no_process(cluster: Cluster) -> None:
    """As a mirror pod, about which nobody is asked: seen by a watch, and by the list after a restart."""
    annotations = {
        "kubernetes.io/config.mirror": "x",
        RESERVATION_ANNOTATION: NESTED,
        DEVICES_ANNOTATION: NESTED,
    }
    limits = {f"{RESOURCE_PREFIX}whole": 1}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "static-n1", "namespace": "kube-system", "annotations": annotations},
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}],
        },
    }
    await register_node(cluster.client, "n1", {})
    with capture_logs() as logs:
        async with a_server(cluster) as server:
            await server.until_ready()
            await cluster.client.create(PODS, pod)
            await until(lambda: are_unaccounted(logs) == 1)
            assert await server.is_ready()
        async with a_server(cluster) as server:
            await server.until_ready()
            assert are_unaccounted(logs) == 2


def are_unaccounted(logs: Sequence[Mapping[str, object]]) -> int:
    return sum(log["event"] == "pod runs on unknown devices" for log in logs)
