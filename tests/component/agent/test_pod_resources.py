"""kubelet's PodResources API over a real socket: bounds, limits, restarts, nonsense."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import uvloop

from agent.errors import KubeletUnavailableError
from agent.kubelet.pod_resources import PodResources
from api.kubelet.podresources import GET, LIST, SERVICE, SOCKET, ContainerUnits, PodUnits
from http_edge.system_clock import SystemClock
from telemetry.metrics import REGISTRY
from tests.support.kubelet.pod_resources import PodResourcesServer

POD = PodUnits("ns", "p", (ContainerUnits("main", {"r/x": ("a", "b")}), ContainerUnits("other")))


class Pods:
    def __init__(self) -> None:
        self.pods: list[PodUnits] = [POD]

    def list_pods(self) -> list[PodUnits]:
        return self.pods

    def find_pod(self, namespace: str, name: str) -> PodUnits | None:
        return next((p for p in self.pods if (p.namespace, p.name) == (namespace, name)), None)

    def allocatable(self) -> dict[str, list[str]]:
        return {"r/x": ["b", "a"]}


@pytest.fixture
def pods() -> Pods:
    return Pods()


@pytest.fixture
async def server(folder: Path, pods: Pods) -> AsyncIterator[PodResourcesServer]:
    server = PodResourcesServer(folder / "pod-resources", pods)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def client(server: PodResourcesServer) -> AsyncIterator[PodResources]:
    client = PodResources(server.directory, SystemClock())
    yield client
    await client.close()


def counted(call: str, outcome: str) -> float:
    labels = {"call": call, "outcome": outcome}
    return REGISTRY.get_sample_value("gpu_agent_kubelet_call_seconds_count", labels) or 0.0


@asynccontextmanager
async def answering(directory: Path, content: bytes) -> AsyncIterator[None]:
    """A server that answers every call with the same bytes."""

    async def answer(_content: bytes, _context: object) -> bytes:
        return content

    (directory / SOCKET).unlink(missing_ok=True)
    server = grpc.aio.server()
    handler: Any = grpc.unary_unary_rpc_method_handler(answer)
    calls = dict.fromkeys((LIST, GET), handler)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, calls),))
    server.add_insecure_port(f"unix:{directory / SOCKET}")
    await server.start()
    yield
    await server.stop(0)


async def test_pods_are_read_as_they_are_written(client: PodResources, pods: Pods):
    assert await client.list_() == (POD,)
    assert await client.get("ns", "p") == POD
    assert await client.get("ns", "q") is None
    pods.pods.clear()
    assert await client.list_() == ()


async def test_calls_above_the_limit_are_tried_again(
    client: PodResources, server: PodResourcesServer
):
    before = counted(GET, "limited")
    found = await asyncio.gather(*(client.get("ns", "p") for _ in range(40)))
    assert found == [POD] * 40
    assert counted(GET, "limited") > before
    assert len(server.calls) == 40


async def test_a_server_that_hangs_is_left_in_time(
    client: PodResources, server: PodResourcesServer
):
    await client.list_()
    server.is_silent = True
    with pytest.raises(
        KubeletUnavailableError, match=r"did not answer List within 0\.1 s: no answer"
    ):
        await client.list_(0.1)
    server.is_silent = False
    assert await client.list_() == (POD,)


@pytest.mark.parametrize("times", [3])
async def test_a_kubelet_that_restarted_is_asked_without_delay(
    client: PodResources, server: PodResourcesServer, times: int
):
    for _ in range(times):
        assert await client.list_() == (POD,)
        await server.stop()
        with pytest.raises(KubeletUnavailableError):
            await client.list_(0.1)
        await server.start()
        assert await client.get("ns", "p", 0.2) == POD


async def test_calls_under_way_outlive_a_change_of_the_connection(
    client: PodResources, server: PodResourcesServer
):
    async def ask() -> Iterable[PodUnits]:
        return await client.list_(5)

    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(ask()) for _ in range(5)]
        await asyncio.sleep(0)
        await server.stop()
        await server.start()
    assert [task.result() for task in asking] == [(POD,)] * 5


async def test_who_has_the_socket_is_asked_though_the_one_before_answers_still(
    client: PodResources, server: PodResourcesServer
):
    assert await client.list_() == (POD,)
    fresh = Pods()
    fresh.pods.clear()
    (server.directory / SOCKET).rename(server.directory / "old")
    other = PodResourcesServer(server.directory, fresh)
    await other.start()
    assert await client.list_() == ()
    await other.stop()


async def test_no_socket_is_told(folder: Path):
    client = PodResources(folder / "absent", SystemClock())
    with pytest.raises(KubeletUnavailableError, match="there is no socket"):
        await client.get("ns", "p", 0.05)


@pytest.mark.parametrize("content", [b"\xff\xff\xff", b"\x0a\xff"])
async def test_what_is_no_message_is_told(folder: Path, content: bytes):
    directory = folder / "pod-resources"
    directory.mkdir()
    client = PodResources(directory, SystemClock())
    async with answering(directory, content):
        with pytest.raises(KubeletUnavailableError, match="malformed response"):
            await client.list_()
        with pytest.raises(KubeletUnavailableError, match="malformed response"):
            await client.get("ns", "p")
    await client.close()


async def test_a_task_that_is_cancelled_ends(client: PodResources, server: PodResourcesServer):
    server.is_silent = True
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(client.list_(30))
        await asyncio.sleep(0.05)
        asking.cancel()
    assert asking.cancelled()


async def test_a_call_that_the_other_side_cancels_is_no_cancellation_of_ours(folder: Path):
    directory = folder / "pod-resources"
    directory.mkdir()

    async def cancel(_content: bytes, context: Any) -> bytes:
        await context.abort(grpc.StatusCode.CANCELLED, "no")
        raise AssertionError("abort returned")

    server = grpc.aio.server()
    handler: Any = grpc.unary_unary_rpc_method_handler(cancel)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE, {LIST: handler}),)
    )
    server.add_insecure_port(f"unix:{directory / SOCKET}")
    await server.start()
    client = PodResources(directory, SystemClock())
    with pytest.raises(KubeletUnavailableError, match="CANCELLED"):
        await client.list_(0.1)
    await client.close()
    await server.stop(0)


def test_it_works_on_uvloop(folder: Path, pods: Pods):
    async def story() -> None:
        server = PodResourcesServer(folder / "pod-resources", pods)
        await server.start()
        client = PodResources(server.directory, SystemClock())
        assert await client.list_() == (POD,)
        await server.stop()
        await server.start()
        assert await client.get("ns", "p") == POD
        await client.close()
        await server.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(story())
