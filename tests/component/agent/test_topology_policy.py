"""Under a TopologyManager policy kubelet allocates without asking first where NUMA nodes leave no choice."""

import asyncio

import grpc
import pytest

from api.foreign.core import Pod
from api.kubelet.proto.deviceplugin_pb2 import ContainerPreferredAllocationRequest
from api.names import PodUid
from tests.component.agent.node import Agent, numa_devices, whole_devices
from tests.support.bound_pods import RESOURCE, a_bound_pod
from tests.support.kubelet.admission import KubeletOfNode, PodRejectedError
from tests.support.polling import until


@pytest.fixture
def node(node: KubeletOfNode) -> KubeletOfNode:
    node.aligns = True
    return node


def a_pod(name: str, *units: str) -> Pod:
    return a_bound_pod(name, main={"main": len(units)}, assigned={"main": units})


async def test_pods_that_ended_are_replaced_on_a_full_node_again_and_again(
    agent: Agent, node: KubeletOfNode
):
    """Each replacement gets the one free device of its NUMA node, and kubelet never asks for it."""
    async with agent.running(numa_devices(0, 0, 1, 1)):
        pods = [a_pod(f"p{n}", f"GPU-{n}") for n in range(4)]
        for pod in pods:
            await agent.admit(pod)
        asked = len(node.waits)
        for turn in range(12):
            agent.end(pods[turn % 4])
            pods[turn % 4] = a_pod(f"turn-{turn}", f"GPU-{turn % 4}")
            assert await agent.admit(pods[turn % 4]) == {"main": {f"GPU-{turn % 4}"}}
    assert len(node.waits) == asked
    assert agent.events == []


@pytest.mark.parametrize("ended", ["Succeeded", "Failed"])
async def test_a_device_of_a_pod_that_the_watch_shows_ended_is_free(
    agent: Agent, node: KubeletOfNode, ended: str
):
    async with agent.running(numa_devices(0, 0)):
        before = a_pod("before", "GPU-0")
        await agent.admit(before)
        await agent.admit(a_pod("other", "GPU-1"))
        node.end(before.metadata.uid)
        agent.show(a_bound_pod("before", assigned={"main": ("GPU-0",)}, phase=ended))
        node.pod_resources.is_silent = True
        assert await agent.admit(a_pod("after", "GPU-0")) == {"main": {"GPU-0"}}


async def test_a_device_of_a_pod_that_kubelet_shows_no_more_is_free_though_the_watch_is_late(
    agent: Agent, node: KubeletOfNode
):
    async with agent.running(numa_devices(0, 0)):
        before = a_pod("before", "GPU-0")
        await agent.admit(before)
        await agent.admit(a_pod("other", "GPU-1"))
        node.end(before.metadata.uid)
        assert await agent.admit(a_pod("after", "GPU-0")) == {"main": {"GPU-0"}}


async def test_what_kubelet_says_that_a_pod_has_is_refused(agent: Agent, node: KubeletOfNode):
    """A user listed in the middle of an Allocate, and kubelet has forgotten what it gave."""
    async with agent.running(numa_devices(0, 0)):
        for name, unit in (("holder", "GPU-0"), ("other", "GPU-1")):
            await agent.admit(a_pod(name, unit))
        node.forget_use(RESOURCE, "GPU-0")
        with pytest.raises(PodRejectedError, match="GPU-0 is held by default/holder"):
            await agent.admit(a_pod("late", "GPU-0"))
        node.forget_use(RESOURCE, "GPU-1")
        with pytest.raises(PodRejectedError, match="GPU-1 is held by default/other"):
            await agent.admit(a_pod("later", "GPU-1"))


async def test_units_of_an_init_container_that_kubelet_does_not_list_are_refused_to_others(
    agent: Agent, node: KubeletOfNode
):
    holder = a_bound_pod("holder", init={"i": 2}, assigned={"i": ("GPU-0", "GPU-1")})
    async with agent.running(numa_devices(0, 0, 0, 0)):
        got = await agent.admit(holder)
        (kept,) = got["i"] - got["main"]
        await agent.admit(a_pod("other", "GPU-2"))
        with pytest.raises(grpc.aio.AioRpcError, match=f"{kept} is held by default/holder"):
            await node.plugins.allocate(RESOURCE, [kept])


async def test_a_kubelet_that_does_not_say_leaves_devices_with_those_that_the_watch_shows(
    agent: Agent, node: KubeletOfNode
):
    async with agent.running(numa_devices(0, 0, 1, 1)):
        before = a_pod("before", "GPU-0")
        for pod in (before, a_pod("other", "GPU-1"), a_pod("asks", "GPU-2")):
            await agent.admit(pod)
        node.pod_resources.is_silent = True
        node.end(before.metadata.uid)
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(PodRejectedError, match="GPU-0 is held by default/before"):
            await agent.admit(a_pod("late", "GPU-0"))
        assert loop.time() - began < 1.0
        agent.forget(before)
        assert await agent.admit(a_pod("later", "GPU-0")) == {"main": {"GPU-0"}}


async def test_an_allocation_without_a_preference_is_not_recorded_for_the_pod_of_the_last_one(
    agent: Agent, node: KubeletOfNode
):
    """kubelet asked for a pod, and what it then allocates is another one's."""
    asks = a_pod("asks", "GPU-1")
    async with agent.running(numa_devices(0, 0, 0)):
        agent.show(asks)
        node.start_admission(asks)
        request = ContainerPreferredAllocationRequest(
            available_deviceIDs=["GPU-0", "GPU-1", "GPU-2"], allocation_size=1
        )
        assert await node.plugins.prefer(RESOURCE, request) == ("GPU-1",)
        await node.plugins.allocate(RESOURCE, ["GPU-2"])
        assert agent.held_units.holder("GPU-2", RESOURCE, None) is None
        assert not agent.held_units.has_units(PodUid(asks.metadata.uid), "main", RESOURCE)
        # Nor is what comes after it: the preference is over.
        await node.plugins.allocate(RESOURCE, ["GPU-1"])
        assert not agent.held_units.has_units(PodUid(asks.metadata.uid), "main", RESOURCE)


async def test_a_preference_of_a_kubelet_that_restarted_is_over(agent: Agent, node: KubeletOfNode):
    asks = a_pod("asks", "GPU-1")
    async with agent.running(whole_devices(2)):
        agent.show(asks)
        node.start_admission(asks)
        request = ContainerPreferredAllocationRequest(
            available_deviceIDs=["GPU-0", "GPU-1"], allocation_size=1
        )
        assert await node.plugins.prefer(RESOURCE, request) == ("GPU-1",)
        await node.restart()
        await until(lambda: node.plugins.capacity(RESOURCE) == 2)
        await node.plugins.allocate(RESOURCE, ["GPU-1"])
        assert not agent.held_units.has_units(PodUid(asks.metadata.uid), "main", RESOURCE)
