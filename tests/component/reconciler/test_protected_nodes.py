"""Empty nodes that a pool needs are kept for a while, again and again, and no longer than that."""

import datetime as dt
from typing import TYPE_CHECKING, Any

import pytest

from api.clock import Instant
from api.driver_upgrade import UPGRADE_STATE_LABEL
from api.foreign.karpenter import DO_NOT_DISRUPT_ANNOTATION, NODE_POOL_LABEL
from api.names import KEEP_UNTIL_ANNOTATION, PoolName
from api.status_conditions import parse_time
from kube.resources import GPU_POOLS, NODES
from reconciler.scaling.protected_nodes import KEPT_FOR_S, NO_POOL, RECHECK_AFTER_S, ProtectedNodes
from tests.component.reconciler.handover_run import (
    N1,
    POOL,
    ScalingRun,
    a_scaling_run,
    make_pool_unreadable,
)
from tests.support.allocation_state import a_bound_pod

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.looptime

BOUND = a_bound_pod("b", "GPU-n1-0")
OURS = [DO_NOT_DISRUPT_ANNOTATION, KEEP_UNTIL_ANNOTATION]
THEIRS = {DO_NOT_DISRUPT_ANNOTATION: "true"}


async def scale(run: ScalingRun, **terms: Any) -> ProtectedNodes:
    """The node is an ordinary one of Karpenter, and its pool has these terms."""
    shapes = [{"name": "pair", "devices": 2}]
    spec = {"spec": {"autoscaling": {"shapes": shapes, **terms}}}
    await run.admin.merge_patch(GPU_POOLS, spec, name=POOL)
    patch = {"metadata": {"labels": {NODE_POOL_LABEL: "whole"}}, "spec": {"taints": None}}
    await run.admin.merge_patch(NODES, patch, name=N1)
    await run.process.observe()
    return new_keeper(run)


def new_keeper(run: ScalingRun, *, now: "Callable[[], Instant] | None" = None) -> ProtectedNodes:
    process = run.process
    index = process.cluster.allocation_state.index
    run.api.requests.clear()
    return ProtectedNodes(
        process.cluster.client, index, view=process.view, now=now or process.clock.instant
    )


async def annotations(run: ScalingRun) -> dict[str, str]:
    node = await run.admin.get(NODES, dict[str, Any], N1)
    found = node["metadata"].get("annotations", {})
    return {key: value for key, value in found.items() if key in OURS}


async def annotate(run: ScalingRun, **_: Any) -> None:
    await run.admin.merge_patch(NODES, {"metadata": {"annotations": THEIRS}}, name=N1)
    await run.process.observe()


@pytest.mark.parametrize("terms", [{"minUnits": 1}, {"warmUnits": 2}])
async def test_a_node_that_is_needed_empty_is_kept_for_ten_minutes_and_again(terms: Any):
    async with a_scaling_run() as run:
        keeper = await scale(run, **terms)
        assert await keeper.reconcile(POOL) == RECHECK_AFTER_S
        first = await annotations(run)
        assert first[DO_NOT_DISRUPT_ANNOTATION] == "true"
        until = parse_time(first[KEEP_UNTIL_ANNOTATION])
        assert until is not None
        assert 0 <= KEPT_FOR_S - (until - run.process.clock.instant().utc).total_seconds() <= 1
        for minutes, is_same in ((1, True), (4, False), (1, False)):
            await run.process.observe()
            run.process.clock.offset_s += minutes * 60
            await keeper.reconcile(POOL)
            assert (await annotations(run) == first) is is_same
        assert len(run.process.cluster.writes()) == 2


