"""Partitioning the devices of a node, in virtual time: what is done, what is reported, and what is left alone."""

import asyncio

import pytest
from structlog.testing import capture_logs

from agent.mig.partitioner import MAX_STEPS
from agent.problems.registry import NO_PROBLEM
from telemetry.conditions import AgentDegraded
from tests.component.agent.partitioning_node import SEVEN, PartitioningNode, a_mig_device, a_pool
from tests.support.device_health import XID_79
from tests.support.fake_driver import Change, Crash, GpuInstance, a_device, crash, refused
from tests.support.metric_samples import samples, series

pytestmark = pytest.mark.looptime

CUT = ("n1-1", "GPUPartitioned")
BLOCKED = ("n1-1", "GPUPartitioningHeldUp")


async def test_a_device_of_a_mig_pool_is_partitioned_and_that_is_reported_once():
    node = PartitioningNode(a_mig_device(1))
    async with node.running():
        await asyncio.sleep(3600.0)
    assert node.device.layout == SEVEN
    assert node.steps.count("create_gpu_instance") == 7
    assert node.reasons() == [CUT]
    assert "GPU-1 is instances of 1g.10gb (7 of them)" in node.events[0][2]
    assert node.problems.summary() == NO_PROBLEM


async def test_only_a_finished_layout_is_published():
    node = PartitioningNode(a_mig_device(1))
    seen: list[frozenset[str]] = []
    node.fake.before_change = lambda _: seen.append(node.partitioner.partitioning)
    await node.partitioner.work()
    assert set(seen) == {frozenset({"GPU-1"})}
    assert node.changes_seen == [SEVEN]
    assert node.partitioner.partitioning == frozenset()


async def test_a_device_is_whole_again_when_its_pool_is():
    node = PartitioningNode(a_mig_device(1))
    async with node.running():
        await asyncio.sleep(1.0)
        assert node.device.layout == SEVEN
        node.pools_by_name["a"] = a_pool("a")
        node.partitioner.trigger()
        await asyncio.sleep(1.0)
    assert not node.device.is_mig_enabled
    assert node.device.instances == []
    assert node.reasons() == [CUT, CUT]
    assert "GPU-1 is whole" in node.events[1][2]


async def test_unmanaged_devices_and_devices_without_mig_cost_nothing():
    node = PartitioningNode(a_mig_device(1), a_device("GPU-2"))
    node.add_device(1, uuid="GPU-1", owner=None)
    node.pools_by_name["b"] = a_pool("b")
    node.add_device(2, uuid="GPU-2", owner="b")
    async with node.running():
        await asyncio.sleep(3600.0)
    assert node.fake.changes == []
    assert node.events == []
    assert node.problems.summary() == NO_PROBLEM
    assert node.changes_seen == []


async def test_a_finished_device_is_read_now_and_then_only_whatever_the_triggers():
    node = PartitioningNode(a_mig_device(1))
    async with node.running():
        await asyncio.sleep(10.0)
        before = node.fake.reads
        for _ in range(1000):
            node.partitioner.trigger()
            await asyncio.sleep(0.3)
        assert 8 <= node.fake.reads - before <= 12


async def test_a_destroyed_instance_comes_back():
    node = PartitioningNode(a_mig_device(1))
    async with node.running():
        await asyncio.sleep(10.0)
        del node.device.instances[2]
        await asyncio.sleep(31.0)
    assert node.device.layout == SEVEN
    assert node.reasons() == [CUT, CUT]


async def test_other_devices_go_on_while_one_is_blocked():
    node = PartitioningNode(a_mig_device(1), a_mig_device(2))
    node.used = {"GPU-1"}
    async with node.running():
        await asyncio.sleep(60.0)
    assert node.device.instances == []
    assert node.fake.device("GPU-2").layout == SEVEN
    assert node.reasons() == [("n1-2", "GPUPartitioned"), BLOCKED]


# --- users -------------------------------------------------------------------------------------------


async def test_a_device_is_partitioned_soon_after_its_last_pod_ended_without_a_warning():
    node = PartitioningNode(a_mig_device(1))
    node.used = {"GPU-1"}
    async with node.running():
        await asyncio.sleep(7.0)
        assert node.fake.changes == []
        node.used = set()
        node.partitioner.trigger()
        await asyncio.sleep(0.5)
        assert node.device.layout == SEVEN
    assert node.reasons() == [CUT]


