"""What may happen to a cluster whose drivers are upgraded, one action a method; each picks among its options.

A leader passes over the nodes, is killed between two writes, or finds that something else has happened between them. After
each pass the answers are compared with the naive ones; promises are kept by the world itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from api.driver_upgrade import (
    REQUESTOR_MODE_ANNOTATION,
    SAFE_LOAD_ANNOTATION,
    UPGRADE_RECORD_ANNOTATION,
    UPGRADE_REQUESTED_ANNOTATION,
    UPGRADE_SKIP_LABEL,
    UPGRADE_STATE_LABEL,
    VALIDATION_START_ANNOTATION,
    WAIT_START_ANNOTATION,
)
from api.kinds.nvidia.upgrade_policy import (
    ClusterUpgradePolicy,
    Drain,
    PodDeletion,
    WaitForCompletion,
)
from operands.upgrade import actions as acts
from operands.upgrade.cluster import CLUSTER_POLICY, OwnerUpgrade, plan_upgrades
from operands.upgrade.facts import UpgradeTimes
from operands.upgrade.parameters import UpgradeParameters, read_parameters
from tests.support import upgrade_world
from tests.support.naive_upgrades import KNOWN, MOVING, Memory, NaiveUpgrades, Numbers

Pick = Callable[[Sequence[Any]], Any]

ACTIONS: Final[dict[str, int]] = {
    "full_pass": 40,
    "killed_pass": 10,
    "interrupted_pass": 6,
    "time": 30,
    "clock_jump": 1,
    "new_revision": 1,
    "old_revision": 1,
    "node_readiness": 2,
    "node_deleted": 1,
    "node_added": 1,
    "node_not_selected": 1,
    "pod": 8,
    "pod_ends": 3,
    "budget": 4,
    "process": 1,
    "driver_fault": 1,
    "validator_fault": 1,
    "driver_pod": 2,
    "taint": 2,
    "other_cordon": 2,
    "label_by_hand": 2,
    "record_by_hand": 2,
    "skip": 1,
    "request": 1,
    "safe_load": 1,
    "requestor": 1,
    "policy": 2,
}
"""How often each action is taken, beside the others."""
SIZES = (1, 1, 2, 2, 3, 3, 4, 5, 5, 8, 8, 13, 20)
LARGE = (50, 200)
RARELY = 100
PASSES_TO_IDLE = 400
QUIET_PASSES = 3
"""A driver pod that is gone is there again, and ready, in two."""


def parameters_of(numbers: Numbers) -> UpgradeParameters:
    """Return the parameters of the policy as its author writes it."""
    policy = ClusterUpgradePolicy(
        auto_upgrade=numbers.is_on,
        max_parallel_upgrades=numbers.parallel,
        max_unavailable=numbers.unavailable,
        pod_deletion=(
            None
            if numbers.deletion is None
            else PodDeletion(timeout_seconds=numbers.deletion, force=numbers.force)
        ),
        wait_for_completion=WaitForCompletion(
            pod_selector="job=yes" if numbers.wait else "", timeout_seconds=numbers.wait_s
        ),
        drain=None if numbers.drain is None else Drain(enable=True, timeout_seconds=numbers.drain),
    )
    return read_parameters(
        policy, path="spec.driver.upgradePolicy", has_validator=numbers.validates
    )


class UpgradeHistory:
    actions = ACTIONS

    def __init__(self, pick: Pick, *, is_small: bool = False) -> None:
        is_large = not is_small and pick(range(RARELY)) == RARELY - 1
        self.world = upgrade_world.UpgradeWorld(pick(LARGE if is_large else SIZES))
        self.naive = NaiveUpgrades(self.world)
        self.numbers = Numbers(
            parallel=pick((1, 1, 2, 3, 0)), unavailable=pick(("25%", 1, 2, "100%", "50%"))
        )
        self.offset = 0
        """Of the leader's clock."""
        self.leading_since = 0

    # The leader

    @property
    def clock(self) -> int:
        return self.world.seconds + self.offset

    def planned(self) -> tuple[OwnerUpgrade, dict[str, Memory]]:
        """Return the answers of a pass, which agree with the naive ones, and what nodes then remember."""
        times = UpgradeTimes(
            now=self.world.now(self.offset),
            leading_since=self.world.now(self.leading_since - self.world.seconds),
        )
        upgrade = plan_upgrades(
            {CLUSTER_POLICY: parameters_of(self.numbers)}, self.world.facts(), times
        ).get(CLUSTER_POLICY, OwnerUpgrade())
        expected = self.naive.expect(self.numbers, self.clock, self.leading_since)
        for action in _all_actions(upgrade):
            self.world.judge(action)
        self._agree(upgrade, expected)
        self.starts_within_limits(upgrade)
        return upgrade, expected

    def _agree(self, upgrade: OwnerUpgrade, expected: dict[str, Memory]) -> None:
        answered = {str(item.progress.node): item.progress for item in upgrade.nodes}
        for name, memory in expected.items():
            progress = answered.pop(name, None)
            if progress is None:
                assert memory.state == "", (name, memory)
                continue
            assert progress.state.value == memory.state, (name, progress, memory)
            assert progress.message
            if memory.state not in {"", "upgrade-done"}:
                assert progress.since is not None
                since = (progress.since - upgrade_world.START).total_seconds()
                assert (progress.attempt, since) == (memory.attempt, memory.since), name
        assert answered == {}

    def starts_within_limits(self, upgrade: OwnerUpgrade) -> None:
        """Count once more, from the world alone: what starts now leaves both limits as they are promised."""
        machines = self.world.machines
        started = {
            str(item.progress.node)
            for item in upgrade.nodes
            if machines[item.progress.node].state == "upgrade-required"
            and item.progress.state.value in MOVING
        }
        if not started:
            return
        moving = started | {
            machine.name for machine in machines.values() if self._is_moving(machine)
        }
        assert not self.numbers.parallel or len(moving) <= self.numbers.parallel
        selected = [machine for machine in machines.values() if machine.is_selected]
        gone = {
            item.name for item in selected if item.cordoner or not item.is_ready or item.is_withheld
        }
        more = started - gone - {item.name for item in selected if self._is_moving(item)}
        total = gone | {item.name for item in selected if self._is_moving(item)} | started
        assert not more or len(total) <= (self.numbers.limit(len(selected)) or 0)

    def numbers_without_limits(self) -> Numbers:
        return replace(self.numbers, parallel=0, unavailable="100%")

    @staticmethod
    def _is_moving(machine: upgrade_world.Machine) -> bool:
        is_external = REQUESTOR_MODE_ANNOTATION in machine.annotations
        return machine.is_selected and machine.state in MOVING and not is_external

    def _apply(self, actions: Sequence[acts.UpgradeAction], expected: dict[str, Memory]) -> None:
        """Carry out actions in their order; the first of a node that is refused ends the pass for it."""
        refused: set[str] = set()
        for action in actions:
            name = str(action.node)
            if name in refused:
                continue
            if not self.world.apply(action):
                if not isinstance(action, acts.EvictPod):
                    refused.add(name)
                continue
            self._remember(name, action, expected)

    def _remember(self, name: str, action: acts.UpgradeAction, expected: dict[str, Memory]) -> None:
        match action:
            case acts.SetState() if action.state.value == "":
                self.naive.memories.pop(name, None)
            case acts.SetState():
                self.naive.memories[name] = expected[name]
            case acts.Annotate() if UPGRADE_RECORD_ANNOTATION in action.annotations:
                self.naive.memories[name] = expected[name]
            case _:
                pass

    def full_pass(self, pick: Pick) -> None:
        upgrade, expected = self.planned()
        self._apply(_all_actions(upgrade), expected)

    def killed_pass(self, pick: Pick) -> None:
        """The leader dies after some of its writes; another one begins."""
        upgrade, expected = self.planned()
        actions = [
            action
            for action in _all_actions(upgrade)
            if not isinstance(action, acts.WaitUntil | acts.ReportReason)
        ]
        self._apply(actions[: pick(range(len(actions) + 1))], expected)
        self.leading_since = self.clock

    def interrupted_pass(self, pick: Pick) -> None:
        """Something happens between two writes of a pass, which goes on with what it had decided."""
        upgrade, expected = self.planned()
        actions = _all_actions(upgrade)
        count = pick(range(len(actions) + 1))
        self._apply(actions[:count], expected)
        getattr(self, pick(("other_cordon", "pod", "node_deleted", "label_by_hand", "budget")))(
            pick
        )
        self._apply(actions[count:], expected)

    # Time

    def time(self, pick: Pick) -> None:
        self.world.pass_time(pick((5, 5, 30, 30, 120, 300, 700, 2000, 8000)))

    def clock_jump(self, pick: Pick) -> None:
        """The leader's clock jumps, by an hour or by a year; or it is right again."""
        self.offset = pick((0, 3600, -3600, 31_536_000, -31_536_000))

    # The cluster

    def _node(self, pick: Pick) -> upgrade_world.Machine | None:
        machines = list(self.world.machines.values())
        return pick(machines) if machines else None

    def new_revision(self, pick: Pick) -> None:
        self.world.revision += 1
        self.world.digest = pick((self.world.digest, f"d{self.world.revision}"))

    def old_revision(self, pick: Pick) -> None:
        """The DaemonSet has an earlier template again."""
        self.world.revision = max(1, self.world.revision - 1)

    def node_readiness(self, pick: Pick) -> None:
        if machine := self._node(pick):
            machine.is_ready = pick((True, True, False))

    def node_deleted(self, pick: Pick) -> None:
        if len(self.world.machines) > 1 and (machine := self._node(pick)):
            del self.world.machines[machine.name]
            self.naive.memories.pop(machine.name, None)

    def node_added(self, pick: Pick) -> None:
        if len(self.world.machines) < max(LARGE):
            self.world.add_node()

    def node_not_selected(self, pick: Pick) -> None:
        if machine := self._node(pick):
            machine.is_selected = pick((True, True, False))
            if not machine.is_selected:
                machine.drivers.clear()

    def pod(self, pick: Pick) -> None:
        """A pod arrives; one that needs a free place only where the node has one."""
        machine = self._node(pick)
        owner = pick(("controller", "controller", "controller", "none", "daemon", "mirror"))
        is_open = machine and not machine.cordoner and not machine.is_withheld
        if machine is None or not (is_open or owner in {"daemon", "mirror"}):
            return
        uid = self.world.new_uid("pod")
        machine.pods[uid] = upgrade_world.Workload(
            uid,
            owner=owner,
            uses=pick((True, True, False)),
            job=pick((False, True)),
            empty_dir=pick((False, False, False, True)),
            priority=pick((0, 0, 10)),
            ends=pick((None, self.world.seconds + 100, self.world.seconds + 5000)),
            keeps=pick((False, False, True)),
        )

    def pod_ends(self, pick: Pick) -> None:
        machine = self._node(pick)
        if machine and machine.pods:
            del machine.pods[pick(list(machine.pods))]

    def budget(self, pick: Pick) -> None:
        machine = self._node(pick)
        if machine and machine.pods:
            machine.pods[pick(list(machine.pods))].budget = pick((True, False))

    def process(self, pick: Pick) -> None:
        if machine := self._node(pick):
            machine.processes = pick((0, 0, 1))

    def driver_fault(self, pick: Pick) -> None:
        if machine := self._node(pick):
            machine.breaks_driver = pick((False, True))

    def validator_fault(self, pick: Pick) -> None:
        if machine := self._node(pick):
            machine.breaks_validator = pick((False, True))
            machine.breaks_agent = pick((False, False, True))

    def driver_pod(self, pick: Pick) -> None:
        """Something happens to a driver pod: it is deleted, fails, loses its DaemonSet, its label or its place, or gets a second one."""
        machine = self._node(pick)
        if machine is None or not machine.drivers:
            return
        driver = pick(machine.drivers)
        match pick(("deleted", "fails", "orphan", "no revision", "second", "no room", "room")):
            case "deleted":
                driver.is_terminating = True
            case "fails":
                driver.is_ready = False
            case "orphan":
                driver.is_orphan = True
            case "no revision":
                driver.revision = None
            case "second":
                another = pick((None, self.world.revision, self.world.revision + 1))
                machine.drivers.append(
                    upgrade_world.Driver(
                        self.world.new_uid("driver"),
                        another,
                        self.world.digest,
                        is_ready=pick((True, False)),
                        is_orphan=pick((True, False)),
                    )
                )
            case "no room":
                machine.hides_pod = True
            case _:
                machine.hides_pod = False

    def taint(self, pick: Pick) -> None:
        if machine := self._node(pick):
            machine.taint = pick(("a taint", "", ""))

    # Other clients

    def other_cordon(self, pick: Pick) -> None:
        """A user cordons or uncordons a node, by hand."""
        machine = self._node(pick)
        if machine is None:
            return
        if pick((True, False)):
            machine.cordoner = machine.cordoner or "other"
        else:
            machine.cordoner = ""

    def label_by_hand(self, pick: Pick) -> None:
        if machine := self._node(pick):
            label = pick((*KNOWN, "nonsense", "Upgrade-Done"))
            machine.labels.pop(UPGRADE_STATE_LABEL, None)
            if label:
                machine.labels[UPGRADE_STATE_LABEL] = label

    def record_by_hand(self, pick: Pick) -> None:
        """A user removes what upgrades have written, or writes nonsense."""
        machine = self._node(pick)
        if machine is None:
            return
        match pick(("removed", "{", '{"state":"upgrade-failed","attempt":-3}', "starts")):
            case "removed":
                machine.annotations.pop(UPGRADE_RECORD_ANNOTATION, None)
            case "starts":
                text = pick(("", "x", "-1", "17", "9" * 30))
                machine.annotations[WAIT_START_ANNOTATION] = text
                machine.annotations[VALIDATION_START_ANNOTATION] = text
                return
            case text:
                machine.annotations[UPGRADE_RECORD_ANNOTATION] = text
        self.naive.memories.pop(machine.name, None)

    def skip(self, pick: Pick) -> None:
        if machine := self._node(pick):
            _set(machine.labels, UPGRADE_SKIP_LABEL, pick(("true", "", "yes")))

    def request(self, pick: Pick) -> None:
        if machine := self._node(pick):
            _set(machine.annotations, UPGRADE_REQUESTED_ANNOTATION, pick(("true", "", "yes")))

    def safe_load(self, pick: Pick) -> None:
        if machine := self._node(pick):
            _set(machine.annotations, SAFE_LOAD_ANNOTATION, pick(("true", "")))
            if SAFE_LOAD_ANNOTATION in machine.annotations and machine.drivers:
                machine.drivers[0].is_ready = False

    def requestor(self, pick: Pick) -> None:
        if machine := self._node(pick):
            _set(machine.annotations, REQUESTOR_MODE_ANNOTATION, pick(("true", "", "")))

    def policy(self, pick: Pick) -> None:
        self.numbers = Numbers(
            is_on=pick((True, True, True, True, False)),
            parallel=pick((1, 1, 2, 3, 0)),
            unavailable=pick(("25%", 1, 2, "100%", 0, "0%", "200%", -1, "-5%", "many", "7")),
            deletion=pick((300, 300, 60, 0, None)),
            force=pick((False, True)),
            drain=pick((None, None, 300, 0)),
            wait=pick((False, False, True)),
            wait_s=pick((0, 60, 3600)),
            validates=pick((True, True, False)),
        )

    # What is examined after each action

    def holds(self) -> None:
        for machine in self.world.machines.values():
            is_known = machine.cordoner != "us" or machine.state or machine.is_withheld
            assert is_known, f"{machine.name} is cordoned by us, and nothing says why"

    def agrees(self) -> None:
        """Equal facts give equal answers."""
        if len(self.world.machines) <= max(SIZES):
            assert self.planned() == self.planned()

    def ends(self) -> None:
        """Whatever happened, everything that can finish finishes, once nothing stands in its way any more."""
        self._heal()
        quiet, upgrade = 0, OwnerUpgrade()
        for _ in range(PASSES_TO_IDLE):
            self.world.pass_time(120)
            self._heal_pods()
            upgrade, expected = self.planned()
            actions = _all_actions(upgrade)
            self._apply(actions, expected)
            quiet = 0 if actions else quiet + 1
            if quiet == QUIET_PASSES:
                break
        else:
            raise AssertionError([node.progress for node in upgrade.nodes if node.actions])
        for machine in self.world.machines.values():
            assert machine.state == "upgrade-done"
            (driver,) = machine.drivers
            assert driver.is_ready
            assert driver.revision == self.world.revision or driver.is_orphan
            assert machine.has_agent
            assert machine.has_operand
            assert not machine.is_withheld
            assert machine.cordoner in {"", "other"}
        assert upgrade_world.away(self.world.machines.values()) == sum(
            1 for item in self.world.machines.values() if item.cordoner == "other"
        )

    def _heal(self) -> None:
        self.numbers = Numbers(parallel=0, unavailable="100%", force=True)
        self.offset = 0
        self.leading_since = min(self.leading_since, self.world.seconds)
        for machine in self.world.machines.values():
            machine.is_ready = machine.is_selected = True
            machine.breaks_driver = machine.breaks_validator = machine.hides_pod = False
            machine.breaks_agent = False
            machine.taint = ""
            machine.processes = 0
            machine.labels.pop(UPGRADE_SKIP_LABEL, None)
            machine.annotations.pop(REQUESTOR_MODE_ANNOTATION, None)
            if machine.state in {"node-maintenance-required", "post-maintenance-required"}:
                del machine.labels[UPGRADE_STATE_LABEL]
            machine.labels.setdefault(upgrade_world.OPERAND, "true")
            for driver in machine.drivers:
                # A pod whose revision nobody knows is deleted by hand, as the reason says.
                is_extra = driver is not machine.drivers[0]
                driver.is_terminating |= driver.revision is None or is_extra

    def _heal_pods(self) -> None:
        for machine in self.world.machines.values():
            for pod in list(machine.pods.values()):
                pod.budget, pod.empty_dir = True, False
                if pod.owner in {"daemon", "mirror"}:
                    del machine.pods[pod.uid]


def _all_actions(upgrade: OwnerUpgrade) -> list[acts.UpgradeAction]:
    return [action for node in upgrade.nodes for action in node.actions]


def _set(values: dict[str, str], key: str, value: str) -> None:
    values.pop(key, None)
    if value:
        values[key] = value
