"""kubelet forgets a pod that is deleted by force at once; the plugin waits a while for its processes."""

import asyncio
from functools import partial

import msgspec
import pytest

from agent.plugin.terminated_pods import WITHIN_S
from telemetry.reasons import EventReason
from tests.component.agent.node import Agent, numa_devices, whole_devices
from tests.support.bound_pods import a_bound_pod
from tests.support.kubelet.admission import KubeletOfNode, PodRejectedError


@pytest.fixture(params=[False, True], ids=["asked", "aligned"])
def node(node: KubeletOfNode, request: pytest.FixtureRequest) -> KubeletOfNode:
    node.aligns = request.param
    return node


BEFORE = a_bound_pod("before", assigned={"main": ("GPU-0",)})
AFTER = a_bound_pod("after", assigned={"main": ("GPU-0",)})


async def test_a_pod_gets_its_assigned_units_once_the_processes_of_the_one_before_have_ended(
    agent: Agent,
):
    async with agent.running(numa_devices(0)):
        await agent.admit(BEFORE)
        agent.report_holders(before="GPU-0")
        agent.end(BEFORE)
        loop = asyncio.get_running_loop()
        loop.call_later(0.4, agent.report_holders)
        began = loop.time()
        assert await agent.admit(AFTER) == {"main": {"GPU-0"}}
        assert loop.time() - began >= 0.4
    assert agent.events == []


async def test_one_that_ended_in_order_is_not_waited_for(agent: Agent):
    async with agent.running(numa_devices(0)):
        await agent.admit(BEFORE)
        agent.report_holders(before="GPU-0")
        agent.show(a_bound_pod("before", assigned={"main": ("GPU-0",)}, phase="Succeeded"))
        agent.end(BEFORE)
        assert await agent.admit(AFTER) == {"main": {"GPU-0"}}
        assert max(agent.kubelet.waits, default=0.0) < WITHIN_S


async def test_processes_that_stay_are_waited_for_once(agent: Agent):
    agent.allocator.terminated_pods.within_s = 0.3
    loop = asyncio.get_running_loop()
    took: list[float] = []
    async with agent.running(numa_devices(0)):
        await agent.admit(BEFORE)
        agent.report_holders(before="GPU-0")
        agent.end(BEFORE)
        for name in ("after", "again"):
            began = loop.time()
            with pytest.raises(PodRejectedError, match="default/before, whose processes are still"):
                await agent.admit(a_bound_pod(name, assigned={"main": ("GPU-0",)}))
            took.append(loop.time() - began)
    assert took[0] >= 0.3 > took[1]


async def test_a_device_beside_them_is_given_in_their_place(agent: Agent):
    agent.allocator.terminated_pods.within_s = 0.1
    async with agent.running(whole_devices(2)):
        await agent.admit(BEFORE)
        agent.report_holders(before="GPU-0")
        agent.end(BEFORE)
        assert await agent.admit(AFTER) == {"main": {"GPU-1"}}
    ((name, reason, note),) = agent.events
    assert (name, reason) == ("after", EventReason.DEVICES_SUBSTITUTED)
    assert "GPU-0 is held by default/before, whose processes are still there" in note


def revived(agent: Agent, *, phase: str) -> None:
    """The pod as the API server shows it; its containers run, whatever its phase says."""
    status = {"phase": phase, "containerStatuses": [{"state": {"running": {}}}]}
    agent.show(msgspec.structs.replace(BEFORE, status=msgspec.convert(status, type(BEFORE.status))))


async def test_what_a_pod_lost_by_a_phase_that_was_taken_back_is_its_own(
    agent: Agent, node: KubeletOfNode
):
    """kubelet went by the phase of a user; it lists the pod again, and never again its devices."""
    async with agent.running(whole_devices(2)):
        await agent.admit(BEFORE)
        agent.report_holders(before="GPU-0")
        node.end(BEFORE.metadata.uid)
        node._recount()
        revived(agent, phase="Succeeded")
        loop = asyncio.get_running_loop()
        loop.call_later(0.2, partial(revived, agent, phase="Running"))
        loop.call_later(0.4, node._active.update, {BEFORE.metadata.uid: BEFORE})
        assert await agent.admit(AFTER) == {"main": {"GPU-1"}}
    ((name, reason, note),) = agent.events
    assert (name, reason) == ("after", EventReason.DEVICES_SUBSTITUTED)
    assert "GPU-0 is held by default/before, whose devices kubelet has forgotten" in note
