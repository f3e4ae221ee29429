"""Free units of a pool that scales go to its gated pods, in order, and never past pods that come first."""

import asyncio
import contextlib
import dataclasses

import pytest

from api.names import AGENT_NOT_READY_TAINT, CAPACITY_GATE, NodeName
from autoscaling.scaling_model import RequestId, SignalFacts
from kube.errors import KubeError, ServerError
from kube.resources import GPU_POOLS, NODES, PODS
from reconciler.scaling.capacity_holds import AGAIN_S, HEAD_START_S, MOST_AT_ONCE
from reconciler.scaling.gated_pods import REFUSED_FOR_S
from tests.component.reconciler.handover_run import (
    N1,
    POOL,
    ScalingRun,
    a_scaling_run,
)
from tests.support.allocation_state import a_bound_pod
from tests.support.builders import EPOCH, a_device, a_pod_facts
from tests.support.cancellation import at_every_suspension, runs_through

pytestmark = pytest.mark.looptime

URGENT = "system-cluster-critical"
BOUND = a_bound_pod("b", "GPU-n1-0", "GPU-n1-1")


async def handed_over(run: ScalingRun) -> None:
    """The node is an ordinary one."""
    await run.admin.merge_patch(NODES, {"spec": {"taints": None}}, name=N1)
    await run.process.observe()
    run.api.requests.clear()


async def ungated(run: ScalingRun) -> list[str]:
    return sorted(name for name, gates in (await run.gates()).items() if not gates)


async def test_units_that_come_free_go_to_the_pods_in_order_of_priority_then_age():
    async with a_scaling_run("young", "old") as run:
        await run.add_gated_pod("urgent", priorityClassName=URGENT)
        await handed_over(run)
        run.process.cluster.pods.upsert(BOUND)
        assert await run.process.give() == AGAIN_S
        assert await ungated(run) == []
        run.process.cluster.pods.discard(BOUND)
        assert await run.process.give() == AGAIN_S
        reserved = await run.reserved()
        assert reserved.keys() == {"urgent", *(await ungated(run))}
        assert len(reserved) == 2


async def test_a_pod_gets_its_reservation_and_loses_its_gate_in_one_write():
    """Weak point 13: the write is the event by which kube-scheduler tries the pod."""
    async with a_scaling_run("p") as run:
        await handed_over(run)
        assert await run.process.give() is None
        assert run.process.cluster.writes() == [
            ("PATCH", "/api/v1/namespaces/default/pods/p"),
        ]
        for _ in range(3):
            await run.process.give()
            await run.process.observe()
        assert run.process.cluster.writes() == []
        assert (await run.reserved())["p"][0] == "n1"


async def test_a_pod_is_not_let_go_beside_a_balloon_that_is_about_to_go():
    """kube-scheduler would preempt the balloon, and wait for the end of a pod that is gone already."""
    balloon = SignalFacts(
        name="scale-b",
        uid="uid-scale-b",
        request=RequestId("b"),
        pool=POOL,
        shape="one",
        devices=1,
        created=EPOCH,
        node="n1",
    )
    async with a_scaling_run("p") as run:
        await handed_over(run)
        signals = run.process.context.stores.scale_signals
        signals.upsert(balloon)
        await run.process.give()
        await run.process.observe()
        await run.process.give()
        assert await ungated(run) == []
        signals.discard(balloon)
        await run.process.give()
        assert await ungated(run) == ["p"]
        assert (await run.reserved())["p"][0] == "n1"


async def test_two_controllers_that_come_to_a_pod_at_once_write_it_once():
    async with a_scaling_run("p", "q") as run:
        await handed_over(run)
        await asyncio.gather(run.process.give(), run.process.give())
        assert len(run.process.cluster.writes()) == 2
        assert await ungated(run) == ["p", "q"]


async def test_the_resource_of_a_pool_may_have_another_name():
    async with a_scaling_run("p", resource="gpu.deckhouse.io/other") as run:
        await handed_over(run)
        assert await run.process.give() is None
        assert await ungated(run) == ["p"]


async def test_pods_of_a_deleted_pool_with_a_resource_of_another_name_lose_their_gate():
    async with a_scaling_run("p", "q", "r", resource="gpu.deckhouse.io/other") as run:
        await handed_over(run)
        await run.process.give()
        run.process.cluster.allocation_state.index.discard_pool(POOL)
        assert await run.process.give() is None
        assert await ungated(run) == ["p", "q", "r"]


async def test_units_of_a_node_that_is_starting_are_left_to_its_hand_over():
    async with a_scaling_run("p") as run:
        assert await run.process.give() == AGAIN_S
        assert run.process.cluster.writes() == []


