"""A node that came for pods is given to them: in order, once, wherever the process ends."""

import contextlib
import dataclasses

import pytest

from api.names import AGENT_NOT_READY_TAINT, SCALE_REQUEST_LABEL
from autoscaling.scaling_model import ObservedRequest, RequestPhase
from kube.errors import KubeError
from kube.resources import GPU_DEVICES, GPU_POOLS, NODES, PODS
from reconciler.scaling.handover import VIEW_AGAIN_S
from tests.component.reconciler.handover_run import (
    N1,
    POOL,
    REQUEST,
    TAINT,
    ScalingRun,
    a_scaling_run,
)
from tests.support.cancellation import at_every_suspension, runs_through

pytestmark = pytest.mark.looptime

STEPS = 5
"""Annotations, the list of signals, their deletion, the taint, the gates."""


async def test_the_pods_get_their_units_before_the_taint_goes_and_their_gates_go_last():
    async with a_scaling_run("p", "q") as run:
        assert await run.process.hand_over() is None
        writes = [
            (write.method, write.path)
            for write in run.api.requests.writes()
            if write.method != "GET"
        ]
        pods = [("PATCH", f"/api/v1/namespaces/default/pods/{name}") for name in ("p", "q")]
        signal = f"/api/v1/namespaces/gpu-control-plane/pods/scale-{REQUEST}"
        assert writes == [*pods, ("DELETE", signal), ("PATCH", "/api/v1/nodes/n1"), *pods]
        await run.is_handed_over("p", "q")


async def test_runs_after_it_change_nothing():
    async with a_scaling_run("p", "q") as run:
        await run.process.hand_over()
        run.api.requests.clear()
        assert await run.process.hand_over() is None
        await run.process.give()
        assert run.process.cluster.writes() == []


@pytest.mark.parametrize("units", [0, 1])
async def test_nothing_happens_before_kubelet_allocates_all_units(units: int):
    async with a_scaling_run("p") as run:
        await run.allocatable(units)
        await run.process.until_stable()
        assert await run.taints() == [AGENT_NOT_READY_TAINT]
        assert await run.reserved() == {}
        await run.allocatable(2)
        await run.process.until_stable()
        await run.is_handed_over("p")


async def test_units_of_a_faulty_device_are_not_waited_for():
    async with a_scaling_run("p") as run:
        broken = {"type": "Healthy", "status": "False", "reason": "Xid", "message": ""}
        at = {"lastTransitionTime": "2026-01-01T00:00:00Z"}
        await run.process.cluster.report("n1-1", conditions=[{**broken, **at}])
        await run.allocatable(1)
        await run.process.until_stable()
        assert await run.taints() == []


async def test_a_node_with_fewer_units_than_promised_is_handed_over_once_that_has_failed():
    async with a_scaling_run() as run:
        process = run.process
        seen = process.view.pools[POOL]
        shape = dataclasses.replace(seen.parameters.shapes[0], devices=3, units_per_device=1)
        awaited = ObservedRequest(
            id=REQUEST,
            pool=POOL,
            shape=shape,
            phase=RequestPhase.INCOMPLETE,
            since=process.clock.instant().utc,
        )
        process.view.pools[POOL] = dataclasses.replace(seen, observed=(awaited,))
        assert await process.hand_over() == VIEW_AGAIN_S
        assert await run.taints() == [AGENT_NOT_READY_TAINT]
        failed = dataclasses.replace(awaited, phase=RequestPhase.FAILED)
        process.view.pools[POOL] = dataclasses.replace(seen, observed=(failed,))
        await process.hand_over()
        assert await run.taints() == []


async def test_a_node_that_is_not_ready_or_leaves_keeps_its_taint():
    async with a_scaling_run("p") as run:
        gone = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
        await run.admin.merge_patch(NODES, {"spec": {"taints": [TAINT, gone]}}, name=N1)
        await run.process.until_stable()
        assert await run.taints() == [TAINT["key"], gone["key"]]
        assert (await run.gates())["p"]


async def test_a_node_that_no_pod_needs_any_more_loses_signal_and_taint():
    """Weak point 7: a signal that is left would hold the node, or make a second one."""
    async with a_scaling_run() as run:
        await run.process.until_stable()
        assert (await run.taints(), await run.signals()) == ([], [])


async def test_a_node_without_a_request_loses_its_taint_and_signals_of_others_stay():
    async with a_scaling_run() as run:
        patch = {"metadata": {"labels": {SCALE_REQUEST_LABEL: None}}}
        await run.admin.merge_patch(NODES, patch, name=N1)
        await run.process.until_stable()
        assert (await run.taints(), await run.signals()) == ([], [f"scale-{REQUEST}"])


async def test_a_node_of_a_deleted_pool_is_released():
    async with a_scaling_run() as run:
        for name in ("n1-0", "n1-1"):
            await run.admin.delete(GPU_DEVICES, name)
        await run.admin.delete(GPU_POOLS, POOL)
        await run.process.until_stable()
        assert (await run.taints(), await run.signals()) == ([], [])


async def test_other_taints_stay_where_they_are():
    others = [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "PreferNoSchedule"}]
    async with a_scaling_run() as run:
        taints = [others[0], TAINT, others[1], {**TAINT, "effect": "NoExecute"}]
        await run.admin.merge_patch(NODES, {"spec": {"taints": taints}}, name=N1)
        await run.process.until_stable()
        assert await run.taints() == ["a", "b"]


