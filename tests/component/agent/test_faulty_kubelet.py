"""A kubelet that speaks nonsense gets a clear answer at once, and everything goes on."""

import asyncio
import gc
from pathlib import Path
from typing import Any

import grpc
import pytest

from agent.plugin.advertised import Unit
from agent.plugin.service import DevicePluginService
from api.kubelet.deviceplugin import (
    ALLOCATE,
    GET_PREFERRED,
    HEALTHY,
    LIST_AND_WATCH,
    PLUGIN_SERVICE,
    PRE_START,
)
from api.kubelet.proto.deviceplugin_pb2 import (
    ContainerPreferredAllocationRequest,
    DeviceSpec,
    Empty,
    ListAndWatchResponse,
    Mount,
    PreferredAllocationRequest,
    PreStartContainerRequest,
)
from api.nodefiles.node_devices_file import DEVICES_FILE
from api.nodefiles.poolconfig import DeviceInjection
from http_edge.system_clock import SystemClock
from telemetry.conditions import AgentDegraded
from telemetry.metrics import REGISTRY
from tests.component.agent.node import Agent, slices_of, whole_devices
from tests.support.bound_pods import RESOURCE, a_bound_pod
from tests.support.kubelet.admission import KubeletOfNode, PodRejectedError
from tests.support.polling import until


def a_request(
    *available: str, size: int, must: tuple[str, ...] = ()
) -> ContainerPreferredAllocationRequest:
    return ContainerPreferredAllocationRequest(
        available_deviceIDs=available, must_include_deviceIDs=must, allocation_size=size
    )


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        pytest.param(a_request("GPU-0", size=0), (), id="nothing wanted"),
        pytest.param(a_request("GPU-0", size=-5), (), id="less than nothing"),
        pytest.param(a_request("GPU-1", "GPU-x", size=1), ("GPU-1",), id="an unknown id"),
        pytest.param(a_request("GPU-1", "GPU-1", size=1), ("GPU-1",), id="one twice"),
        pytest.param(
            a_request("GPU-0", "GPU-1", size=1, must=("GPU-1",)), ("GPU-1",), id="one that must be"
        ),
    ],
)
async def test_a_preference_that_makes_little_sense_is_answered(
    agent: Agent,
    node: KubeletOfNode,
    request_: ContainerPreferredAllocationRequest,
    answer: tuple[str, ...],
):
    async with agent.running(whole_devices(2)):
        assert await node.plugins.prefer(RESOURCE, request_) == answer


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(a_request("GPU-0", "GPU-1", size=3), id="more than available"),
        pytest.param(a_request(size=1), id="of nothing"),
        pytest.param(a_request("GPU-x", "GPU-y", size=1), id="of what nobody advertised"),
        pytest.param(a_request("GPU-0", "GPU-1", size=2**31 - 1), id="of all the world"),
    ],
)
async def test_a_preference_that_cannot_be_met_is_refused(
    agent: Agent, node: KubeletOfNode, request_: ContainerPreferredAllocationRequest
):
    async with agent.running(whole_devices(2)):
        with pytest.raises(grpc.aio.AioRpcError, match="requested, and only") as refused:
            await node.plugins.prefer(RESOURCE, request_)
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION


@pytest.mark.parametrize("call", [GET_PREFERRED, ALLOCATE])
async def test_bytes_that_are_no_message_are_refused(agent: Agent, node: KubeletOfNode, call: str):
    async with agent.running(whole_devices(2)):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await node.plugins.call(RESOURCE, call, b"\xff\xff\xff")
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert refused.value.details() == (
            f"{call}: malformed request: not a message of the device plugin API v1beta1"
        )
        for empty in (GET_PREFERRED, ALLOCATE, PRE_START):
            assert await node.plugins.call(RESOURCE, empty, b"") == b""
        assert await agent.admit(a_bound_pod("p", assigned={"main": ("GPU-1",)})) == {
            "main": {"GPU-1"}
        }


async def test_several_containers_at_once_are_refused(agent: Agent, node: KubeletOfNode):
    content = PreferredAllocationRequest(
        container_requests=[a_request("GPU-0", size=1)] * 2
    ).SerializeToString()
    async with agent.running(whole_devices(2)):
        with pytest.raises(grpc.aio.AioRpcError, match="2 containers in one request"):
            await node.plugins.call(RESOURCE, GET_PREFERRED, content)


async def test_a_pod_waits_for_nothing_that_the_containers_start_asks(
    agent: Agent, node: KubeletOfNode
):
    async with agent.running(whole_devices(1)):
        content = PreStartContainerRequest(devices_ids=["GPU-0"]).SerializeToString()
        assert await node.plugins.call(RESOURCE, PRE_START, content) == b""


async def test_a_fault_of_ours_is_seen_and_ends_nothing(node: KubeletOfNode, folder: Path):
    class Broken:
        async def prefer(self, *_: object) -> None:
            raise RuntimeError("broken")

    agent = Agent(node, folder, allocator=Broken())
    task = {"task": "plugin.answer"}
    before = REGISTRY.get_sample_value("gpu_task_failures_total", task) or 0.0
    async with agent.running(whole_devices(1)):
        with pytest.raises(PodRejectedError, match="internal error of the device plugin"):
            await node.admit(a_bound_pod("p"))
        assert not agent.served.missing
    assert REGISTRY.get_sample_value("gpu_task_failures_total", task) == before + 1