async def test_a_process_that_ends_is_noticed_without_an_event():
    node = PartitioningNode(a_mig_device(1, processes=1))
    async with node.running():
        await asyncio.sleep(10.0)
        assert node.fake.changes == []
        node.device.processes = 0
        await asyncio.sleep(6.0)
        assert node.device.layout == SEVEN


async def test_users_that_stay_are_reported_once():
    node = PartitioningNode(a_mig_device(1))
    node.used = {"GPU-1"}
    async with node.running():
        await asyncio.sleep(3600.0)
        assert node.reasons() == [BLOCKED]
        assert "GPU-1" in node.events[0][2]
        problem = node.problems.summary()
        assert problem.reason is AgentDegraded.PARTITIONING_BLOCKED
        assert problem.text == node.partitioner.problem
        assert problem.text.startswith("n1-1: pods of this node use GPU-1")
        node.used = set()
        await asyncio.sleep(10.0)
        assert node.problems.summary() == NO_PROBLEM
        assert node.partitioner.problem == ""
    assert node.reasons() == [BLOCKED, CUT]


async def test_an_obstacle_is_logged_once():
    node = PartitioningNode(a_mig_device(1))
    node.used = {"GPU-1"}
    with capture_logs() as logs:
        async with node.running():
            await asyncio.sleep(3600.0)
    (line,) = [line for line in logs if line["event"] == "device not partitioned"]
    assert (line["device"], line["uuid"], line["address"]) == ("n1-1", "GPU-1", "0000:01:00.0")
    assert line["cause"] == "in use"


async def test_a_device_that_leaves_its_pool_is_no_problem():
    node = PartitioningNode(a_mig_device(1))
    node.used = {"GPU-1"}
    async with node.running():
        await asyncio.sleep(60.0)
        assert node.partitioner.problem
        node.add_device(1, uuid="GPU-1", draining=True)
        node.partitioner.trigger()
        await asyncio.sleep(0.5)
        assert node.problems.summary() == NO_PROBLEM


async def test_nothing_is_done_before_the_users_of_devices_are_known():
    node = PartitioningNode(a_mig_device(1))
    node.used = None
    async with node.running():
        await asyncio.sleep(60.0)
        assert node.fake.changes == []
        assert node.reasons() == [BLOCKED]


async def test_nothing_is_done_before_devices_and_pools_are_known():
    node = PartitioningNode(a_mig_device(1))
    node.has_synced.clear()
    async with node.running():
        await asyncio.sleep(60.0)
        assert node.steps == []
        node.has_synced.set()
        await asyncio.sleep(60.0)
    assert node.steps


async def test_a_pod_that_comes_in_the_middle_stops_it_before_the_next_step():
    node = PartitioningNode(a_mig_device(1))

    def come(change: Change) -> None:
        if len(node.fake.changes) == 5:
            node.used = {node.device.instances[0].uuid}

    node.fake.before_change = come
    async with node.running():
        await asyncio.sleep(60.0)
        done = len(node.fake.changes)
        # The step that was under way is made whole, and no other is begun.
        assert done == 7
        assert node.reasons() == [BLOCKED]
        # What is there is published: it stays like that for a while.
        assert node.changes_seen == [["1g.10gb"] * 3]
        assert node.partitioner.partitioning == frozenset()
        node.used = set()
        await asyncio.sleep(10.0)
        assert node.device.layout == SEVEN
    assert node.reasons() == [BLOCKED, CUT]


async def test_a_device_that_leaves_its_pool_in_the_middle_is_left_as_it_is():
    node = PartitioningNode(a_mig_device(1))

    def leave(change: Change) -> None:
        if len(node.fake.changes) == 5:
            node.add_device(1, uuid="GPU-1", draining=True)

    node.fake.before_change = leave
    async with node.running():
        await asyncio.sleep(60.0)
    assert node.changes_seen == [["1g.10gb"] * 3]
    assert node.partitioner.partitioning == frozenset()
    assert node.events == []