async def test_taints_that_changed_since_they_were_read_are_read_again():
    async with a_scaling_run("p") as run:
        taints = [{"key": "a", "effect": "PreferNoSchedule"}, TAINT]
        await run.admin.merge_patch(NODES, {"spec": {"taints": taints}}, name=N1)
        assert await run.process.hand_over() is not None
        assert await run.taints() == ["a", AGENT_NOT_READY_TAINT]
        assert (await run.gates())["p"]
        await run.process.until_stable()
        assert await run.taints() == ["a"]


async def test_a_pod_that_was_deleted_meanwhile_leaves_its_unit():
    async with a_scaling_run("p", "q") as run:
        await run.admin.delete(PODS, "p", namespace="default")
        await run.process.hand_over()
        await run.process.until_stable()
        await run.is_handed_over("q")
        assert len(run.process.cluster.allocation_state.ledger) == 1


async def test_another_pod_of_that_name_is_left_alone():
    async with a_scaling_run("p") as run:
        await run.admin.delete(PODS, "p", namespace="default")
        await run.add_gated_pod("p")
        await run.process.hand_over()
        assert (await run.gates())["p"]
        assert await run.reserved() == {}


async def test_a_pod_that_may_not_go_there_stays_gated_and_the_node_does_not_wait_for_ever():
    async with a_scaling_run() as run:
        await run.add_gated_pod("p", nodeSelector={"zone": "b"})
        await run.process.observe()
        assert await run.process.hand_over() is not None
        assert await run.taints() == [AGENT_NOT_READY_TAINT]
        run.process.clock.offset_s += 60
        await run.process.until_stable()
        assert await run.taints() == []
        assert (await run.gates())["p"]


async def test_a_pod_that_may_not_be_written_does_not_keep_the_node_from_the_others():
    async with a_scaling_run("p", "q") as run:
        run.api.faults.fail("PATCH", "/pods/p$", 403, times=100)
        await run.process.until_stable()
        assert (await run.taints(), await run.signals()) == ([], [])
        assert (await run.gates())["q"] == []


async def test_nobody_gets_a_unit_before_the_pods_that_the_node_came_for():
    """Weak points 7, 13: from the agent's report to the last gate nobody else gets a unit."""
    async with a_scaling_run("p", "q") as run:
        assert run.refuses_other_pods()
        await run.process.give()
        assert await run.reserved() == {}
        await run.process.hand_over()
        await run.process.observe()
        assert run.refuses_other_pods()


async def crashed(run: ScalingRun) -> None:
    """Another process takes over: nobody else gets a unit, and in the end all is as if nothing had happened."""
    await run.restart()
    assert run.refuses_other_pods()
    await run.process.until_stable()
    assert run.refuses_other_pods()
    await run.is_handed_over("p", "q")


async def test_a_process_that_ends_anywhere_leaves_nothing_behind():
    """Weak point 12: all state is in objects."""

    async def attempt(number: int) -> bool:
        async with a_scaling_run("p", "q") as run:
            is_through = await runs_through(run.process.hand_over(), cancel_at=number)
            await crashed(run)
            return is_through

    assert await at_every_suspension(attempt) >= STEPS


async def test_a_process_that_is_interrupted_anywhere_goes_on_by_itself():
    async def attempt(number: int) -> bool:
        async with a_scaling_run("p", "q") as run:
            is_through = await runs_through(run.process.hand_over(), cancel_at=number)
            await run.process.until_stable()
            await run.is_handed_over("p", "q")
            return is_through

    assert await at_every_suspension(attempt) >= STEPS


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize("restarts", [False, True])
async def test_each_request_that_fails_is_made_again(is_done: bool, restarts: bool):
    number, fails = 0, True
    while fails:
        number += 1
        async with a_scaling_run("p", "q") as run:
            faults = run.api.faults
            lose = faults.reset_after if is_done else faults.reset_before
            rule = lose("", "/(pods|nodes)", nth=number)
            with contextlib.suppress(KubeError):
                await run.process.hand_over()
            fails = rule.seen >= number
            if restarts:
                await crashed(run)
            else:
                faults.clear()
                await run.process.until_stable()
                await run.is_handed_over("p", "q")
    assert number >= 7


async def test_a_reservation_that_is_nearly_over_is_extended_before_the_taint_goes():
    async with a_scaling_run("p") as run:
        run.api.faults.fail("PATCH", "/nodes/n1", 500)
        with pytest.raises(KubeError):
            await run.process.hand_over()
        ((uid, before),) = [
            (reservation.uid, reservation) for reservation in run.process.reader.ledger.all()
        ]
        ttl_s = before.expires_at - before.created_at
        run.process.clock.offset_s += ttl_s * 0.7
        await run.process.until_stable()
        after = run.process.reader.ledger.of_pod(uid)
        assert after is not None
        assert after.expires_at >= before.expires_at + ttl_s * 0.69
        await run.is_handed_over("p")


async def test_a_number_that_karpenter_made_up_is_no_request():
    """As the label of a node that replaces a drifted one: its devices are waited for, like those of any other."""
    async with a_scaling_run("p", is_ready=False) as run:
        label = {"metadata": {"labels": {SCALE_REQUEST_LABEL: "4611686018427387904"}}}
        await run.admin.merge_patch(NODES, label, name=N1)
        await run.process.until_stable()
        assert await run.taints() == [AGENT_NOT_READY_TAINT]
        await run.allocatable(2)
        await run.process.until_stable()
        assert await run.taints() == []
        assert (await run.gates())["p"] == []
