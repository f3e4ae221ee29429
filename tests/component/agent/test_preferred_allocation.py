"""Which devices pods get, against a double of kubelet that admits them as kubelet does."""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

import pytest

from api.kinds.gpupool import SlicePlacement
from api.kubelet.podresources import LIST
from api.kubelet.proto.deviceplugin_pb2 import ContainerAllocateResponse
from api.units import part_of
from telemetry.conditions import AgentDegraded
from telemetry.metrics import REGISTRY
from telemetry.reasons import EventReason
from tests.component.agent.node import Agent, slices_of, whole_devices
from tests.support.bound_pods import RESOURCE, a_bound_pod
from tests.support.kubelet.admission import KubeletOfNode, PodRejectedError
from tests.support.polling import until

SLICES = "gpu.deckhouse.io/slices"


def counted(outcome: str) -> float:
    labels = {"resource": RESOURCE, "outcome": outcome}
    return REGISTRY.get_sample_value("gpu_agent_allocations_total", labels) or 0.0


async def test_each_of_ten_pods_at_once_gets_its_assigned_units(agent: Agent):
    assigned = {f"p{n}": (f"GPU-{9 - n}",) for n in range(10)}
    pods = [a_bound_pod(name, assigned={"main": units}) for name, units in assigned.items()]
    async with agent.running(whole_devices(16)):
        got = await asyncio.gather(*(agent.admit(pod) for pod in reversed(pods)))
    assert [item["main"] for item in got] == [set(item) for item in reversed(assigned.values())]
    assert agent.events == []


@pytest.mark.parametrize(
    ("shape", "assigned"),
    [
        pytest.param(
            {"main": {"a": 2, "b": 1}},
            {"a": ("GPU-5", "GPU-3"), "b": ("GPU-4",)},
            id="two containers",
        ),
        pytest.param(
            {"init": {"i": 1}, "main": {"a": 2}},
            {"i": ("GPU-5",), "a": ("GPU-5", "GPU-2")},
            id="an init container that has fewer",
        ),
        pytest.param(
            {"init": {"i": 2}, "main": {"a": 2}},
            {"i": ("GPU-5", "GPU-2"), "a": ("GPU-5", "GPU-2")},
            id="an init container that has as many",
        ),
        pytest.param(
            {"init": {"i": 1, "j": 2}, "main": {"a": 3}},
            {"i": ("GPU-5",), "j": ("GPU-5", "GPU-4"), "a": ("GPU-5", "GPU-4", "GPU-1")},
            id="two init containers",
        ),
        pytest.param(
            {"sidecars": {"s": 1}, "main": {"a": 1}},
            {"s": ("GPU-5",), "a": ("GPU-2",)},
            id="a sidecar",
        ),
        pytest.param(
            {"init": {"i": 1}, "sidecars": {"s": 1}, "main": {"a": 1}},
            {"i": ("GPU-5",), "s": ("GPU-5",), "a": ("GPU-2",)},
            id="a sidecar that has an init container's",
        ),
    ],
)
async def test_every_container_gets_its_own(
    agent: Agent, shape: Mapping[str, Any], assigned: dict[str, tuple[str, ...]]
):
    async with agent.running(whole_devices(6)):
        got = await agent.admit(a_bound_pod("p", assigned=assigned, **shape))
    assert got == {name: set(units) for name, units in assigned.items()}


async def test_containers_that_need_fewer_have_some_of_their_init_containers(agent: Agent):
    assigned = {"i": ("GPU-5", "GPU-2", "GPU-1"), "a": ("GPU-5", "GPU-2")}
    pod = a_bound_pod("p", init={"i": 3}, main={"a": 2}, assigned=assigned)
    async with agent.running(whole_devices(6)):
        got = await agent.admit(pod)
        assert got["i"] == set(assigned["i"])
        assert got["a"] < got["i"]
        holders = {agent.held_units.holder(unit, RESOURCE, None) for unit in got["i"]}
        assert {holder and holder.ref for holder in holders} == {"default/p"}
        # What is left of the init container's stays the pod's, though kubelet lists it nowhere.
        other = await agent.admit(a_bound_pod("q", assigned={"main": ("GPU-1",)}))
        assert other["main"].isdisjoint(got["i"])


