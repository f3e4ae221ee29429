"""One run: the steps are carried out, the faults end, and what is left must be right.

another driver is asked for       every node is to be upgraded
steps, one after the other        the oracle judges every sight
every armed fault is used up      by pods that come and go
nothing goes wrong any more       every pod that fits is bound, every status is true, every upgrade has ended
all pods are deleted              nothing is held, in status or metrics, and failed upgrades succeed
every unit is asked for           and every pod is bound: nothing has leaked that no status shows
"""

import asyncio
import contextlib
import functools
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NoReturn, final

from tests.cluster.environment import pods, polling
from tests.fault.arena import Arena
from tests.fault.history import History, describe
from tests.fault.injecting import SERVES_WITHIN_S, Injecting
from tests.fault.observations import Pod
from tests.fault.oracle import Oracle, Violation
from tests.fault.steps import FIRST_UPGRADE, LAST_UPGRADE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from tests.cluster.environment import client
    from tests.cluster.environment import control_plane as control_planes
    from tests.fault.breaking import Fault
    from tests.fault.fleet import Fleet
    from tests.fault.observations import Observation
    from tests.fault.steps import Step

PACE_S: Final = 0.12
NOTHING_OF_A_REQUEST: Final = "nothing of a request for a node is left over"
USED_UP_WITHIN_S: Final = 240.0
"""A fault that kills a server waits until another one serves, and a fault of a binding until units are free: see
`STABLE_WITHIN_S`."""
WATCHED_WITHIN_S: Final = 25.0
"""For faults of watches: not every watch has an event in time, however long the run waits."""
STABLE_WITHIN_S: Final = 480.0
"""Without a step forward: a long run ends with pods that wait for a hundred nodes. A reservation that a step gave two
minutes keeps units from others for so long, if its own pod cannot be scheduled; a binding of which nobody knows the end
keeps them for one. A shape of a pool that scales rests for more than three minutes once a request for it has failed, and
for twice as long after the next."""
_RARE: Final = frozenset({"eviction", "pod deletion"})
"""Targets of which pods that come and go cause no request; an upgrade may not come so far in time."""
_POLLED_EVERY_S: Final = 0.25
_BOUND_WITHIN_S: Final = 5.0
_STEADY_READS: Final = 3
"""So many looks in a row must find everything right."""
_USE_UP_FROM: Final = 500_000
_FILL_FROM: Final = 1_000_000
"""Where the numbers of pods begin that no step creates."""


class _StopError(Exception):
    """The run is over: a violation was seen."""


@dataclass(slots=True)
class Report:
    """What became of a run."""

    violations: list[Violation] = field(default_factory=list)
    used: Counter[str] = field(default_factory=Counter)
    """What really happened, by name."""
    reached: int = 0
    """How many steps were begun."""
    carried_out: list[tuple[float, str]] = field(default_factory=list)
    """When, and which step or fault."""
    observations: "list[Observation]" = field(default_factory=list)
    bound: set[str] = field(default_factory=set)
    """uids of the pods that were bound."""
    refused: int = 0
    """How many pods could not be created."""
    upgrades: int = 0
    """How many upgrades of a node began."""
    most_away: int = 0
    """How many nodes were away at once when an upgrade took one more away."""
    served: float = 0.0
    """The share of the steps' time in which a replica was ready."""

    def story(self) -> str:
        """Return the part of the history that belongs to the first violation."""
        if not self.violations:
            return ""
        about = self.violations[0].about
        lines = [(at, f"{at:8.3f} --- {text}") for at, text in self.carried_out]
        lines += [
            (observation.at, describe(observation))
            for observation in self.observations
            if any(name in describe(observation) for name in about)
        ]
        return "\n".join(text for _, text in sorted(lines))