async def test_an_end_that_a_clock_wrote_which_was_ahead_keeps_no_node_for_hours():
    async with a_scaling_run() as run:
        keeper, clock = await scale(run, minUnits=1), run.process.clock

        def ahead() -> Instant:
            now = clock.instant()
            return Instant(now.monotonic, now.utc + dt.timedelta(hours=2))

        await new_keeper(run, now=ahead).reconcile(POOL)
        await run.process.observe()
        await keeper.reconcile(POOL)
        until = parse_time((await annotations(run))[KEEP_UNTIL_ANNOTATION])
        assert until is not None
        assert (until - clock.instant().utc).total_seconds() <= KEPT_FOR_S


async def test_nothing_is_written_twice_while_the_watch_is_behind():
    async with a_scaling_run() as run:
        keeper = await scale(run, minUnits=1)
        for _ in range(3):
            await keeper.reconcile(POOL)
        assert len(run.process.cluster.writes()) == 1


@pytest.mark.parametrize("terms", [{}, {"minUnits": 0}])
async def test_a_pool_that_needs_no_empty_node_keeps_none(terms: Any):
    async with a_scaling_run() as run:
        keeper = await scale(run, **terms)
        assert await keeper.reconcile(POOL) is None
        assert run.process.cluster.writes() == []


async def test_a_node_that_is_not_needed_any_more_is_let_go_at_once():
    async with a_scaling_run() as run:
        keeper = await scale(run, minUnits=1)
        await keeper.reconcile(POOL)
        await scale(run, minUnits=0)
        await keeper.reconcile(POOL)
        await keeper.reconcile(POOL)
        assert await annotations(run) == {}
        assert len(run.process.cluster.writes()) == 1


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_nodes_of_a_pool_that_does_not_scale_any_more_are_let_go(is_deleted: bool):
    async with a_scaling_run() as run:
        keeper = await scale(run, minUnits=1)
        await keeper.reconcile(POOL)
        if is_deleted:
            await run.admin.delete(GPU_POOLS, POOL)
        else:
            await run.admin.merge_patch(GPU_POOLS, {"spec": {"autoscaling": None}}, name=POOL)
        await run.process.observe()
        assert await keeper.reconcile(POOL) is None
        assert await annotations(run) == {}


async def test_a_later_process_lets_go_what_an_earlier_one_kept():
    """Nothing of ours keeps a node that could go."""
    async with a_scaling_run() as run:
        keeper = await scale(run, minUnits=1)
        await keeper.reconcile(POOL)
        await run.admin.delete(GPU_POOLS, POOL)
        await run.restart()
        await new_keeper(run).reconcile(NO_POOL)
        assert await annotations(run) == {}


async def test_a_later_process_keeps_what_it_has_not_looked_at_yet():
    async with a_scaling_run() as run:
        keeper = await scale(run, minUnits=1)
        await keeper.reconcile(POOL)
        before = await annotations(run)
        await run.restart()
        scaling = run.process.view.pools.pop(POOL)
        later = new_keeper(run)
        assert await later.reconcile(POOL) is not None
        await later.reconcile(NO_POOL)
        await later.reconcile(PoolName("other"))
        assert await annotations(run) == before
        run.process.view.pools[POOL] = scaling
        await later.reconcile(POOL)
        assert await annotations(run) == before


async def test_nodes_of_a_pool_that_cannot_be_read_stay_kept():
    async with a_scaling_run() as run:
        keeper = await scale(run, minUnits=1)
        await keeper.reconcile(POOL)
        before = await annotations(run)
        await run.process.observe()
        make_pool_unreadable(run)
        await keeper.reconcile(POOL)
        await new_keeper(run).reconcile(NO_POOL)
        assert await annotations(run) == before


async def test_an_annotation_of_somebody_else_is_left_alone():
    async with a_scaling_run() as run:
        keeper = await scale(run, minUnits=1)
        await annotate(run)
        await keeper.reconcile(POOL)
        await scale(run, minUnits=0)
        await keeper.reconcile(POOL)
        assert await annotations(run) == THEIRS
        assert run.process.cluster.writes() == []