async def test_slices_are_allocated_as_assigned(agent: Agent):
    assigned = {"main": ("GPU-s1::1", "GPU-s0::3")}
    pod = a_bound_pod("p", main={"main": 2}, assigned=assigned, resource=SLICES)
    async with agent.running(whole_devices(2), slices_of(2, 4, SLICES)):
        assert await agent.admit(pod) == {"main": set(assigned["main"])}


async def test_a_pod_that_another_scheduler_bound_gets_its_fraction_of_one_device(agent: Agent):
    """The largest node: the messages of 16 devices with 100 slices each."""
    fractions = slices_of(16, 100, SLICES, placement=SlicePlacement.SAME_DEVICE)
    half = {"main": tuple(f"GPU-s3::{n}" for n in range(50))}
    whole = {"main": tuple(f"GPU-s{device}::{n}" for device in (0, 1) for n in range(100))}
    async with agent.running(fractions):
        for pod in (
            a_bound_pod("half", main={"main": 50}, assigned=half, resource=SLICES),
            a_bound_pod("two", main={"main": 200}, assigned=whole, resource=SLICES),
        ):
            await agent.admit(pod)
        beside = await agent.admit(
            a_bound_pod("around", init={"i": 20}, main={"main": 30}, resource=SLICES)
        )
        alone = await agent.admit(a_bound_pod("more", main={"main": 51}, resource=SLICES))
    assert {part_of(unit) for unit in beside["main"]} == {"GPU-s3"}
    assert beside["i"] < beside["main"]
    assert len({part_of(unit) for unit in alone["main"]}) == 1
    assert agent.events == []


async def test_a_watch_that_is_late_is_waited_for(agent: Agent):
    async with agent.running(whole_devices(8)):
        pod = a_bound_pod("p", assigned={"main": ("GPU-6",)})
        assert await agent.admit(pod, lag_s=0.1) == {"main": {"GPU-6"}}


async def test_a_pod_that_no_watch_shows_gets_units_that_are_assigned_to_no_pod(agent: Agent):
    assigned = tuple(f"GPU-{n}" for n in range(7))
    waiting = a_bound_pod("waiting", main={"main": 7}, assigned={"main": assigned})
    before = counted("unrecognised")
    async with agent.running(whole_devices(8)):
        agent.show(waiting)
        got = await agent.kubelet.admit(a_bound_pod("unseen"))
        assert got["main"].units == {RESOURCE: {"GPU-7"}}
        assert max(agent.kubelet.waits) < 1.0
        assert counted("unrecognised") == before + 1
        assert (await agent.admit(waiting))["main"] == set(assigned)


async def test_a_pod_that_another_scheduler_bound_gets_units_that_are_assigned_to_no_pod(
    agent: Agent,
):
    before = counted("unpromised")
    async with agent.running(whole_devices(3)):
        agent.show(a_bound_pod("waiting", main={"main": 2}, assigned={"main": ("GPU-0", "GPU-1")}))
        assert await agent.admit(a_bound_pod("around")) == {"main": {"GPU-2"}}
    assert counted("unpromised") == before + 1


async def test_a_pod_of_the_same_name_gets_its_own_assigned_units(agent: Agent):
    """A StatefulSet's pod is deleted and made again; the watch is late with both."""
    first = a_bound_pod("web-0", uid="first", assigned={"main": ("GPU-1",)})
    second = a_bound_pod("web-0", uid="second", assigned={"main": ("GPU-2",)})
    async with agent.running(whole_devices(4)):
        assert await agent.admit(first) == {"main": {"GPU-1"}}
        agent.kubelet.end("first")
        asyncio.get_running_loop().call_later(0.1, agent.forget, first)
        assert await agent.admit(second, lag_s=0.1) == {"main": {"GPU-2"}}


async def test_it_may_have_the_very_device_that_its_predecessor_had(agent: Agent):
    first = a_bound_pod(
        "web-0", uid="first", init={"i": 1}, assigned={"i": ("GPU-1",), "main": ("GPU-1",)}
    )
    second = a_bound_pod(
        "web-0", uid="second", init={"i": 1}, assigned={"i": ("GPU-1",), "main": ("GPU-1",)}
    )
    async with agent.running(whole_devices(4)):
        await agent.admit(first)
        agent.end(first)
        assert await agent.admit(second) == {"i": {"GPU-1"}, "main": {"GPU-1"}}
    assert agent.events == []


