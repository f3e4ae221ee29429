"""bind where kubelet chooses the NUMA nodes: no pod before kubelet's choice for the one before it is reported."""

import asyncio
import json

import pytest

from api.kinds.gpunodeinventory import (
    ContainerDevices,
    TopologyManagerPolicy,
    TopologyManagerScope,
)
from api.names import NodeName, PodUid
from pool.allocation_state import AllocationState
from pool.model import ContainerRole, KubeletTopology, PodPhase
from pool.pods.reported import is_complete
from scheduler.extender import bind
from server import allocation_reports
from server.allocation_reports import AllocationReports
from tests.support.builders import a_demand, a_device, a_node, a_pod_facts, a_pool
from tests.support.scheduling import LOST, ExtenderSetup, binding_args, seen_on

N1 = NodeName("n1")
STATIC = KubeletTopology(
    TopologyManagerPolicy.SINGLE_NUMA_NODE, TopologyManagerScope.CONTAINER, knows_numa_nodes=True
)


def a_setup(kubelet: KubeletTopology | None = STATIC) -> ExtenderSetup:
    """A node with two devices on each of two NUMA nodes, and pods that wait."""
    reports = AllocationReports()
    setup = ExtenderSetup(AllocationState(on_reported=reports.wake), reports=reports)
    index = setup.allocation_state.index
    index.replace_pool(a_pool())
    index.replace_node(a_node("n1"))
    index.replace_kubelet(N1, kubelet)
    for number in range(4):
        index.replace_device(a_device("n1", number, a_pool().name, numa_node=number // 2))
    for name in ("p", "q", "r"):
        setup.pending(name, 1)
    return setup


async def ask(setup: ExtenderSetup, name: str = "p") -> tuple[str, str]:
    answer = await bind(binding_args(name, "n1"), setup.context)
    return json.loads(answer.body)["Error"], str(answer.outcome)


def an_entry(pod: str, unit: str, container: str = "c0") -> ContainerDevices:
    return ContainerDevices(
        namespace="default",
        pod=pod,
        container=container,
        resource="gpu.deckhouse.io/whole",
        units=[unit],
        uid=f"uid-{pod}",
    )


def report(setup: ExtenderSetup, **units_by_pod: str) -> None:
    """Let the node report one device of each of these pods, and nothing else."""
    reports = {
        PodUid(f"uid-{name}"): (an_entry(name, unit),) for name, unit in units_by_pod.items()
    }
    setup.allocation_state.observe_reports(N1, reports)


def devices_of(setup: ExtenderSetup) -> dict[str, str]:
    """The Bindings in the order in which they were sent: pod -> its device."""
    bound = {
        binding.name: setup.binder.bound[binding.uid].devices or {}
        for binding in setup.binder.bindings
    }
    return {name: devices["c0"][0] for name, devices in bound.items()}


async def turn() -> None:
    """Let every task that can go on do so."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    "kubelet",
    [
        pytest.param(None, id="unknown"),
        pytest.param(
            KubeletTopology(TopologyManagerPolicy.SINGLE_NUMA_NODE, TopologyManagerScope.CONTAINER),
            id="nothing to align with",
        ),
        pytest.param(
            KubeletTopology(
                TopologyManagerPolicy.NONE, TopologyManagerScope.CONTAINER, knows_numa_nodes=True
            ),
            id="no policy",
        ),
    ],
)
async def test_elsewhere_no_pod_waits(kubelet: KubeletTopology | None):
    setup = a_setup(kubelet)
    assert [await ask(setup, name) for name in ("p", "q", "r")] == [("", "bound")] * 3


async def test_the_next_pod_is_planned_from_what_kubelet_gave_to_the_one_before():
    setup = a_setup()
    assert await ask(setup) == ("", "bound")
    async with asyncio.TaskGroup() as group:
        call = group.create_task(ask(setup, "q"))
        await turn()
        setup.bound("p", "n1", "GPU-n1-0")
        await turn()
        assert len(setup.binder.bindings) == 1
        report(setup, p="GPU-n1-1")
    assert call.result() == ("", "bound")
    assert devices_of(setup) == {"p": "GPU-n1-0", "q": "GPU-n1-0"}


@pytest.mark.looptime
async def test_when_the_time_is_over_the_error_names_the_pods():
    setup = a_setup()
    await ask(setup)
    assert await ask(setup, "q") == (
        "pod default/q is not bound yet: kubelet on node n1 chooses devices by what is free, and the node agent has not"
        " reported its choice for pod default/p; the next attempt may succeed",
        "awaiting_report",
    )
    assert (setup.phase("q"), len(setup.binder.bindings)) == (None, 1)
    assert asyncio.get_running_loop().time() == pytest.approx(allocation_reports.WITHIN_S)


@pytest.mark.looptime
async def test_a_pod_that_is_never_reported_is_not_waited_for_forever():
    setup = a_setup()
    await ask(setup)
    attempts = 1
    while (await ask(setup, "q"))[1] != "bound":
        attempts += 1
    waited_s = asyncio.get_running_loop().time()
    assert waited_s == pytest.approx(allocation_reports.GIVE_UP_S, abs=allocation_reports.WITHIN_S)
    assert attempts < 20


@pytest.mark.parametrize(
    "ends",
    [
        pytest.param(lambda setup: report(setup, p="GPU-n1-0"), id="reported"),
        pytest.param(lambda setup: setup.allocation_state.discard_pod(PodUid("uid-p")), id="gone"),
        pytest.param(
            lambda setup: setup.pending("p", 1, phase=PodPhase.ENDED, node=N1), id="ended"
        ),
    ],
)
async def test_the_wait_ends_with_the_pod_or_its_report(ends):
    setup = a_setup()
    setup.bound("p", "n1", "GPU-n1-0")
    async with asyncio.TaskGroup() as group:
        call = group.create_task(ask(setup, "q"))
        await turn()
        assert not call.done()
        ends(setup)
    assert call.result() == ("", "bound")


async def test_a_binding_under_way_is_waited_for_and_its_refusal_ends_that():
    setup = a_setup()
    setup.binder.pause = asyncio.Event()
    setup.binder.fail_next = [LOST]
    async with asyncio.TaskGroup() as group:
        group.create_task(ask(setup))
        await setup.binder.sent.wait()
        call = group.create_task(ask(setup, "q"))
        await turn()
        assert not call.done()
        setup.binder.pause.set()
        await turn()
        assert (setup.phase("p"), call.done()) == ("doubtful", False)
        setup.allocation_state.release(PodUid("uid-p"))
    assert call.result() == ("", "bound")


async def test_of_many_that_wait_one_is_bound_at_each_report_in_their_order():
    setup = a_setup()
    setup.bound("p", "n1", "GPU-n1-0")
    async with asyncio.TaskGroup() as group:
        for name in ("q", "r"):
            group.create_task(ask(setup, name))
        await turn()
        report(setup, p="GPU-n1-0")
        await turn()
        assert devices_of(setup) == {"q": "GPU-n1-1"}
        setup.bound("q", "n1", "GPU-n1-1")
        report(setup, p="GPU-n1-0", q="GPU-n1-1")
    assert devices_of(setup) == {"q": "GPU-n1-1", "r": "GPU-n1-2"}


async def test_a_call_that_is_cancelled_while_it_waits_leaves_nothing():
    setup = a_setup()
    setup.bound("p", "n1", "GPU-n1-0")
    call = asyncio.get_running_loop().create_task(ask(setup, "q"))
    await turn()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (setup.phase("q"), setup.free("n1"), setup.binder.bindings) == (None, 3, [])
    report(setup, p="GPU-n1-0")
    assert await ask(setup, "q") == ("", "bound")


async def test_a_replica_that_leads_no_more_after_the_wait_binds_nothing():
    setup = a_setup()
    setup.bound("p", "n1", "GPU-n1-0")
    async with asyncio.TaskGroup() as group:
        call = group.create_task(ask(setup, "q"))
        await turn()
        setup.is_ready = False
        report(setup, p="GPU-n1-0")
    assert call.result()[1] == "not_ready"
    assert setup.binder.bindings == []


async def test_a_pod_that_was_bound_meanwhile_is_bound_once():
    setup = a_setup()
    setup.bound("p", "n1", "GPU-n1-0")
    async with asyncio.TaskGroup() as group:
        call = group.create_task(ask(setup, "q"))
        await turn()
        setup.bound("q", "n1", "GPU-n1-1")
        setup.binder.bound[PodUid("uid-q")] = seen_on("n1", "GPU-n1-1")
        report(setup, p="GPU-n1-0")
    assert call.result() == ("", "already_bound")
    assert setup.binder.bindings == []


def test_a_report_counts_once_it_has_every_container_that_kubelet_lists():
    roles = (ContainerRole.INIT, ContainerRole.MAIN, ContainerRole.SIDECAR)
    facts = a_pod_facts("many", demand=a_demand(1, 1, 1, roles=roles))
    entries = tuple(an_entry("many", "GPU-n1-0", container) for container in ("c1", "c2"))
    assert [is_complete(facts, report) for report in (None, entries[:1], entries)] == [
        False,
        False,
        True,
    ]
