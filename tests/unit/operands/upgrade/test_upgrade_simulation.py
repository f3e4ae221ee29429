"""A driver rolled over 200 nodes, and over fewer, as an operator sees it from outside."""

from collections import Counter
from collections.abc import Callable

import pytest

from operands.upgrade.actions import EvictPod
from operands.upgrade.cluster import CLUSTER_POLICY, OwnerUpgrade, plan_upgrades
from operands.upgrade.facts import UpgradeTimes
from tests.support.naive_upgrades import Numbers
from tests.support.upgrade_histories import parameters_of
from tests.support.upgrade_world import START, Machine, UpgradeWorld, Workload, away

STEP_S = 60


class Rollout:
    """A leader that looks every minute, and an observer that counts nodes after every single write."""

    def __init__(self, world: UpgradeWorld, numbers: Numbers) -> None:
        self.world, self.parameters = world, parameters_of(numbers)
        self.most_away = 0
        self.evicted: list[str] = []
        self.last = OwnerUpgrade()

    def run(self, hours: int, *, until: Callable[[], bool]) -> int:
        """Return the minutes that it took."""
        for number in range(hours * 3600 // STEP_S):
            self.world.pass_time(STEP_S)
            self.observe()
            if until():
                return number * STEP_S // 60
        raise AssertionError(Counter(machine.state for machine in self.world.machines.values()))

    def observe(self) -> None:
        times = UpgradeTimes(now=self.world.now(), leading_since=START)
        upgrades = plan_upgrades({CLUSTER_POLICY: self.parameters}, self.world.facts(), times)
        self.last = upgrades[CLUSTER_POLICY]
        for node in self.last.nodes:
            for action in node.actions:
                self.world.judge(action)
                self.world.apply(action)
                if isinstance(action, EvictPod):
                    self.evicted.append(action.name)
                self.most_away = max(self.most_away, away(self.world.machines.values()))

    def states(self) -> Counter[str]:
        return Counter(machine.state for machine in self.world.machines.values())


def a_cluster(size: int) -> UpgradeWorld:
    """Return nodes of which two thirds have one to three pods that end within two hours, or never."""
    world = UpgradeWorld(size)
    for number, machine in enumerate(world.machines.values()):
        for place in range(number % 3):
            uid = world.new_uid("pod")
            ends = None if (number + place) % 4 == 0 else 600 * (1 + (number * 7 + place) % 12)
            machine.pods[uid] = Workload(uid, ends=ends, job=place == 0)
    return world


def is_new(machine: Machine, world: UpgradeWorld) -> bool:
    (driver,) = machine.drivers
    return driver.revision == world.revision and driver.is_ready


def test_200_nodes_with_a_tenth_failing_finish_and_never_more_than_50_are_away():
    world = a_cluster(200)
    failing = list(world.machines.values())[5::10]
    for machine in failing:
        machine.breaks_driver = True
    rollout = Rollout(world, Numbers(parallel=0, unavailable="25%"))
    rollout.observe()
    assert rollout.states() == {"upgrade-done": 200}
    world.revision, world.digest = 2, "d2"

    def is_finished() -> bool:
        return rollout.states() == {"upgrade-done": 180, "upgrade-failed": 20}

    minutes = rollout.run(24, until=is_finished)
    assert 40 < rollout.most_away <= 50
    assert minutes < 6 * 60
    names = {machine.name for machine in failing}
    assert {entry.node for entry in rollout.last.entries()} == names
    for entry in rollout.last.entries():
        assert entry.reason == "DriverCrashes"
        assert entry.message.startswith("driver pod driver-")
        assert entry.since is not None
    for machine in world.machines.values():
        if machine.name not in names:
            assert is_new(machine, world)
            assert not machine.cordoner
            assert not machine.is_withheld
    for machine in failing:
        machine.breaks_driver = False
    rollout.run(2, until=lambda: rollout.states() == {"upgrade-done": 200})
    assert away(world.machines.values()) == 0


def test_a_quiet_cluster_causes_no_write():
    world = a_cluster(200)
    rollout = Rollout(world, Numbers(parallel=0))
    rollout.observe()
    for _ in range(12):
        world.pass_time(300)
        rollout.observe()
        assert [node for node in rollout.last.nodes if node.actions] == []


@pytest.mark.parametrize("parallel", [1, 3])
def test_failed_nodes_do_not_stop_a_rollout_of_few_at_a_time(parallel):
    world = a_cluster(20)
    for machine in list(world.machines.values())[:4]:
        machine.breaks_driver = True
    world.revision, world.digest = 2, "d2"
    rollout = Rollout(world, Numbers(parallel=parallel, unavailable="25%"))
    rollout.run(48, until=lambda: rollout.states() == {"upgrade-done": 16, "upgrade-failed": 4})
    assert rollout.most_away <= 5


def test_budgets_that_refuse_for_hours_hold_their_nodes_up_and_no_other_one():
    world = UpgradeWorld(20)
    held = list(world.machines.values())[:5]
    for machine in held:
        uid = world.new_uid("pod")
        machine.pods[uid] = Workload(uid, budget=False)
    world.revision, world.digest = 2, "d2"
    rollout = Rollout(world, Numbers(parallel=2, unavailable="25%"))
    rollout.run(12, until=lambda: rollout.states()["upgrade-done"] == 15)
    world.pass_time(3600)
    rollout.observe()
    for entry in rollout.last.entries():
        assert entry.attempt >= 1
    # While its budget refuses, a node is tried again and again, and serves in between.
    rollout.run(24, until=lambda: min(entry.attempt for entry in rollout.last.entries()) >= 3)
    rollout.run(6, until=lambda: away(world.machines.values()) == 0)
    assert all(machine.pods for machine in held)
    for machine in held:
        for pod in machine.pods.values():
            pod.budget = True
    rollout.run(24, until=lambda: rollout.states() == {"upgrade-done": 20})


def test_nodes_that_a_taint_would_leave_without_a_driver_serve_with_the_old_one_until_it_is_gone():
    world = UpgradeWorld(20)
    tainted = list(world.machines.values())[:5]
    for machine in tainted:
        uid = world.new_uid("pod")
        machine.pods[uid] = Workload(uid, budget=False)
    world.revision, world.digest = 2, "d2"
    rollout = Rollout(world, Numbers(parallel=0, unavailable="25%"))
    rollout.run(6, until=lambda: any(machine.is_withheld for machine in tainted))
    for machine in tainted:  # in the middle of the upgrade of some
        machine.taint = "DaemonSet driver does not tolerate taint a:NoSchedule"
    rollout.run(6, until=lambda: rollout.states() == {"upgrade-done": 15, "upgrade-required": 5})
    assert away(world.machines.values()) == 0
    for machine in tainted:
        (driver,) = machine.drivers
        assert (driver.revision, driver.is_ready, len(machine.pods)) == (1, True, 1)
    for entry in rollout.last.entries():
        assert (entry.reason, entry.attempt) == ("DriverKeptAway", 1)
        assert "taint a:NoSchedule" in entry.message
    for machine in tainted:
        machine.taint, machine.pods = "", {}
    rollout.run(6, until=lambda: rollout.states() == {"upgrade-done": 20})


def test_jobs_run_to_their_end_where_the_policy_waits_for_them():
    world = UpgradeWorld(8)
    for number, machine in enumerate(world.machines.values()):
        uid = world.new_uid("pod")
        machine.pods[uid] = Workload(uid, job=True, ends=3600 * (number + 1))
    world.revision, world.digest = 2, "d2"
    rollout = Rollout(world, Numbers(parallel=0, unavailable="100%", wait=True))
    rollout.run(12, until=lambda: rollout.states() == {"upgrade-done": 8})
    assert rollout.evicted == []