async def test_a_device_that_the_node_calls_unhealthy_is_shown_so_within_a_second(
    agent: Agent, node: KubeletOfNode, folder: Path
):
    def write(content: str) -> None:
        (folder / "fresh").write_text(content)
        (folder / "fresh").rename(folder / DEVICES_FILE)

    def healthy() -> list[str]:
        return [device.ID for device in node.plugins.devices[RESOURCE] if device.health == HEALTHY]

    devices = '{"version": "v1", "cards": [{"uuid": "GPU-0", "address": "a", "isHealthy": %s}]}'
    async with agent.running(whole_devices(2)):
        await until(lambda: healthy() == ["GPU-0", "GPU-1"])
        write(devices % "false")
        await until(lambda: healthy() == ["GPU-1"])
        write("{")
        await until(lambda: agent.problems.summary().reason is AgentDegraded.BAD_CONFIG)
        assert healthy() == ["GPU-1"]
        write(devices % "true")
        await until(lambda: healthy() == ["GPU-0", "GPU-1"])
        assert agent.problems.summary().reason is AgentDegraded.AS_EXPECTED
        (folder / DEVICES_FILE).unlink()
        write(devices % "false")
        await until(lambda: healthy() == ["GPU-1"])
        (folder / DEVICES_FILE).unlink()
        got = await agent.admit(a_bound_pod("p", assigned={"main": ("GPU-1",)}))
        assert got == {"main": {"GPU-1"}}
        assert healthy() == ["GPU-1"]


async def test_without_their_files_devices_are_not_offered_where_files_are_handed_out(
    node: KubeletOfNode, folder: Path
):
    agent = Agent(node, folder, hand_out=DeviceInjection.DEVICES)
    async with agent.running(whole_devices(1)):
        await until(lambda: node.plugins.capacity(RESOURCE) == 1)
        assert node.plugins.allocatable(RESOURCE) == 0
        with pytest.raises(grpc.aio.AioRpcError, match=r"there is no cards\.json on this node"):
            await node.plugins.allocate(RESOURCE, ["GPU-0"])
        (folder / DEVICES_FILE).write_text(
            '{"version": "v1", "cards": [{"uuid": "GPU-0", "address": "a", "nodes": ["/dev/nvidia0"]}],'
            ' "shared": {"nodes": ["/dev/nvidiactl"],'
            ' "mounts": [{"hostPath": "/lib/a", "containerPath": "/usr/local/nvidia/lib64/a"}]}}'
        )
        await until(lambda: node.plugins.allocatable(RESOURCE) == 1)
        response = await node.plugins.allocate(RESOURCE, ["GPU-0"])
    assert list(response.devices) == [
        DeviceSpec(container_path=path, host_path=path, permissions="rw")
        for path in ("/dev/nvidia0", "/dev/nvidiactl")
    ]
    assert list(response.mounts) == [
        Mount(container_path="/usr/local/nvidia/lib64/a", host_path="/lib/a", read_only=True)
    ]
    assert response.envs["NVIDIA_VISIBLE_DEVICES"] == "void"


async def a_list(listing: Any) -> ListAndWatchResponse:
    response: ListAndWatchResponse = await listing.read()
    return response


async def test_ten_thousand_changes_leave_nothing_behind(node: KubeletOfNode):
    """1,024 slices, with kubelet connected: what is sent last is what it has."""
    plugin = DevicePluginService("r/x", SystemClock())
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((plugin.handlers(),))
    socket = node.plugins.directory / "x.sock"
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    well = slices_of(16, 64, "r/x").units
    sick = (*well[:-1], Unit(id=well[-1].id, device=well[-1].device, is_healthy=False))
    seen = ListAndWatchResponse()
    async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
        listing = channel.unary_stream(
            f"/{PLUGIN_SERVICE}/{LIST_AND_WATCH}",
            request_serializer=Empty.SerializeToString,
            response_deserializer=ListAndWatchResponse.FromString,
        )(Empty())
        objects = 0
        for number in range(10_000):
            plugin.advertise(sick if number % 2 else well)
            if number % 100 == 0:
                seen = await a_list(listing)
            if number == 1_000:
                gc.collect()
                objects = len(gc.get_objects())
        while seen.devices[-1].health == HEALTHY:
            seen = await a_list(listing)
        gc.collect()
        assert len(gc.get_objects()) < objects + 2_000
        assert len(seen.devices) == 1024
        listing.cancel()
    await server.stop(0)
    await until(lambda: plugin.streams == 0)


async def test_what_is_open_is_answered_before_a_plugin_stops(agent: Agent, node: KubeletOfNode):
    """SIGTERM in the middle of an admission."""
    pod = a_bound_pod("p", assigned={"main": ("GPU-1",)})
    async with asyncio.TaskGroup() as group:
        async with agent.running(whole_devices(2)):
            asking = group.create_task(
                node.plugins.prefer(RESOURCE, a_request("GPU-0", "GPU-1", size=1))
            )
            # Nobody is recognised yet, and our watch is waited for.
            await until(lambda: bool(node.pod_resources.calls))
        agent.show(pod)
    assert asking.result()
    await until(lambda: node.plugins.devices == {})