async def test_pods_that_were_held_by_an_unfinished_hand_over_are_ungated():
    """Weak point 12: the process ended after the taint and before the gates."""
    async with a_scaling_run("p", "q") as run:
        run.api.faults.fail("PATCH", "/pods/", 500, nth=3, times=100)
        with pytest.raises(ServerError):
            await run.process.hand_over()
        assert await run.taints() == []
        assert await ungated(run) == []
        await run.restart()
        await run.process.give()
        assert await ungated(run) == ["p", "q"]
        await run.process.observe()
        await run.is_handed_over("p", "q")


async def test_a_pod_with_a_gate_of_another_one_gets_nothing_until_that_is_gone():
    async with a_scaling_run() as run:
        gates = [{"name": "example.com/quota"}, {"name": CAPACITY_GATE}]
        await run.add_gated_pod("p", schedulingGates=gates)
        await handed_over(run)
        await run.process.give()
        assert run.process.cluster.writes() == []
        remove = [{"op": "remove", "path": "/spec/schedulingGates/0"}]
        await run.admin.json_patch(PODS, remove, name="p", namespace="default")
        await run.process.observe()
        await run.process.give()
        assert await ungated(run) == ["p"]


async def test_a_pod_without_a_gate_goes_first_for_a_while_and_not_for_ever():
    """Its reservation ended, so that kube-scheduler may bind it anywhere; something else may keep it away."""
    async with a_scaling_run("p") as run:
        await handed_over(run)
        other = a_bound_pod("b", "GPU-n1-0")
        run.process.cluster.pods.upsert(other)
        first = a_pod_facts("first", priority=1)
        run.process.cluster.pods.upsert(first)
        assert await run.process.give() == AGAIN_S
        assert await ungated(run) == []
        run.process.clock.offset_s += HEAD_START_S
        await run.process.give()
        assert await ungated(run) == ["p"]


async def test_a_pod_behind_does_not_wait_for_one_that_fits_nowhere():
    async with a_scaling_run() as run:
        await run.add_gated_pod("large", units=4, priorityClassName=URGENT)
        await run.add_gated_pod("small")
        await handed_over(run)
        assert await run.process.give() == AGAIN_S
        assert await ungated(run) == ["small"]


async def test_a_pod_goes_only_where_its_selector_lets_it():
    """Weak point 16: a pod that cannot run keeps its gate, so that no autoscaler takes it for placed."""
    async with a_scaling_run() as run:
        await run.add_gated_pod("elsewhere", nodeSelector={"zone": "b"})
        await run.add_gated_pod("here", nodeSelector={"zone": "a"})
        await run.admin.merge_patch(NODES, {"metadata": {"labels": {"zone": "a"}}}, name=N1)
        await handed_over(run)
        await run.process.give()
        assert await ungated(run) == ["here"]


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_pods_of_a_pool_that_does_not_scale_any_more_lose_their_gate(is_deleted: bool):
    async with a_scaling_run("p") as run:
        if is_deleted:
            await run.admin.delete(GPU_POOLS, POOL)
        else:
            await run.admin.merge_patch(GPU_POOLS, {"spec": {"autoscaling": None}}, name=POOL)
        await handed_over(run)
        assert await run.process.give() is None
        assert await ungated(run) == ["p"]
        assert await run.reserved() == {}


async def test_a_pool_in_maintenance_gives_nothing():
    async with a_scaling_run("p") as run:
        await handed_over(run)
        index = run.process.cluster.allocation_state.index
        facts = index.pool(POOL)
        assert facts is not None
        index.replace_pool(dataclasses.replace(facts, is_in_maintenance=True))
        assert await run.process.give() is None
        assert run.process.cluster.writes() == []


async def test_a_pool_that_does_not_scale_costs_nothing():
    async with a_scaling_run() as run:
        await run.admin.merge_patch(GPU_POOLS, {"spec": {"autoscaling": None}}, name=POOL)
        await handed_over(run)
        run.process.cluster.pods.upsert(a_pod_facts("waiting"))
        assert await run.process.give() is None
        assert run.process.cluster.writes() == []


async def test_fifty_pods_are_ungated_in_order_and_each_once():
    names = [f"p{number:02}" for number in range(50)]
    async with a_scaling_run(*names) as run:
        await handed_over(run)
        for number in range(2, 50):
            run.process.cluster.allocation_state.index.replace_device(a_device("n1", number))
        await run.process.give()
        paths = [path.rpartition("/")[2] for _, path in run.process.cluster.writes()]
        assert paths == names
        assert await ungated(run) == names
        assert MOST_AT_ONCE >= 50