async def test_what_its_predecessor_had_is_anybodys(agent: Agent):
    """An init container's devices are listed nowhere, and the name is listed on."""
    pods = [
        a_bound_pod(
            "web-0", uid=unit, init={"i": 2}, assigned={"i": (unit, other), "main": (unit,)}
        )
        for unit, other in (("GPU-0", "GPU-1"), ("GPU-2", "GPU-3"))
    ]
    async with agent.running(whole_devices(4)):
        for pod in pods:
            got = await agent.admit(pod)
            assert got["i"] == {pod.metadata.uid, f"GPU-{int(pod.metadata.uid[-1]) + 1}"}
            if pod is pods[0]:
                agent.end(pod)
        for unit in ("GPU-0", "GPU-1"):
            got = await agent.admit(a_bound_pod(f"next-{unit}", assigned={"main": (unit,)}))
            assert got == {"main": {unit}}


async def test_a_held_unit_is_substituted_and_the_pod_gets_an_event(agent: Agent):
    before = counted("substituted")
    async with agent.running(whole_devices(4)):
        await agent.admit(a_bound_pod("holder", assigned={"main": ("GPU-1",)}))
        got = await agent.admit(
            a_bound_pod("late", main={"main": 2}, assigned={"main": ("GPU-1", "GPU-3")})
        )
    assert got["main"] >= {"GPU-3"}
    assert "GPU-1" not in got["main"]
    ((name, reason, note),) = agent.events
    assert (name, reason) == ("late", EventReason.DEVICES_SUBSTITUTED)
    assert note == "container main gets GPU-0 in place of GPU-1: GPU-1 is held by default/holder"
    assert counted("substituted") == before + 1


async def test_units_assigned_to_others_are_allocated_last(agent: Agent):
    async with agent.running(whole_devices(3)):
        agent.show(a_bound_pod("waiting", assigned={"main": ("GPU-0",)}))
        await agent.admit(a_bound_pod("holder", assigned={"main": ("GPU-2",)}))
        got = await agent.admit(a_bound_pod("late", assigned={"main": ("GPU-2",)}))
        assert got == {"main": {"GPU-1"}}
        got = await agent.admit(a_bound_pod("later", assigned={"main": ("GPU-2",)}))
        assert got == {"main": {"GPU-0"}}


async def test_a_list_while_a_device_is_being_allocated_shares_nothing(
    agent: Agent, node: KubeletOfNode
):
    """Another client lists, a pod has just ended, and kubelet forgets what it is giving out."""
    ended = a_bound_pod("ended", assigned={"main": ("GPU-0",)})
    first = a_bound_pod("first", assigned={"main": ("GPU-1",)})
    async with agent.running(whole_devices(3)):
        await agent.admit(ended)
        allocate = node.plugins.allocate

        async def allocate_while_pods_are_listed(
            resource: str, ids: list[str]
        ) -> ContainerAllocateResponse:
            response = await allocate(resource, ids)
            agent.end(ended)
            node.list_pods()
            return response

        node.plugins.allocate = allocate_while_pods_are_listed  # type: ignore[method-assign,assignment]
        await agent.admit(first)
        node.plugins.allocate = allocate  # type: ignore[method-assign]
        late = a_bound_pod("late", main={"main": 2}, assigned={"main": ("GPU-1", "GPU-2")})
        assert await agent.admit(late) == {"main": {"GPU-0", "GPU-2"}}
        # kubelet believes that there is one more: nothing is left that is nobody's.
        node.forget_use(RESOURCE, "GPU-1")
        with pytest.raises(PodRejectedError, match="GPU-1 is held by default/first"):
            await agent.admit(a_bound_pod("last", assigned={"main": ("GPU-1",)}))
    assert agent.events[-1][:2] == ("last", EventReason.DEVICES_REFUSED)
    assert node.lists_during_allocate == 1


async def test_allocate_refuses_units_of_another_pod_without_a_preference_before(
    agent: Agent, node: KubeletOfNode
):
    async with agent.running(whole_devices(2)):
        await agent.admit(a_bound_pod("holder", assigned={"main": ("GPU-1",)}))
        await agent.admit(a_bound_pod("other", assigned={"main": ("GPU-0",)}))
        with pytest.raises(Exception, match="GPU-1 is held by default/holder"):
            await node.plugins.allocate(RESOURCE, ["GPU-1"])


