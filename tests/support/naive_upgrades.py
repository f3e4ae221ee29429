"""What becomes of each node in one pass, said once more and plainly, from what is true in the world.

It shares no code with `operands.upgrade`: it knows the names of the states, and remembers by itself since when a node is in
one. Everything is computed again for every pass.
"""

from dataclasses import dataclass, replace

from tests.support.upgrade_world import Machine, UpgradeWorld

STATE = "nvidia.com/gpu-driver-upgrade-state"
SKIP = "nvidia.com/gpu-driver-upgrade.skip"
REQUESTED = "nvidia.com/gpu-driver-upgrade-requested"
INITIAL = "nvidia.com/gpu-driver-upgrade.node-initial-state.unschedulable"
SAFE_LOAD = "nvidia.com/gpu-driver-upgrade.driver-wait-for-safe-load"
REQUESTOR = "nvidia.com/gpu-driver-upgrade-requestor-mode"
STARTS = {
    "wait-for-jobs-required": "nvidia.com/gpu-driver-upgrade-wait-for-pod-completion-start-time",
    "validation-required": "nvidia.com/gpu-driver-upgrade-validation-start-time",
}
WITHHELD_BY = "gpu.deckhouse.io/units-withheld-by"
AGENT = "gpu.deckhouse.io/deploy.node-agent"
DRIVER = "nvidia.com/gpu.deploy.driver"
EXTERNAL = ("node-maintenance-required", "post-maintenance-required")
IDLE = ("", "upgrade-done")
MOVING = (
    "cordon-required",
    "wait-for-jobs-required",
    "pod-deletion-required",
    "drain-required",
    "pod-restart-required",
    "validation-required",
    "uncordon-required",
)
KNOWN = (*IDLE, "upgrade-required", *MOVING, "upgrade-failed", *EXTERNAL)


@dataclass(frozen=True)
class Numbers:
    """An upgrade policy, and what the installation has."""

    is_on: bool = True
    parallel: int = 1
    unavailable: int | str = "25%"
    deletion: int | None = 300
    """Seconds; None: off."""
    force: bool = False
    drain: int | None = None
    wait: bool = False
    wait_s: int = 0
    validates: bool = True

    def limit(self, total: int) -> int | None:
        """Return the most nodes that may be away; None: it cannot be read."""
        if isinstance(self.unavailable, int):
            return min(max(self.unavailable, 0), total)
        if not self.unavailable.endswith("%"):
            return None
        percent = min(max(int(self.unavailable.removesuffix("%")), 0), 100)
        whole, remaining = divmod(percent * total, 100)
        return whole + (1 if remaining else 0)


@dataclass(frozen=True)
class Memory:
    state: str
    since: int | None
    """Seconds on the leader's clock."""
    attempt: int = 0
    restarts_only: bool = False
    revision: str = ""
    digest: str = ""
    replaces: str = ""


class NaiveUpgrades:
    def __init__(self, world: UpgradeWorld) -> None:
        self.world = world
        self.memories: dict[str, Memory] = {}
        """Node -> what was last written there; a node without one has nothing readable."""

    def expect(self, numbers: Numbers, now: int, leading_since: int) -> dict[str, Memory]:
        """Return what each node is to remember after the pass."""
        before = {name: self._before(item, now) for name, item in self.world.machines.items()}
        starting = self._starting(numbers, before)
        clock = (now, leading_since)
        after = {}
        for name, item in self.world.machines.items():
            node = _Node(item, before[name], self.world, numbers)
            state = node.next(name in starting, clock)
            after[name] = node.remembered(state, now)
        return after

    def _before(self, machine: Machine, now: int) -> Memory:
        written, label = self.memories.get(machine.name), machine.state
        state = label if label in KNOWN else ""
        is_resting = state in IDLE
        if written is not None and written.state == label:
            if written.since is None or written.since > now:
                return replace(written, since=None if is_resting else now)
            return written
        since = None if is_resting else now
        start = machine.annotations.get(STARTS.get(label, ""), "")
        if start.isdigit() and label == state:
            since = min(now, int(start) - int(self.world.now().timestamp()) + self.world.seconds)
        if written is None:
            return Memory(state, since, attempt=0 if is_resting or label != state else 1)
        return replace(written, state=state, since=since, restarts_only=False)

    def _starting(self, numbers: Numbers, before: dict[str, Memory]) -> set[str]:
        nodes = [
            _Node(item, before[name], self.world, numbers)
            for name, item in self.world.machines.items()
            if item.is_selected
        ]
        limit = numbers.limit(len(nodes))
        if not numbers.is_on or limit is None:
            return set()
        moving = sum(node.is_moving for node in nodes)
        away = sum(node.is_away for node in nodes)
        started: set[str] = set()
        left = [node for node in nodes if node.may_start]
        while left:
            node = min(left, key=lambda node: node.turn)
            left.remove(node)
            if numbers.parallel and moving >= numbers.parallel:
                break
            if not node.is_away:
                if away >= limit:
                    continue
                away += 1
            moving += 1
            started.add(node.machine.name)
        return started


