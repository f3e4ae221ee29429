"""`driver.upgrade`: a leader may end at any moment, and the next one goes on from what is there."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from kube.resources import CLUSTER_POLICIES, NODES
from tests.component.reconciler.upgrade_run import UpgradeRun, an_upgrade_run
from tests.component.reconciler.upgraded_nodes import STEP_S
from tests.support.cancellation import at_every_suspension

pytestmark = pytest.mark.looptime

TURNS = 6
"""Of the event loop, between two moments at which a leader ends; a request takes three or four."""
FEWEST = 5


async def ends_after(work: Coroutine[Any, Any, object], turns: int) -> bool:
    """Cancel the work after so many turns of the event loop; return whether it was over before.

    Writes are made in tasks of their own, each of which is cancelled wherever it is then.
    """
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        for _ in range(turns):
            if task.done():
                return True
            await asyncio.sleep(0)
        task.cancel()
    return not task.cancelled()


async def finish_with_ends(run: UpgradeRun, turns: int) -> bool:
    """Go on until the driver is new, with a leader that ends so early before each pass; True: none did."""
    is_through = True
    for _ in range(60):
        await asyncio.sleep(STEP_S)
        await run.tick()
        is_through &= await ends_after(run.run_pass(), turns)
        run.lead()
        await run.run_pass()
        if set((await run.driver_revisions()).values()) == {"r2"}:
            await run.until("upgrade-done")
            return is_through
    raise AssertionError(await run.states())


async def test_a_leader_that_ends_anywhere_leaves_an_upgrade_that_the_next_one_finishes():
    async def attempt(number: int) -> bool:
        async with an_upgrade_run(1) as run:
            await run.roll_out(2)
            is_through = await finish_with_ends(run, TURNS * number)
            seen = run.observer.order["n0"]
            assert await run.marks("n0") == set()
            assert run.observer.most_away == 1
            assert seen.index("withheld") < seen.index("cordoned")
            return is_through

    assert await at_every_suspension(attempt) >= FEWEST


@pytest.mark.parametrize("was_written", [False, True])
async def test_answers_that_are_lost_change_nothing(was_written: bool):
    async with an_upgrade_run(1) as run:
        await run.roll_out(2)
        faults = run.api.faults
        lose = faults.reset_after if was_written else faults.reset_before
        for number in range(1, 40, 2):
            lose("PATCH", "nodes/n0$", nth=number)
        lose("DELETE", "pods/driver")
        await run.until("upgrade-required", node="n0")
        await run.until("upgrade-done")
        assert set((await run.driver_revisions()).values()) == {"r2"}
        assert await run.marks("n0") == set()


async def test_two_leaders_at_once_do_no_harm():
    """A leader that does not know yet that it was deposed acts on what it has read."""
    async with an_upgrade_run(3, maxUnavailable=1) as run:
        await run.roll_out(2)
        first = run.upgrades
        run.lead()
        await run.step()
        for _ in range(80):
            await run.tick()
            await first.reconcile("upgrade")
            await run.run_pass()
            if set((await run.driver_revisions()).values()) == {"r2"}:
                break
        await run.until("upgrade-done")
        assert run.observer.most_away == 1


async def test_another_client_that_writes_the_node_all_the_time_does_not_disturb():
    async with an_upgrade_run(1) as run:
        await run.roll_out(2)
        await run.step()
        for number in range(60):
            patch = {"metadata": {"annotations": {"example.com/heartbeat": str(number)}}}
            await run.client.merge_patch(NODES, patch, name="n0")
            await run.step()
        assert await run.states() == {"n0": "upgrade-done"}
        assert await run.marks("n0") == set()


async def test_reasons_are_told_once_by_all_leaders_together():
    async with an_upgrade_run(1, maxUnavailable=0) as run:
        await run.roll_out(2)
        await run.step()
        await run.step()
        run.recorder.taken()
        (entry,) = run.reports.entries()
        assert entry.reason == "MaxUnavailable"
        written = {"node": entry.node, "state": entry.state, "reason": entry.reason}
        run.policy(maxUnavailable=0, status={"upgrade": [written]})
        run.lead()
        await run.run_pass()
        assert run.recorder.taken() == []


async def test_a_pass_says_when_the_next_one_is_due():
    async with an_upgrade_run(1) as run:
        assert await run.run_pass() == 20.0
        await run.roll_out(2)
        assert await run.run_pass() == STEP_S


async def test_the_status_of_the_policy_has_the_nodes_that_are_not_done():
    async with an_upgrade_run(1, maxUnavailable=0) as run:
        await run.serve_policy()
        status = {"state": "notReady"}
        run.policy(maxUnavailable=0, status=status)
        await run.roll_out(2)
        for _ in range(3):
            await run.step()

        async def current() -> list[dict[str, Any]]:
            policy = await run.client.get(CLUSTER_POLICIES, dict[str, Any], "policy")
            found: list[dict[str, Any]] = policy.get("status", {}).get("upgrade", [])
            return found

        (entry,) = await current()
        assert (entry["node"], entry["state"]) == ("n0", "upgrade-required")
        assert (entry["reason"], entry["attempt"]) == ("MaxUnavailable", 1)
        assert "maxUnavailable of 0 allows 0" in entry["message"]
        run.writes()
        await run.run_pass()
        assert run.writes() == 0
        run.policy(status=status)
        await run.until("upgrade-done")
        assert await current() == []