async def test_a_lost_answer_is_asked_for_again_and_changes_nothing():
    async with a_scaling_run("p", "q") as run:
        await handed_over(run)
        run.api.faults.reset_after("PATCH", "/pods/p$")
        with pytest.raises(KubeError):
            await run.process.give()
        run.api.faults.clear()
        await run.process.give()
        await run.process.observe()
        assert await ungated(run) == ["p", "q"]
        assert len(run.process.cluster.allocation_state.ledger) == 2


@pytest.mark.parametrize("code", [403, 500])
async def test_a_pod_that_may_not_be_written_keeps_no_other_pod_waiting(code: int):
    async with a_scaling_run("a", "b", "c") as run:
        await handed_over(run)
        run.api.faults.fail("PATCH", "/pods/a$", code, times=100)
        for _ in range(3):
            with contextlib.suppress(ServerError):
                await run.process.give()
            await run.process.observe()
        assert await ungated(run) == ["b"]
        state = run.process.cluster.allocation_state
        run.process.clock.offset_s += 130
        state.expire(run.process.clock.instant())
        run.api.faults.clear()
        await run.process.give()
        await run.process.observe()
        assert len(await ungated(run)) == 2


async def test_a_pod_that_may_not_be_written_is_left_alone_for_a_while():
    async with a_scaling_run("a") as run:
        await handed_over(run)
        run.api.faults.fail("PATCH", "/pods/a$", 403, times=100)
        for _ in range(3):
            await run.process.give()
        assert len(run.process.cluster.writes()) == 1
        run.process.clock.offset_s += REFUSED_FOR_S
        await run.process.give()
        assert len(run.process.cluster.writes()) == 1


async def test_a_process_that_ends_anywhere_gives_no_unit_twice():
    async def attempt(number: int) -> bool:
        async with a_scaling_run("p", "q", "r") as run:
            await handed_over(run)
            with contextlib.suppress(KubeError):
                is_through = await runs_through(run.process.give(), cancel_at=number)
            await run.restart()
            await run.process.until_stable()
            given = [unit for _, units in (await run.reserved()).values() for unit in units]
            assert len(given) == len(set(given)) == 2
            assert len(await ungated(run)) == 2
            return is_through

    assert await at_every_suspension(attempt) >= 2


async def test_a_reservation_that_expires_before_the_pod_is_bound_frees_its_unit():
    async with a_scaling_run("p") as run:
        await handed_over(run)
        await run.process.give()
        await run.process.observe()
        state = run.process.cluster.allocation_state
        (held,) = state.ledger.all()
        run.process.clock.offset_s += held.expires_at
        state.expire(run.process.clock.instant())
        assert [pod.name for pod in run.process.waiting()] == ["p"]
        await run.process.give()
        assert len(state.ledger) == 0


# --- nodes that leave -----------------------------------------------------------------------------

LEAVES = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}


async def test_units_reserved_on_a_node_that_leaves_move():
    """Weak point 7: nothing of ours keeps a node that goes, and its free units are gone at once."""
    async with a_scaling_run("p") as run:
        await handed_over(run)
        await run.process.give()
        await run.process.observe()
        await run.admin.merge_patch(NODES, {"spec": {"taints": [LEAVES]}}, name=N1)
        await run.process.observe()
        state = run.process.cluster.allocation_state
        await run.process.leaving.reconcile(N1)
        assert len(state.ledger) == 0
        assert [pod.name for pod in run.process.waiting()] == ["p"]
        assert state.index.state(POOL).capacity().available == 0


async def test_pods_of_a_node_that_leaves_during_its_hand_over_keep_their_gate():
    async with a_scaling_run("p") as run:
        run.api.faults.fail("DELETE", "", 500)
        with pytest.raises(KubeError):
            await run.process.hand_over()
        taints = [{"key": AGENT_NOT_READY_TAINT, "effect": "NoSchedule"}, LEAVES]
        await run.admin.merge_patch(NODES, {"spec": {"taints": taints}}, name=N1)
        await run.process.until_stable()
        assert len(run.process.cluster.allocation_state.ledger) == 0
        assert (await run.gates())["p"]
        assert await run.taints() == [taint["key"] for taint in taints]
        await run.restart()
        await run.process.until_stable()
        assert len(run.process.cluster.allocation_state.ledger) == 0


async def test_reservations_on_a_node_that_is_gone_end_and_others_stay():
    async with a_scaling_run("p") as run:
        await handed_over(run)
        await run.process.give()
        await run.process.observe()
        await run.process.leaving.reconcile(NodeName("n9"))
        await run.process.leaving.reconcile(N1)
        state = run.process.cluster.allocation_state
        assert len(state.ledger) == 1
        await run.admin.delete(NODES, N1)
        await run.process.observe()
        await run.process.leaving.reconcile(N1)
        assert len(state.ledger) == 0