async def test_a_pool_that_changes_in_the_middle_is_followed_at_once():
    node = PartitioningNode(a_mig_device(1))

    def change_pool(change: Change) -> None:
        if len(node.fake.changes) == 5:
            node.pools_by_name["a"] = a_pool("a", "3g.40gb")

    node.fake.before_change = change_pool
    await node.partitioner.work()
    assert node.device.layout == ["3g.40gb"] * 2
    assert node.steps.count("create_gpu_instance") == 3 + 2
    assert node.reasons() == [CUT]


async def test_a_pod_that_starts_between_the_check_and_the_destroy_keeps_its_instance():
    """Nobody sees it but the driver: NVML refuses what is in use."""
    node = PartitioningNode(a_mig_device(1), profile="3g.40gb")
    await node.partitioner.work()
    node.pools_by_name["a"] = a_pool("a", "1g.10gb")
    theirs = node.device.instances[0].uuid

    def start(change: Change) -> None:
        if change.step == "destroy_gpu_instance":
            node.device.instances[0].processes = 1

    node.fake.before_change = start
    async with node.running():
        await asyncio.sleep(120.0)
        assert node.device.instances[0].uuid == theirs
        assert node.device.layout == ["3g.40gb", "3g.40gb"]
        assert BLOCKED in node.reasons()
        node.fake.before_change = lambda _: None
        node.device.instances[0].processes = 0
        await asyncio.sleep(120.0)
        assert node.device.layout == SEVEN


# --- what cannot be ----------------------------------------------------------------------------------


async def test_a_device_without_mig_is_reported_to_be_in_the_wrong_pool():
    node = PartitioningNode(a_device("GPU-1"))
    async with node.running():
        await asyncio.sleep(3600.0)
    assert node.reasons() == [BLOCKED]
    assert "does not support MIG" in node.events[0][2]
    assert node.problems.summary().reason is AgentDegraded.PARTITIONING_BLOCKED


async def test_a_mode_that_takes_a_reset_waits_for_it():
    node = PartitioningNode(a_mig_device(1, needs_reset=True))
    async with node.running():
        await asyncio.sleep(3600.0)
        assert node.steps == ["enable_mig"]
        assert node.reasons() == [BLOCKED]
        assert "nvidia-smi --gpu-reset -i GPU-1" in node.events[0][2]
        node.device.reset()
        await asyncio.sleep(31.0)
        assert node.device.layout == SEVEN


async def test_a_lost_device_is_a_matter_of_its_health_alone():
    node = PartitioningNode(a_mig_device(1, is_lost=True), a_mig_device(2, is_listed=False))
    async with node.running():
        await asyncio.sleep(3600.0)
        assert node.events == []
        assert node.problems.summary() == NO_PROBLEM
        assert node.fake.reads < 130
        node.fake.come_back()
        await asyncio.sleep(31.0)
        assert node.device.layout == SEVEN


async def test_an_unhealthy_device_is_not_partitioned():
    node = PartitioningNode(a_mig_device(1))
    node.health_states["GPU-1"] = XID_79
    async with node.running():
        await asyncio.sleep(3600.0)
    assert node.fake.changes == []
    assert node.reasons() == [BLOCKED]


async def test_a_device_that_two_devices_claim_is_left_alone():
    node = PartitioningNode(a_mig_device(1))
    node.pools_by_name["b"] = a_pool("b", "3g.40gb")
    node.add_device(2, uuid="GPU-1", owner="b")
    async with node.running():
        await asyncio.sleep(3600.0)
    assert node.fake.changes == []


async def test_a_driver_that_refuses_is_asked_again_with_growing_pauses():
    node = PartitioningNode(a_mig_device(1))
    refusals = series("gpu_agent_partitioning_steps_total", step="Create", outcome="refused")
    before = samples().get(refusals, 0.0)
    for number in range(2, 2000):
        node.fake.fail_at(number, refused("Insufficient Permissions"))
    async with node.running():
        await asyncio.sleep(3600.0)
        tries = samples()[refusals] - before
        assert 60 <= tries <= 400
        assert node.reasons() == [BLOCKED]
        assert "the driver rejects Create: Insufficient Permissions" in node.events[0][2]
        node.fake.heal()
        await asyncio.sleep(61.0)
        assert node.device.layout == SEVEN
    assert node.reasons() == [BLOCKED, CUT]