class _Node:
    def __init__(
        self, machine: Machine, memory: Memory, world: UpgradeWorld, numbers: Numbers
    ) -> None:
        self.machine, self.memory, self.world, self.numbers = machine, memory, world, numbers
        self.stale = [
            driver
            for driver in machine.drivers
            if driver.is_orphan
            or driver.revision not in {None, world.revision}
            or driver.uid == memory.replaces
        ]
        self.newest = [
            driver
            for driver in machine.drivers
            if not driver.is_orphan and driver.revision == world.revision
        ]
        self.is_held_off = machine.labels.get(DRIVER) == "paused-for-driver-upgrade"
        self.waits_to_load = bool(machine.annotations.get(SAFE_LOAD)) or self.is_held_off
        self.is_requested = machine.annotations.get(REQUESTED) == "true"
        self.is_skipped = machine.labels.get(SKIP) == "true"
        self.is_external = memory.state in EXTERNAL or REQUESTOR in machine.annotations
        self.is_needed = bool(self.stale) or self.waits_to_load or self.is_requested
        self.is_kept_away = bool(machine.taint) and (
            bool(self.stale) or self.is_held_off or self.is_requested
        )
        working = all(
            driver.is_ready and driver.is_scheduled and not driver.is_terminating
            for driver in machine.drivers
        )
        works = bool(machine.drivers) and working and not self.waits_to_load
        self.old_serves = works and len(self.stale) == len(machine.drivers)
        self.new_is_ready = (
            works and not self.stale and len(machine.drivers) == 1 and bool(self.newest)
        )
        self.is_agent_ready = not (machine.has_agent and machine.breaks_agent)
        self.is_validated = (
            self.new_is_ready
            and (machine.is_validated or not numbers.validates)
            and self.is_agent_ready
        )
        self.is_out = (
            WITHHELD_BY in machine.annotations
            or machine.cordoner == "us"
            or AGENT in machine.labels
        )
        self.others_cordoned = machine.cordoner == "other"
        self.restarts_only = (
            bool(self.stale)
            and not self.waits_to_load
            and not self.is_requested
            and all(
                item.digest == world.digest and not item.is_orphan and item.uid != memory.replaces
                for item in self.stale
            )
        )
        self.users = [pod for pod in machine.pods.values() if pod.uses]

    # Whose turn it is

    @property
    def is_moving(self) -> bool:
        return self.memory.state in MOVING and not self.is_external

    @property
    def is_away(self) -> bool:
        machine = self.machine
        return (
            bool(machine.cordoner)
            or not machine.is_ready
            or WITHHELD_BY in machine.annotations
            or self.is_moving
        )

    @property
    def may_start(self) -> bool:
        return (
            self.memory.state == "upgrade-required"
            and self.is_needed
            and not self.is_external
            and not self.is_skipped
            and not self.is_kept_away
            and self.machine.is_ready
            and (self.is_held_off or any(driver.is_scheduled for driver in self.machine.drivers))
        )

    @property
    def turn(self):
        ends = [float("inf") if user.ends is None else user.ends for user in self.users]
        return (
            self.memory.attempt,
            0 if self.is_away else 1,
            1 if self.holders() else 0,
            max(ends, default=float("-inf")),
            max([user.priority for user in self.users], default=-(2**31)),
            len(self.users),
            self.machine.name,
        )

    def holders(self) -> bool:
        """Return whether something holds the driver for good."""
        if self.machine.processes:
            return True
        for user in self.users:
            if user.is_terminating:
                continue
            if user.owner in {"daemon", "mirror"}:
                return True
            if self.numbers.deletion is None:
                continue
            if (user.owner == "none" and not self.numbers.force) or user.empty_dir:
                return True
        return False

    def holds_for_good(self) -> bool:
        """Return whether something holds the driver that a drain leaves there."""
        return bool(self.machine.processes) or any(
            user.owner in {"daemon", "mirror"} and not user.is_terminating for user in self.users
        )

    # Where it goes

    def next(self, starts: bool, clock: tuple[int, int]) -> str:
        state = self.memory.state
        if self.is_external:
            return state
        if not self.numbers.is_on or not self.machine.is_selected:
            has_agent = AGENT not in self.machine.labels and self.is_agent_ready
            is_free = self.old_serves or (self.new_is_ready and has_agent)
            return state if self.is_out and self.machine.is_selected and not is_free else ""
        if state in IDLE:
            return self._from_remaining()
        if state == "upgrade-required":
            return self._from_required(starts)
        if state == "upgrade-failed":
            return self._from_failed(clock)
        if state in MOVING[:4]:
            if self.is_skipped and self.old_serves:
                return "upgrade-required"
            if self.is_kept_away:
                return "upgrade-required"
            if not self.is_needed and len(self.newest) == len(self.machine.drivers):
                return "pod-restart-required"
        following: str = getattr(self, "_from_" + state.replace("-", "_"))(clock)
        return following

    def _from_remaining(self) -> str:
        state = self.memory.state
        is_outdated = any(
            not driver.is_orphan and driver.revision not in {None, self.world.revision}
            for driver in self.machine.drivers
        )
        if is_outdated or self.waits_to_load or self.is_requested:
            return "upgrade-required"
        if self.is_out:
            return "upgrade-done" if self.is_validated else "upgrade-failed"
        if state == "upgrade-done":
            return state
        if not any(driver.is_scheduled for driver in self.machine.drivers):
            return ""
        has_driver = self.newest or any(driver.is_orphan for driver in self.machine.drivers)
        return "upgrade-done" if has_driver else ""

    def _from_required(self, starts: bool) -> str:
        if self.newest and not self.is_needed:
            return "upgrade-done" if self.is_validated or not self.is_out else "upgrade-failed"
        if not starts:
            return "upgrade-required"
        return "pod-restart-required" if self.restarts_only else "cordon-required"

    def _from_failed(self, clock: tuple[int, int]) -> str:
        if self.is_validated and not self.is_needed:
            return "upgrade-done"
        is_new = self.memory.revision not in {"", str(self.world.revision)}
        is_outdated = any(
            not driver.is_orphan and driver.revision not in {None, self.world.revision}
            for driver in self.machine.drivers
        )
        if self.is_requested or (is_new and (is_outdated or self.waits_to_load)):
            return "upgrade-required"
        pause = min(600 * 2 ** max(0, min(self.memory.attempt - 1, 16)), 21600)
        rested = clock[0] >= (self.memory.since or 0) + pause
        again = rested and self.is_needed and not self.is_skipped
        return "upgrade-required" if again else "upgrade-failed"

    def _over(self, clock: tuple[int, int], seconds: int | None) -> bool:
        now, leading_since = clock
        return bool(seconds) and now >= max(self.memory.since or 0, leading_since) + (seconds or 0)

    def _from_cordon_required(self, clock: tuple[int, int]) -> str:
        is_open = not self.machine.cordoner and INITIAL not in self.machine.annotations
        return "upgrade-failed" if is_open and self._over(clock, 300) else "wait-for-jobs-required"

    def _from_wait_for_jobs_required(self, clock: tuple[int, int]) -> str:
        if not self.numbers.wait and self.numbers.deletion is None:
            return "drain-required"
        awaited = self.numbers.wait and any(pod.job for pod in self.machine.pods.values())
        if awaited and not self._over(clock, self.numbers.wait_s):
            return "wait-for-jobs-required"
        return "pod-deletion-required"

    def _from_pod_deletion_required(self, clock: tuple[int, int]) -> str:
        if self.numbers.deletion is None:
            return "drain-required"
        if self.holds_for_good():
            return "upgrade-failed"
        if not self.users and not self.machine.processes:
            return "pod-restart-required"
        if self.holders() or self._over(clock, self.numbers.deletion):
            return "upgrade-failed" if self.numbers.drain is None else "drain-required"
        return "pod-deletion-required"

    def _from_drain_required(self, clock: tuple[int, int]) -> str:
        if self.numbers.drain is None:
            return "pod-restart-required"
        if self.holds_for_good():
            return "upgrade-failed"
        pods = [
            pod
            for pod in self.machine.pods.values()
            if pod.owner not in {"daemon", "mirror"} and not pod.keeps
        ]
        if not pods:
            return "pod-restart-required"
        living = [pod for pod in pods if not pod.is_terminating]
        held = any(item.owner == "none" or item.empty_dir for item in living)
        return (
            "upgrade-failed" if held or self._over(clock, self.numbers.drain) else "drain-required"
        )

    def _from_pod_restart_required(self, clock: tuple[int, int]) -> str:
        if self.waits_to_load or any(not item.is_terminating for item in self.stale):
            if self.is_kept_away:
                return "upgrade-required"
            if not self.restarts_only:
                if self.memory.restarts_only and self.users:
                    return "cordon-required"
                if self.holders():
                    return "upgrade-failed"
        elif self.new_is_ready:
            if self.numbers.validates:
                return "validation-required"
            return "upgrade-done" if self.others_cordoned else "uncordon-required"
        elif self._crashes() and not self._is_overtaken():
            return "upgrade-failed"
        return "upgrade-failed" if self._over(clock, 1800) else "pod-restart-required"

    def _is_overtaken(self) -> bool:
        """Return whether pods stayed for a driver of another configuration than the one that comes."""
        memory = self.memory
        return memory.restarts_only and bool(memory.digest) and memory.digest != self.world.digest

    def _crashes(self) -> bool:
        drivers = self.machine.drivers
        return (
            len(drivers) == 1
            and drivers == self.newest
            and drivers[0].is_scheduled
            and not drivers[0].is_terminating
            and not drivers[0].is_ready
            and drivers[0].restarts > 10
        )

    def _from_validation_required(self, clock: tuple[int, int]) -> str:
        if self.waits_to_load or self.stale:
            return "pod-restart-required"
        if self.is_validated:
            return "upgrade-done" if self.others_cordoned else "uncordon-required"
        return "upgrade-failed" if self._over(clock, 600) else "validation-required"

    def _from_uncordon_required(self, _clock: tuple[int, int]) -> str:
        is_fine = self.old_serves or self.is_validated
        return "upgrade-done" if is_fine else "validation-required"

    # What it remembers

    def remembered(self, state: str, now: int) -> Memory:
        before = self.memory
        if state == before.state and (state or self.machine.state in KNOWN):
            return before
        after = replace(before, state=state, since=now, restarts_only=False)
        starts = before.state == "upgrade-required" and state in {
            "cordon-required",
            "pod-restart-required",
        }
        if starts:
            uids = sorted(driver.uid for driver in self.machine.drivers)
            return replace(
                after,
                restarts_only=state == "pod-restart-required",
                revision=str(self.world.revision),
                digest=self.world.digest,
                replaces=uids[-1] if self.is_requested and uids else before.replaces,
            )
        if state == "upgrade-required" and before.state in IDLE:
            return replace(after, attempt=1)
        if state == "upgrade-required" and before.state == "upgrade-failed":
            is_first = self.is_requested or before.revision not in {"", str(self.world.revision)}
            is_first = is_first and self._is_selected_again()
            return replace(after, attempt=1 if is_first else before.attempt + 1)
        ends = {"upgrade-done", "validation-required", "uncordon-required"}
        is_end = state in ends and not (
            state == "upgrade-done" and before.state == "" and not self.is_out
        )
        is_back = before.state == "uncordon-required" and state == "validation-required"
        return replace(after, replaces="") if is_end and not is_back else after

    def _is_selected_again(self) -> bool:
        return (
            self.is_requested
            or self.waits_to_load
            or any(
                not driver.is_orphan and driver.revision not in {None, self.world.revision}
                for driver in self.machine.drivers
            )
        )