async def test_a_node_that_no_autoscaler_removes_needs_no_annotation():
    async with a_scaling_run() as run:
        keeper = await scale(run, minUnits=2)
        patch = {"metadata": {"labels": {NODE_POOL_LABEL: None}}}
        await run.admin.merge_patch(NODES, patch, name=N1)
        await run.process.observe()
        run.api.requests.clear()
        await keeper.reconcile(POOL)
        assert run.process.cluster.writes() == []


async def test_pods_that_come_and_go_cost_no_writes_and_the_time_runs_out():
    async with a_scaling_run() as run:
        keeper = await scale(run, warmUnits=2)
        await keeper.reconcile(POOL)
        await run.process.observe()
        run.api.requests.clear()
        for _ in range(3):
            run.process.cluster.pods.upsert(BOUND)
            await keeper.reconcile(POOL)
            run.process.cluster.pods.discard(BOUND)
            await keeper.reconcile(POOL)
        assert run.process.cluster.writes() == []
        run.process.cluster.pods.upsert(BOUND)
        run.process.clock.offset_s += KEPT_FOR_S
        await keeper.reconcile(POOL)
        assert await annotations(run) == {}


async def test_a_node_that_is_gone_is_no_failure():
    async with a_scaling_run() as run:
        keeper = await scale(run, minUnits=1)
        await run.admin.delete(NODES, N1)
        await keeper.reconcile(POOL)


async def upgrade(run: ScalingRun, state: str | None) -> None:
    labels = {NODE_POOL_LABEL: "whole", UPGRADE_STATE_LABEL: state}
    await run.admin.merge_patch(NODES, {"metadata": {"labels": labels}}, name=N1)
    await run.process.observe()


async def test_a_node_is_kept_from_the_start_of_its_upgrade_to_the_end_whatever_its_pools():
    async with a_scaling_run() as run:
        await run.admin.delete(GPU_POOLS, POOL)
        keeper = new_keeper(run)
        for state, is_kept in (
            ("upgrade-required", False),
            ("cordon-required", True),
            ("validation-required", True),
            ("upgrade-failed", False),
            ("pod-restart-required", True),
            ("upgrade-done", False),
        ):
            await upgrade(run, state)
            assert (await keeper.reconcile(NO_POOL) is not None) is is_kept
            assert (set(await annotations(run)) == set(OURS)) is is_kept
            run.process.clock.offset_s += KEPT_FOR_S


async def test_the_next_leader_renews_what_keeps_a_node_in_its_upgrade_and_takes_it_off():
    async with a_scaling_run() as run:
        await upgrade(run, "drain-required")
        await new_keeper(run).reconcile(NO_POOL)
        first = await annotations(run)
        await run.restart()
        run.process.clock.offset_s += KEPT_FOR_S
        later = new_keeper(run)
        await later.reconcile(POOL)  # whose units do not need it
        await later.reconcile(NO_POOL)
        assert (await annotations(run))[KEEP_UNTIL_ANNOTATION] > first[KEEP_UNTIL_ANNOTATION]
        await upgrade(run, "upgrade-done")
        await later.reconcile(NO_POOL)
        assert await annotations(run) == {}


async def test_what_somebody_else_said_of_a_node_outlasts_its_upgrade():
    async with a_scaling_run() as run:
        await annotate(run)
        keeper = new_keeper(run)
        for state in ("pod-restart-required", "upgrade-done"):
            await upgrade(run, state)
            await keeper.reconcile(NO_POOL)
            assert await annotations(run) == THEIRS


async def test_a_node_that_no_autoscaler_removes_is_not_marked_in_its_upgrade():
    async with a_scaling_run() as run:
        await upgrade(run, "drain-required")
        patch = {"metadata": {"labels": {NODE_POOL_LABEL: None}}}
        await run.admin.merge_patch(NODES, patch, name=N1)
        await run.process.observe()
        assert await new_keeper(run).reconcile(NO_POOL) is None
        assert await annotations(run) == {}
