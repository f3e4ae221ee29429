"""What upgrades of the driver must never do, by what the API server showed.

At once, at each change of a node or pod:
    never more nodes are away because of upgrades than maxUnavailable allows, nor in progress than maxParallelUpgrades
    a node that a user cordoned himself stays cordoned until he uncordons it
    a pod that a budget guards is ended by an eviction, which asks the budget
    a node that is withheld takes no pod of a pool
    no DaemonSet of drivers is deleted while there is a policy
In the end:
    a driver pod was deleted only on a node in progress that took no pods and had no user of the driver any more
    a node was given back when its driver was ready
    every node has the newest driver and is back in service, or has failed and is named in the policy's status

Limits and decisions count as they were at any moment within `LATENESS_S`, as for units: the run makes watches slow
on purpose. Driver pods and their nodes are watched apart, so versions of the API server order them, as in
`tests.fault.rules.pool_membership`.
"""

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar, final

from tests.fault.observations import Node, Observation, Pod
from tests.fault.upgrades.upgrade_observations import (
    CORDONED,
    DONE,
    FAILED,
    UNCORDONED,
    DriverPod,
    DriverSet,
    Policy,
    UpgradeMarks,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LATENESS_S: Final = 20.0
"""Longer than any delay that the run injects, an API server that restarts and a list after it."""
NEW_FOR_S: Final = 90.0
"""Pods of a node that was gone and came back are deleted by Kubernetes within this."""

TOO_MANY_AWAY: Final = "no more nodes are away because of upgrades than maxUnavailable allows"
TOO_MANY_AT_ONCE: Final = "no more nodes are upgraded at once than maxParallelUpgrades allows"
UNCORDONED_BY_US: Final = "a node that somebody cordoned stays cordoned"
PAST_A_BUDGET: Final = "a pod with a budget is evicted, and never deleted"
BOUND_TO_WITHHELD: Final = "a node that is withheld takes no pod of a pool"
DRIVER_TAKEN_AWAY: Final = "a driver pod is deleted on a node that is out of service and empty"
DRIVERS_DELETED: Final = "no DaemonSet of drivers is deleted while there is a policy"
GIVEN_BACK_EARLY: Final = "a node is given back after an upgrade once its driver is ready"
UPGRADES_END: Final = "every upgrade ends: done, or failed and named"

T = TypeVar("T")
Fault = tuple[str, str, frozenset[str]]
"""Rule, text, names of what it is about."""


@dataclass(slots=True)
class _MarkedPeriod:
    """A node with the same marks for a while."""

    marks: UpgradeMarks
    version: int
    at: float
    until: float = math.inf


@dataclass(slots=True)
class _ReadyDriver:
    """A driver pod that is ready for a while."""

    uid: str
    version: int
    until: float = math.inf


@dataclass(slots=True)
class _Stay:
    """A pod with units on a node."""

    pod: Pod
    first: int
    at: float
    last: float = math.inf
    """The last version at which it was certainly there."""


@dataclass(slots=True)
class _ObservedNode:
    """A node."""

    born: float
    periods: list[_MarkedPeriod] = field(default_factory=list)
    is_charged: bool = False
    """It was in service when its upgrade took it away."""
    gone: int | None = None

    @property
    def marks(self) -> UpgradeMarks:
        return self.periods[-1].marks


@final
class UpgradeOracle:
    """Feed it every sight, in order; nodes without a device are none of its own."""

    def __init__(self) -> None:
        self._nodes: dict[str, _ObservedNode] = {}
        self._past: defaultdict[str, list[_ObservedNode]] = defaultdict(list)
        # name -> every node that had it
        self._policy: Policy | None = None
        self._policies: list[tuple[float, Policy]] = []
        # since when it was seen so, the last one last
        self._totals: list[tuple[float, int]] = []
        self._drivers: dict[str, DriverPod] = {}
        # uid -> pod
        self._driver_since: dict[str, float] = {}
        # uid -> when the pod was seen first
        self._deletions: list[tuple[DriverPod, int, float]] = []
        # driver pod, version and time of its deletion
        self._ready: dict[str, list[_ReadyDriver]] = defaultdict(list)
        # node -> when a driver was ready on it, the last one last
        self._given_back: list[tuple[str, int, float]] = []
        # node, version and time
        self._stays: dict[str, _Stay] = {}
        # uid of a pod with units -> where it was
        self._has_budgets = True
        self._observed_until = -math.inf
        self.begun = 0
        """Upgrades of a node."""
        self.most_away = 0
        """Nodes that were away at once when an upgrade took one more away."""

    def set_observed_until(self, at: float) -> None:
        """Take it that the server has seen every node as it is: it was at rest at this time."""
        self._observed_until = at

    def release_guards(self) -> None:
        """Judge the ends of guarded pods no longer."""
        self._has_budgets = False

    def observe(self, observation: Observation) -> "Iterator[Fault]":
        """Take in a sight; yield what it shows to be wrong."""
        match observation.subject:
            case Node(upgrade=UpgradeMarks() as marks) as node:
                yield from self._see_node(node.name, marks, observation)
            case Pod() as pod:
                yield from self._see_pod(pod, observation)
            case DriverPod() as driver:
                self._see_driver(driver, observation)
            case DriverSet() as drivers:
                if self._policy is not None and (observation.is_gone or drivers.is_deleted):
                    text = f"{drivers.name} of {drivers.owner} was deleted"
                    yield DRIVERS_DELETED, text, frozenset({drivers.name, drivers.owner})
            case Policy() as policy:
                self._policy = None if observation.is_gone else policy
                self._policies.append((observation.at, policy))
            case _:
                pass

    # --- nodes -----------------------------------------------------------------------------------

    def _see_node(
        self, name: str, marks: UpgradeMarks, observation: Observation
    ) -> "Iterator[Fault]":
        if observation.is_gone:
            gone = self._nodes.pop(name, None)
            if gone is not None:
                gone.gone = observation.version
            self._totals.append((observation.at, len(self._nodes)))
            return
        seen = self._nodes.get(name)
        before = UpgradeMarks() if seen is None else seen.marks
        if seen is None:
            seen = self._nodes[name] = _ObservedNode(born=observation.at)
            self._past[name].append(seen)
            self._totals.append((observation.at, len(self._nodes)))
        else:
            seen.periods[-1].until = observation.at
        seen.periods.append(_MarkedPeriod(marks, observation.version, observation.at))
        if marks.admin == CORDONED and not marks.is_cordoned:
            text = f"{name}, which somebody cordoned, is schedulable in state {marks.state!r}"
            yield UNCORDONED_BY_US, text, frozenset({name})
        if before.is_in_progress and marks.state == DONE and observation.is_exact:
            self._given_back.append((name, observation.version, observation.at))
        yield from self._starting(name, seen, before, observation)

    def _starting(
        self, name: str, seen: _ObservedNode, before: UpgradeMarks, observation: Observation
    ) -> "Iterator[Fault]":
        """Judge a node that an upgrade takes away now; what a list shows after a gap has another order."""
        now = seen.marks
        if not now.is_away_by_upgrade:
            seen.is_charged = False
        elif not before.is_away_by_upgrade:
            since = max(observation.at - LATENESS_S, self._observed_until)
            seen.is_charged = not any(
                period.marks.is_closed_by_others for period in seen.periods if period.until >= since
            )
            if seen.is_charged and observation.is_exact:
                yield from self._away(name, observation.at)
        if not now.is_in_progress or before.is_in_progress:
            return
        self.begun += 1
        if observation.is_exact:
            yield from self._at_once(name, observation.at)

    def _away(self, name: str, at: float) -> "Iterator[Fault]":
        away = sorted(
            other
            for other, seen in self._nodes.items()
            if seen.is_charged or _since(seen, _is_away) <= at - LATENESS_S
        )
        self.most_away = max(self.most_away, len(away))
        total = max(_recent(self._totals, at))
        most = max((item.most_away(total) for item in _recent(self._policies, at)), default=0)
        if len(away) > most:
            text = f"{name} goes, {len(away)} are away ({', '.join(away)}), and {most} of {total} may be"
            yield TOO_MANY_AWAY, text, frozenset(away)

    def _at_once(self, name: str, at: float) -> "Iterator[Fault]":
        moving = sorted(item for item, seen in self._nodes.items() if seen.marks.is_in_progress)
        most = max((item.most_parallel for item in _recent(self._policies, at)), default=0)
        if len(moving) > most:
            text = f"{name} starts, {len(moving)} are in progress ({', '.join(moving)}), {most:g} may be"
            yield TOO_MANY_AT_ONCE, text, frozenset(moving)

    # --- pods ------------------------------------------------------------------------------------

    def _see_pod(self, pod: Pod, observation: Observation) -> "Iterator[Fault]":
        is_ending = observation.is_exact and (observation.is_gone or pod.is_deleted)
        if pod.is_guarded and is_ending and not pod.disrupted and self._has_budgets:
            text = f"pod {pod.name} on {pod.node or 'no node'} is deleted past its budget"
            yield PAST_A_BUDGET, text, frozenset({pod.name, pod.node} - {""})
        stay, is_live = self._stays.get(pod.uid), pod.is_live and not observation.is_gone
        if stay is None:
            if is_live:
                self._stays[pod.uid] = _Stay(pod, observation.version, observation.at)
                yield from self._binding(pod, observation.at)
        elif stay.last == math.inf and not is_live:
            # What a list shows after a gap ended some time within the gap.
            stay.last = observation.version if observation.is_exact else stay.first

    def _binding(self, pod: Pod, at: float) -> "Iterator[Fault]":
        seen = self._nodes.get(pod.node)
        if seen is None:
            return
        since = _since(seen, _is_withheld)
        if since <= at - LATENESS_S:
            text = f"pod {pod.name} is bound to {pod.node}, which is withheld since {since:.1f} s"
            yield BOUND_TO_WITHHELD, text, frozenset({pod.name, pod.node})

    def _see_driver(self, driver: DriverPod, observation: Observation) -> None:
        before = self._drivers.get(driver.uid)
        self._driver_since.setdefault(driver.uid, observation.at)
        is_ending = driver.is_deleted or observation.is_gone
        was_ending = before is not None and before.is_deleted
        if is_ending and not was_ending and driver.node and observation.is_exact:
            self._deletions.append((driver, observation.version, observation.at))
        if observation.is_gone:
            self._drivers.pop(driver.uid, None)
        else:
            self._drivers[driver.uid] = driver
        self._note_readiness(driver, observation)

    def _note_readiness(self, driver: DriverPod, observation: Observation) -> None:
        periods = self._ready[driver.node]
        present = next(
            (period for period in periods if (period.uid, period.until) == (driver.uid, math.inf)),
            None,
        )
        is_ready = driver.is_ready and not driver.is_deleted and not observation.is_gone
        if present is not None and not is_ready:
            present.until = observation.at
        elif present is None and is_ready:
            # What a list shows after a gap was so some time within the gap.
            periods.append(
                _ReadyDriver(driver.uid, observation.version if observation.is_exact else 0)
            )

    # --- in the end ------------------------------------------------------------------------------

    def faults(self) -> "Iterator[Fault]":
        """Yield what was wrong about driver pods that were deleted."""
        for driver, version, at in self._deletions:
            for text in self._faults_of_deletion(driver, version, at):
                about = frozenset({driver.name, driver.node})
                yield DRIVER_TAKEN_AWAY, f"driver pod {driver.name}, {driver.node}: {text}", about
        for node, version, at in self._given_back:
            if not any(
                ready.version < version and ready.until >= at - LATENESS_S
                for ready in self._ready[node]
            ):
                text = f"{node} was given back at {at:.1f} s, and no driver of it was ready"
                yield GIVEN_BACK_EARLY, text, frozenset({node})

    def unfinished(self, *, may_have_failed: bool) -> "Iterator[Fault]":
        """Yield every node whose upgrade has not ended as it must once nothing goes wrong any more."""
        policy = self._policy
        if policy is None:
            return
        versions = {
            driver.node: driver.version
            for driver in self._drivers.values()
            if not driver.is_deleted
        }
        for name, seen in sorted(self._nodes.items()):
            marks, named = seen.marks, policy.upgrades.get(name, "")
            if may_have_failed and marks.state == FAILED and named == FAILED:
                continue
            is_back = marks.state == DONE and not marks.is_away_by_upgrade
            if not is_back or versions.get(name) != policy.version or named:
                text = (
                    f"{name} is {marks}, has driver {versions.get(name, 'none')} of {policy.version},"
                    f" and the policy names it {named or 'not at all'}"
                )
                yield UPGRADES_END, text, frozenset({name})

    def _faults_of_deletion(self, driver: DriverPod, version: int, at: float) -> "Iterator[str]":
        seen = self._node_at(driver.node, version)
        is_of_another = seen is not None and self._driver_since[driver.uid] < seen.born
        if seen is None or (is_of_another and at - seen.born < NEW_FOR_S):
            return
        recent = [period for period in seen.periods if period.version <= version]
        marks = recent[-1].marks
        if not marks.is_in_progress:
            yield f"deleted in state {marks.state!r}"
        was_cordoned = any(
            item.marks.is_cordoned for item in recent if item.until >= at - LATENESS_S
        )
        if not was_cordoned and not (marks.admin == UNCORDONED and marks.is_withheld):
            yield f"deleted while the node took pods in state {marks.state!r}"
        for stay in self._stays.values():
            is_there = stay.first < version < stay.last
            if stay.pod.node == driver.node and is_there and stay.at <= at - LATENESS_S:
                yield f"deleted while pod {stay.pod.name} used it"

    def _node_at(self, name: str, version: int) -> _ObservedNode | None:
        """Return the node of that name at a version."""
        for seen in self._past.get(name, ()):
            if seen.periods[0].version <= version and (seen.gone is None or version < seen.gone):
                return seen
        return None


def _is_away(marks: UpgradeMarks) -> bool:
    return marks.is_away


def _is_withheld(marks: UpgradeMarks) -> bool:
    return marks.is_withheld


def _since(seen: _ObservedNode, is_so: "Callable[[UpgradeMarks], bool]") -> float:
    """Return since when it is so without a break; infinity where it is not."""
    since = math.inf
    for period in reversed(seen.periods):
        if not is_so(period.marks):
            break
        since = period.at
    return since


def _recent(periods: "list[tuple[float, T]]", at: float) -> "Iterator[T]":
    """Yield what was so at any moment within `LATENESS_S`, the latest first."""
    until = math.inf
    for since, item in reversed(periods):
        if until < at - LATENESS_S:
            return
        yield item
        until = since
