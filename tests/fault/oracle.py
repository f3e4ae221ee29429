"""The oracle: says from what the API server showed whether anything was ever wrong.

    see(sight) -> violations   no unit of two live pods, ever; bound with what was asked for, on units
                               that were there; no device goes from one pool into another at once
    past() -> violations       a device that was taken from its pool, under a pod or though nothing else was
                               asked for (`tests.fault.rules.pool_membership`); a node that was bought for pods
                               which had one (`tests.fault.rules.bought_nodes`)
    expectations() -> violations   these, and what is not yet as it must be when nothing happens any more: every
                               pod that fits is bound, statuses show what is counted here

What is true of upgrades of the driver says `tests.fault.upgrades.upgrade_oracle`. After a restore of etcd another
oracle goes on (`restarted`): what happened since the backup has not happened.

The first kind is judged event by event, in the order of the pods' watch, which is the order in which
the API server stored them. A pod has its units from its binding until it ends or is gone.

A unit must have been on the pod's node, in its pool, at some moment within `LATENESS_S` before the
binding: who binds sees the devices through a watch, and the run makes watches slow on purpose.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar, final

from tests.fault.observations import Device, Node, Observation, Pod, Pool
from tests.fault.rules.bought_nodes import BoughtNodes
from tests.fault.rules.pool_membership import PoolMembership
from tests.fault.upgrades.upgrade_oracle import LATENESS_S, UpgradeOracle

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.fault.upgrades.upgrade_oracle import Fault

TWO_POOLS: Final = "a device is in one pool, and free before it is in another"
TAKEN_AWAY: Final = "a device stays in its pool while a pod has it"
RELEASED: Final = "a device stays in its pool while that is there and nothing else is asked for"
BOUGHT: Final = "no node is bought beyond the pool's limit, or for pods that have one"

T = TypeVar("T", Pod, Device, Pool, Node)


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """Something that must never be."""

    rule: str
    text: str
    about: frozenset[str] = frozenset()
    """Names of pods, devices and units: what in the history belongs to it."""

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}"


@dataclass(slots=True)
class _Place:
    """Where a unit is, and until when it was there."""

    node: str
    pool: str
    until: float = float("inf")


@final
class Oracle:
    """Feed it every sight, in order."""

    def __init__(self) -> None:
        self._pods: dict[str, Pod] = {}
        # uid -> pod
        self._devices: dict[str, Device] = {}
        self._pools: dict[str, Pool] = {}
        self._nodes: dict[str, Node] = {}
        self._holder: dict[str, str] = {}
        # unit -> uid of the live pod that has it
        self._places: dict[str, list[_Place]] = defaultdict(list)
        self._membership = PoolMembership()
        self._bought = BoughtNodes()
        self.upgrades = UpgradeOracle()

    def observe(self, observation: Observation) -> list[Violation]:
        """Take in one sight; return what it shows to be wrong."""
        self._bought.observe(observation)
        upgrading = _violations(self.upgrades.observe(observation))
        return [*self._see_move(observation), *self._see(observation), *upgrading]

    def _see_move(self, observation: Observation) -> "Iterator[Violation]":
        text = self._membership.observe(observation)
        if text is not None:
            yield Violation(rule=TWO_POOLS, text=text, about=frozenset({observation.subject.name}))

    def _see(self, observation: Observation) -> list[Violation]:
        match observation.subject:
            case Pod() as pod:
                return self._see_pod(pod, observation)
            case Device() as device:
                _keep(self._devices, device, observation)
                self._note_places(observation.at)
            case Pool() as pool:
                _keep(self._pools, pool, observation)
                self._note_places(observation.at)
            case Node() as node:
                _keep(self._nodes, node, observation)
            case _:
                pass
        return []

    # --- always ----------------------------------------------------------------------------------

    def _see_pod(self, pod: Pod, observation: Observation) -> list[Violation]:
        before = self._pods.get(pod.uid)
        found: list[Violation] = []
        is_live = pod.is_live and not observation.is_gone
        if before is not None and before.is_live and is_live:
            found += _changes(before, pod)
        elif is_live:
            found += [*self._faults_of_binding(pod, observation.at), *self._take(pod)]
        elif before is not None:
            self._free(before)
        if observation.is_gone:
            self._pods.pop(pod.uid, None)
        else:
            self._pods[pod.uid] = pod
        return found

    def _take(self, pod: Pod) -> "Iterator[Violation]":
        for unit in sorted(pod.units):
            holder = self._holder.setdefault(unit, pod.uid)
            if holder != pod.uid:
                other = self._pods[holder]
                yield Violation(
                    rule="no unit is given to two live pods",
                    text=f"{unit} has been pod {other.name}'s ({other.uid}, {other.phase} on "
                    f"{other.node}), and is given to pod {pod.name} ({pod.uid}) on {pod.node}",
                    about=frozenset({unit, pod.name, other.name}),
                )

    def _free(self, pod: Pod) -> None:
        for unit in pod.units:
            if self._holder.get(unit) == pod.uid:
                del self._holder[unit]

    def _faults_of_binding(self, pod: Pod, at: float) -> "Iterator[Violation]":
        about = frozenset({pod.name, *pod.units})
        for fault in _faults_of_annotation(pod):
            yield Violation(rule="a pod is bound with what it asked for", text=fault, about=about)
        for unit in sorted(pod.units):
            places = self._places.get(unit, [])
            if not any(
                (place.node, place.pool) == (pod.node, pod.pool) and place.until >= at - LATENESS_S
                for place in places
            ):
                where = (
                    ", ".join(f"{item.node} in pool {item.pool}" for item in places) or "nowhere"
                )
                yield Violation(
                    rule="a unit is of a device of the pod's node and pool",
                    text=f"pod {pod.name} of pool {pod.pool} was bound to {pod.node} with {unit}, "
                    f"which was {where} in the {LATENESS_S:g} s before",
                    about=about,
                )

    def _note_places(self, at: float) -> None:
        """Keep for every unit where it is and was."""
        present: dict[str, tuple[str, str]] = {}
        for device in self._devices.values():
            pool = self._pools.get(device.pool)
            if pool is not None:
                present |= dict.fromkeys(pool.units_of(device), (device.node, device.pool))
        for unit, places in self._places.items():
            last = places[-1]
            if last.until == float("inf") and present.get(unit) != (last.node, last.pool):
                last.until = at
        for unit, (node, pool_name) in present.items():
            places = self._places[unit]
            if not places or places[-1].until != float("inf"):
                places.append(_Place(node, pool_name))

    # --- in the end ------------------------------------------------------------------------------

    def expectations(self) -> list[Violation]:
        """Return what is not as it must be once nothing happens any more."""
        return [*self._unbound(), *self._wrong_pools(), *self._wrong_devices(), *self.past()]

    def past(self) -> list[Violation]:
        """Return what was wrong by the versions of all that has been seen: of pods too, up to the last device."""
        faults = (
            *((TAKEN_AWAY, *fault) for fault in self._membership.faults()),
            *((RELEASED, *fault) for fault in self._membership.releases()),
            *((BOUGHT, *fault) for fault in self._bought.faults()),
            *self.upgrades.faults(),
        )
        return list(_violations(faults))

    def restarted(self) -> "Oracle":
        """Return one that has seen nothing: etcd is being restored."""
        fresh = Oracle()
        fresh.upgrades.begun = self.upgrades.begun
        fresh.upgrades.most_away = self.upgrades.most_away
        return fresh

    def unfinished_upgrades(self, *, may_have_failed: bool) -> list[Violation]:
        """Return the nodes whose upgrade has not ended: as done, or as failed where that may be."""
        return list(_violations(self.upgrades.unfinished(may_have_failed=may_have_failed)))

    def count(self, pool: Pool) -> dict[str, int]:
        """Return the figures that the pool's status must show when nothing is held."""
        figures = dict.fromkeys(("total", "reserved", "used", "available", "unhealthy"), 0)
        for device in self._devices.values():
            units, taken = pool.units_of(device), self._taken(device, pool)
            figures["total"] += len(units)
            figures["used"] += taken
            kind = "available" if self._is_usable(device) else "unhealthy"
            figures[kind] += len(units) - taken
        return figures

    def pods(self) -> list[Pod]:
        return list(self._pods.values())

    def pools(self) -> list[Pool]:
        return list(self._pools.values())

    def _is_usable(self, device: Device) -> bool:
        node = self._nodes.get(device.node)
        return node is not None and node.is_open and not device.is_faulty and not device.is_leaving

    def _taken(self, device: Device, pool: Pool) -> int:
        """Count the units of a device that live pods have.

        A pod that was given the device in another cut has an unknown part of it: all counts as taken.
        """
        units = set(pool.units_of(device))
        held = {unit for unit in self._holder if unit.partition("::")[0] == device.uuid}
        return len(units) if held - units else len(held & units)

    def _unbound(self) -> "Iterator[Violation]":
        for pod in self._pods.values():
            if pod.node or pod.is_deleted or pod.is_gated or pod.phase != "Pending":
                continue
            pool = self._pools.get(pod.pool)
            nodes = [] if pool is None else [n for n in self._nodes if self._fits(pod, pool, n)]
            if nodes:
                yield Violation(
                    rule="every pod that fits is bound in the end",
                    text=f"pod {pod.name} of {pod.least_units} of pool {pod.pool} waits, and fits "
                    f"{', '.join(sorted(nodes))}",
                    about=frozenset({pod.name}),
                )

    def _fits(self, pod: Pod, pool: Pool, node: str) -> bool:
        free = sum(
            len(pool.units_of(device)) - self._taken(device, pool)
            for device in self._devices.values()
            if device.node == node and self._is_usable(device)
        )
        counted = sum(
            other.least_units
            for other in self._pods.values()
            if other.is_live and (other.node, other.pool) == (node, pod.pool)
        )
        return min(free, self._nodes[node].offers.get(pool.name, 0) - counted) >= pod.least_units

    def _wrong_pools(self) -> "Iterator[Violation]":
        for pool in self._pools.values():
            counted = self.count(pool)
            reported = {key: pool.reported.get(key, 0) for key in counted}
            if reported != counted:
                yield Violation(
                    rule="a pool's status shows what is",
                    text=f"pool {pool.name} shows {reported}, counted {counted}",
                    about=frozenset({pool.name}),
                )

    def _wrong_devices(self) -> "Iterator[Violation]":
        for device in self._devices.values():
            pool = self._pools.get(device.pool)
            units = pool.units_of(device) if pool is not None else ()
            expected = (len(units), 0, self._taken(device, pool) if pool is not None else 0)
            if device.reported != expected:
                yield Violation(
                    rule="a device's status shows what is",
                    text=f"device {device.name} shows capacity, reserved, allocated {device.reported}, "
                    f"counted {expected}",
                    about=frozenset({device.name, *units}),
                )