async def test_a_kubelet_that_does_not_answer_list_delays_no_pod_for_long(
    agent: Agent, node: KubeletOfNode
):
    async with agent.running(whole_devices(4)):
        node.pod_resources.is_silent = True
        for name, unit in (("p", "GPU-3"), ("q", "GPU-1")):
            pod = a_bound_pod(name, assigned={"main": (unit,)})
            assert await agent.admit(pod) == {"main": {unit}}
        assert agent.problems.summary().reason is AgentDegraded.KUBELET_SILENT
        await agent.admit(a_bound_pod("around"))
        assert max(node.waits) < 1.0
        node.pod_resources.is_silent = False
        await agent.admit(a_bound_pod("last", assigned={"main": ("GPU-0",)}))
        assert agent.problems.summary().reason is AgentDegraded.AS_EXPECTED


async def test_pods_that_wait_over_a_restart_of_kubelet_get_theirs(
    agent: Agent, node: KubeletOfNode
):
    async with agent.running(whole_devices(8)):
        await agent.admit(a_bound_pod("before", assigned={"main": ("GPU-7",)}))
        pods = [a_bound_pod(f"p{n}", assigned={"main": (f"GPU-{n}",)}) for n in range(4)]
        for pod in pods:
            agent.show(pod)
        await node.restart()
        # What the plugin knows is no sign: a stream of the kubelet before may not have ended yet.
        await until(lambda: node.plugins.capacity(RESOURCE) == 8)
        for pod in reversed(pods):
            got = await node.admit(pod)
            assert got["main"].units[RESOURCE] == {f"GPU-{pod.metadata.name[1:]}"}
        assert node.pod_resources.calls.count(LIST) == 5
    assert agent.events == []


@pytest.mark.parametrize("is_checkpoint_lost", [False, True])
async def test_init_and_main_containers_have_the_same_again_after_a_restart_of_kubelet(
    agent: Agent, node: KubeletOfNode, *, is_checkpoint_lost: bool
):
    """kubernetes#138446: kubelet admits a running pod again, its completed init container too."""
    shapes: dict[str, tuple[dict[str, Any], dict[str, tuple[str, ...]]]] = {
        "both": (
            {"init": {"i": 1}, "main": {"a": 2}},
            {"i": ("GPU-5",), "a": ("GPU-5", "GPU-1")},
        ),
        "sidecar": (
            {"init": {"i": 1}, "sidecars": {"s": 1}, "main": {"a": 1}},
            {"i": ("GPU-0",), "s": ("GPU-0",), "a": ("GPU-2",)},
        ),
        "plain": ({"main": {"a": 1}}, {"a": ("GPU-3",)}),
    }
    pods = [a_bound_pod(name, assigned=given, **shape) for name, (shape, given) in shapes.items()]
    async with agent.running(whole_devices(6)):
        for pod in pods:
            await agent.admit(pod)
        if is_checkpoint_lost:
            node.lose_checkpoint()
        await node.restart()
        await until(lambda: node.plugins.capacity(RESOURCE) == 6)
        for pod in reversed(pods):
            got = await node.admit(pod)
            given = shapes[pod.metadata.name][1]
            assert {name: set(item.units[RESOURCE]) for name, item in got.items()} == {
                name: set(units) for name, units in given.items()
            }
    assert agent.events == []


async def test_a_restarted_agent_knows_what_is_held(node: KubeletOfNode, agent: Agent, folder):
    async with agent.running(whole_devices(3)):
        holder = a_bound_pod("holder", assigned={"main": ("GPU-1",)})
        await agent.admit(holder)
    other = Agent(node, folder)
    async with other.running(whole_devices(3)):
        other.show(holder)
        await until(lambda: node.plugins.capacity(RESOURCE) == 3)
        with contextlib.suppress(KeyError):
            node.forget_use(RESOURCE, "GPU-1")
        got = await other.admit(a_bound_pod("late", assigned={"main": ("GPU-1",)}))
        assert got["main"].isdisjoint({"GPU-1"})