@final
class Run:
    """A new one for each list of steps."""

    def __init__(
        self,
        api: "client.ApiClient",
        control_plane: "control_planes.ControlPlane",
        fleet: "Fleet",
        progress: "Callable[[str], None]",
        *,
        prints_steps: bool = False,
    ) -> None:
        self._api = api
        self._fleet = fleet
        self._progress = progress
        self._prints_steps = prints_steps
        self._arena = Arena(api, control_plane)
        self._oracle = Oracle()
        self._report = Report()
        self._violated = asyncio.Event()
        self._control_plane = control_plane
        self._injecting = Injecting(self._arena, control_plane, fleet)
        self._is_going_back = False

    async def carry_out(self, steps: "Sequence[Step]") -> Report:
        """Carry the steps out and judge; never raises for what the server does wrong."""
        async with asyncio.TaskGroup() as self._injecting.restarts:
            return await self._carry_out(steps)

    async def _carry_out(self, steps: "Sequence[Step]") -> Report:
        fleet = self._fleet
        fleet.armed.disarm()
        fleet.armed.used.clear()
        history = History(self._api, self._arena.namespace, self._arena.has, self._see)
        self._report.observations = history.observations
        fleet.armed.on_use = lambda fault, call: self._report.carried_out.append(
            (history.now(), f"it happens: {fault.name}, {fault.target} {call.pod} {call.node}")
        )
        stack = contextlib.ExitStack()
        try:
            stack.enter_context(self._arena.growing.played())
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(history.follow(), name="history")
                caring = group.create_task(fleet.supervise(), name="fleet")
                work = group.create_task(self._work(steps, history))
                stop = group.create_task(self._violated.wait())
                crashes = group.create_task(self._watch_for_crashes())
                await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
                if work.done():
                    await work
                for task in (watching, caring, work, stop, crashes):
                    task.cancel()
        finally:
            stack.close()
            fleet.armed.disarm()
            fleet.resume_all()
            await self._injecting.restore()
            await self._arena.raze()
        self._report.used = Counter(fleet.armed.used)
        self._report.upgrades = self._oracle.upgrades.begun
        self._report.most_away = self._oracle.upgrades.most_away
        return self._report

    def _see(self, observation: "Observation") -> None:
        if isinstance(observation.subject, Pod) and observation.subject.node:
            self._report.bound.add(observation.subject.uid)
        found = self._oracle.observe(observation)
        if found and not self._is_going_back:
            self._report.violations.extend(found)
            self._violated.set()

    async def _watch_for_crashes(self) -> NoReturn:
        self._fleet.crashes()
        while True:
            for crash in self._fleet.crashes():
                self._report.violations.append(Violation(rule="no server crashes", text=crash))
                self._violated.set()
            await asyncio.sleep(_POLLED_EVERY_S)

    async def _work(self, steps: "Sequence[Step]", history: History) -> None:
        await self._arena.build()
        await self._until_stable("the pools have their units", history, self._begun)
        self._progress(f"arena {self._arena.namespace} is ready")
        self._oracle.upgrades.set_observed_until(history.now())
        # Whatever the steps are, they fall into an upgrade.
        await self._arena.drivers.set_version(self._arena.insist, FIRST_UPGRADE)
        self._fleet.probes.clear()
        async with asyncio.TaskGroup() as group:
            self._injecting.group = group
            self._injecting.go_back = functools.partial(self._go_back, history)
            for number, step in enumerate(steps):
                self._report.reached = number + 1
                self._report.carried_out.append((history.now(), f"{number}: {step}"))
                if self._prints_steps:
                    self._progress(f"{history.now():8.3f} {number}: {step}")
                await self._injecting.carry_out(step)
                await asyncio.sleep(PACE_S)
                if (number + 1) % 50 == 0:
                    self._progress(f"{number + 1} steps, {len(history.observations)} changes seen")
            probes = self._fleet.probes
            self._report.served = probes[True] / max(1, probes.total())
            self._report.refused = self._arena.refused
            await self._use_up(_USE_UP_FROM)
        await self._end(history)

    async def _go_back(self, history: History, backup: "Path") -> None:
        """Restore etcd as docs/restore.md says, but for our servers: they notice it. Judge from there on."""
        insist = self._arena.insist
        await insist(history.caught_up)
        found = set(self._oracle.past())
        # A device may have been seen to leave before the pod that left it was seen to end.
        await insist(history.caught_up)
        self._report.violations += [past for past in self._oracle.past() if past in found]
        if self._report.violations:
            self._violated.set()
        history.hold()
        for proxy in self._fleet.proxies():
            proxy.drop_late()
        await self._injecting.restore_etcd(backup)
        self._oracle = self._oracle.restarted()
        self._is_going_back = True
        await insist(history.go_back)
        self._is_going_back = False
        await self._arena.repeat()

    async def _use_up(self, number: int) -> None:
        """Let pods come and go until every armed fault has found its request, with all nodes back and no clock ahead."""
        self._fleet.set_clock(0)
        self._fleet.resume_all()
        await self._arena.heal()
        armed = self._fleet.armed
        if any(item.target in {"node write", *_RARE} for item in armed.waiting()):
            await self._arena.drivers.set_version(self._arena.insist, LAST_UPGRADE)
        now = asyncio.get_running_loop().time
        watched_until = now() + WATCHED_WITHIN_S

        def is_awaited(fault: "Fault") -> bool:
            is_of_watch = fault.target.startswith("watch ")
            return fault.target not in _RARE and (not is_of_watch or now() < watched_until)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(USED_UP_WITHIN_S):
                while any(map(is_awaited, armed.waiting())):
                    pods = range(number, number + 2)
                    for pod in pods:
                        await self._arena.create_pod(
                            pod, pod % 2, "1", is_important=True, is_gated=False
                        )
                    await self._until_bound_or_used(len(pods))
                    for pod in pods:
                        await self._arena.delete_pod_number(pod, grace_s=0)
                    number += 2
        armed.disarm()

    async def _until_bound_or_used(self, count: int) -> None:
        """Wait until so many more pods are bound or a fault is used up; not for long, as the pods may be refused."""
        armed, report = self._fleet.armed, self._report
        waiting, enough = armed.waiting(), len(report.bound) + count
        with contextlib.suppress(AssertionError):
            await polling.eventually(
                lambda: armed.waiting() != waiting or len(report.bound) >= enough,
                what="pods to be bound or a fault to be used up",
                within=_BOUND_WITHIN_S,
            )

    async def _end(self, history: History) -> None:
        self._note(history, "the faults are over")
        self._fleet.set_clock(0)
        self._fleet.resume_all()
        await self._injecting.restore()
        await self._fleet.serving(SERVES_WITHIN_S)
        await self._arena.heal()
        await self._arena.ungate_all()
        await self._until_stable("bound what fits", history, self._quiet)
        self._note(history, "all pods are deleted")
        drivers = self._arena.drivers
        self._oracle.upgrades.release_guards()
        await drivers.end_guarded_pods(self._arena.insist)
        await self._arena.delete_all_pods()
        for name in await drivers.request_failed(self._arena.insist):
            self._note(history, f"another upgrade of {name} is asked for")
        await self._until_stable("given everything back", history, self._remains)
        self._note(history, "every unit is asked for")
        requested = 0
        for index, name in enumerate(self._arena.pools):
            for _ in range(self._units_of(name)):
                await self._arena.create_pod(
                    _FILL_FROM + requested, index, "1", is_important=False, is_gated=False
                )
                requested += 1
        await self._until_stable("given every unit out", history, lambda: self._unfilled(requested))

    def _note(self, history: History, text: str) -> None:
        self._report.carried_out.append((history.now(), text))
        self._progress(text)

    async def _until_stable(
        self,
        what: str,
        history: History,
        expectations: "Callable[[], Awaitable[Sequence[Violation]]]",
    ) -> None:
        """Wait until nothing is other than expected; what still is when no less becomes of it is a violation."""
        now = asyncio.get_running_loop().time
        began = history.now()
        steady, fewest = 0, sys.maxsize
        seen: Sequence[Violation] = ()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STABLE_WITHIN_S) as deadline:
                while steady < _STEADY_READS:
                    await asyncio.sleep(_POLLED_EVERY_S)
                    await history.caught_up()
                    seen = await expectations()
                    steady = 0 if seen else steady + 1
                    if len(seen) < fewest:
                        fewest = len(seen)
                        deadline.reschedule(now() + STABLE_WITHIN_S)
                self._progress(f"{what} after {history.now() - began:.1f} s")
                return
        self._report.violations.extend(seen)
        self._violated.set()

    async def _expectations(self) -> "Sequence[Violation]":
        left = await self._arena.growing.left_over(pods.collection(self._arena.namespace))
        about = frozenset({self._arena.growing.name})
        return [
            *self._oracle.expectations(),
            *(Violation(rule=NOTHING_OF_A_REQUEST, text=item, about=about) for item in left),
        ]

    async def _begun(self) -> "Sequence[Violation]":
        return [
            *await self._expectations(),
            *self._oracle.unfinished_upgrades(may_have_failed=False),
        ]

    async def _quiet(self) -> "Sequence[Violation]":
        return [
            *await self._expectations(),
            *self._oracle.unfinished_upgrades(may_have_failed=True),
        ]

    async def _remains(self) -> "Sequence[Violation]":
        found = list(await self._begun())
        found += [
            Violation(
                rule="no pod is left",
                text=f"pod {pod.name} is still there",
                about=frozenset({pod.name}),
            )
            for pod in self._oracle.pods()
        ]
        metrics = await self._fleet.metrics()
        if metrics is None:
            return [*found, Violation(rule="the server serves", text="/metrics does not answer")]
        held = {(name, "") for name in _GAUGES_OF_ALL}
        names = (*self._arena.pools, self._arena.growing.name)
        held |= {(name, pool) for name in _GAUGES_OF_A_POOL for pool in names}
        for name, pool in sorted(held):
            value = metrics.total(name, **({"pool": pool} if pool else {}))
            if value:
                found.append(
                    Violation(
                        rule="nothing is held for a pod that is gone",
                        text=f"{name} {pool} is {value:g}",
                        about=frozenset({pool} if pool else ()),
                    )
                )
        return found

    async def _unfilled(self, requested: int) -> "Sequence[Violation]":
        pods = self._oracle.pods()
        bound = sum(pod.is_live for pod in pods)
        found = list(self._oracle.expectations())
        if bound != requested:
            found.append(
                Violation(
                    rule="nothing has leaked",
                    text=f"{requested} units are asked for one by one, {len(pods)} pods are there, "
                    f"{bound} are bound",
                    about=frozenset(pod.name for pod in pods if not pod.node),
                )
            )
        return found

    def _units_of(self, name: str) -> int:
        return next(
            self._oracle.count(pool)["total"] for pool in self._oracle.pools() if pool.name == name
        )


_GAUGES_OF_A_POOL: Final = (
    "gpupool_capacity_reserved",
    "gpupool_capacity_used",
    "gpupool_capacity_unhealthy",
    "gpupool_capacity_missing",
    "gpu_device_reserved_total",
    "gpu_device_reservation_age_seconds",
    "gpu_pods_waiting",
)
_GAUGES_OF_ALL: Final = ("gpu_reservations", "gpu_pods_unaccounted", "gpu_units_held_twice")
"""All of them are 0 when there is no pod."""