async def test_a_refusal_is_not_waited_for_when_the_pool_wants_something_else():
    node = PartitioningNode(a_mig_device(1))
    for number in range(2, 2000):
        node.fake.fail_at(number, refused())
    async with node.running():
        await asyncio.sleep(3600.0)
        node.fake.heal()
        node.pools_by_name["a"] = a_pool("a", "3g.40gb")
        node.partitioner.trigger()
        await asyncio.sleep(0.5)
        assert node.device.layout == ["3g.40gb", "3g.40gb"]


async def test_a_driver_that_accepts_steps_without_effect_is_not_called_for_ever():
    node = PartitioningNode(a_mig_device(1))
    asked: list[float] = []

    async def deaf(uuid: str, *, is_enabled: bool) -> bool:
        asked.append(node.clock.monotonic())
        return True

    node.fake.set_mig = deaf  # type: ignore[method-assign]  # a driver with a fault
    async with node.running():
        await asyncio.sleep(3600.0)
    assert 60 <= len(asked) <= 400
    assert node.reasons() == [BLOCKED]
    assert "without effect" in node.events[0][2]


async def test_another_program_that_reverts_the_layout_is_not_raced_without_end():
    node = PartitioningNode(a_mig_device(1), profile="7g.80gb")

    def undo(change: Change) -> None:
        # Another client has MIG off again as soon as it is on: mig-manager, with a configuration of its own.
        if change.step == "create_gpu_instance":
            node.device.is_mig_enabled = False
            raise refused("MIG is not enabled")

    node.fake.before_change = undo
    async with node.running():
        await asyncio.sleep(600.0)
    assert len(node.fake.changes) < 120
    assert node.reasons() == [BLOCKED]


async def test_a_layout_that_another_program_keeps_changing_is_left_after_a_while():
    node = PartitioningNode(a_mig_device(1))
    await node.partitioner.work()
    node.pools_by_name["a"] = a_pool("a")
    numbers = iter(range(50, 5000))

    def make_another(change: Change) -> None:
        if change.step == "destroy_gpu_instance":
            node.device.instances.append(GpuInstance(next(numbers), "1g.20gb", "MIG-theirs"))

    node.fake.before_change = make_another
    done = len(node.fake.changes)
    await node.partitioner.work()
    assert len(node.fake.changes) - done == MAX_STEPS
    assert node.reasons() == [CUT, BLOCKED]
    assert "stop the other program that partitions it" in node.events[1][2]


# --- a driver that goes away, and an agent that is killed ----------------------------------------------


async def test_partitioning_continues_after_the_driver_went_away_in_the_middle():
    node = PartitioningNode(a_mig_device(1))
    failures = series("gpu_task_failures_total", task="device.partitioning")
    before = samples()[failures]

    def leave(change: Change) -> None:
        if len(node.fake.changes) == 4:
            node.fake.go_away(AgentDegraded.DRIVER_NOT_LOADED)

    node.fake.before_change = leave
    with capture_logs() as logs:
        async with node.running():
            await asyncio.sleep(300.0)
            # Its layout is unfinished, and stays unpublished.
            assert node.partitioner.partitioning == {"GPU-1"}
            assert node.events == []
            node.fake.before_change = lambda _: None
            node.fake.come_back()
            await asyncio.sleep(31.0)
            assert node.device.layout == SEVEN
    assert samples()[failures] > before
    assert any(line["event"] == "devices not partitioned" for line in logs)
    assert node.reasons() == [CUT]


@pytest.mark.parametrize("number", range(1, 24))
async def test_an_agent_that_is_killed_at_any_step_goes_on_with_the_next_one(number: int):
    """From whole devices to seven instances, by way of two others: 23 changes."""
    node = PartitioningNode(a_mig_device(1), profile="3g.40gb")
    node.fake.fail_at(number, crash())
    crashes = 0
    for profile in ("3g.40gb", "1g.10gb"):
        node.pools_by_name["a"] = a_pool("a", profile)
        while True:
            try:
                await node.partitioner.work()
            except Crash:
                crashes += 1
                node.restart()
            else:
                break
    assert node.device.layout == SEVEN
    assert len(node.fake.changes) == 1 + 4 + 2 + 14
    assert crashes == (1 if number <= 21 else 0)