def _violations(faults: "Iterable[Fault]") -> "Iterator[Violation]":
    for rule, text, about in faults:
        yield Violation(rule=rule, text=text, about=about)


def _keep(kept: dict[str, T], subject: T, observation: Observation) -> None:
    if observation.is_gone:
        kept.pop(subject.name, None)
    else:
        kept[subject.name] = subject


def _changes(before: Pod, now: Pod) -> "Iterator[Violation]":
    if (before.node, before.devices) != (now.node, now.devices):
        yield Violation(
            rule="a bound pod keeps its devices",
            text=f"pod {now.name} had {before.devices} on {before.node}, and now {now.devices} on "
            f"{now.node}",
            about=frozenset({now.name, *before.units, *now.units}),
        )


def _faults_of_annotation(pod: Pod) -> "Iterator[str]":
    given = pod.given
    if not given:
        yield f"pod {pod.name} is bound to {pod.node} with devices {pod.devices!r}"
        return
    asked = {**pod.asked_first, **pod.asked}
    counted = {name: len(set(units)) for name, units in given.items()}
    if counted != asked or any(len(set(units)) != len(units) for units in given.values()):
        yield f"pod {pod.name} asks for {asked} and is bound with {given}"
    main = [unit for name in pod.asked for unit in given.get(name, ())]
    if len(set(main)) != len(main):
        yield f"pod {pod.name} is bound with a unit in two containers that run together: {given}"
