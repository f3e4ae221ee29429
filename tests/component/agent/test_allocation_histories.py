"""Random histories of a node: no unit is with two live pods, and who can have what it was assigned has it."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import uvloop

from agent.plugin.advertised import AdvertisedUnits
from api.foreign.core import Pod
from tests.component.agent.node import Agent, slices_of, whole_devices
from tests.support.bound_pods import a_bound_pod
from tests.support.kubelet.admission import AdmittedContainer, KubeletOfNode, PodRejectedError
from tests.support.polling import until

SLICES = "gpu.deckhouse.io/slices"
OFFERS = (whole_devices(8), slices_of(2, 4, SLICES))
SHAPES: tuple[dict[str, Any], ...] = (
    {"main": {"a": 1}},
    {"main": {"a": 1}},
    {"main": {"a": 2}},
    {"main": {"a": 1, "b": 2}},
    {"init": {"i": 1}, "main": {"a": 1}},
    {"init": {"i": 1}, "main": {"a": 2}},
    {"init": {"i": 2}, "main": {"a": 1}},
    {"init": {"i": 1}, "sidecars": {"s": 1}, "main": {"a": 1}},
    {"sidecars": {"s": 1}, "main": {"a": 2}},
)
MAX_LAG_S = 0.06


@dataclass
class BoundPod:
    pod: Pod
    resource: str
    shape: dict[str, dict[str, int]]
    units: dict[str, tuple[str, ...]] = field(default_factory=dict)


def assign(shape: dict[str, dict[str, int]], free: list[str]) -> dict[str, tuple[str, ...]]:
    """As the control plane assigns: what init containers have is handed on first."""
    assigned: dict[str, tuple[str, ...]] = {}
    reusable: list[str] = []
    for kind in ("init", "sidecars", "main"):
        for name, count in shape.get(kind, {}).items():
            kept = reusable[:count]
            fresh = [free.pop(0) for _ in range(count - len(kept))]
            assigned[name] = (*kept, *fresh)
            reusable = reusable + fresh if kind == "init" else reusable[len(kept) :]
    return assigned


class History:
    """A node, a control plane that assigns units, and chance."""

    def __init__(self, kubelet: KubeletOfNode, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.kubelet = kubelet
        self.folder = folder
        self.agent = Agent(kubelet, folder)
        self.live: dict[str, BoundPod] = {}
        self.seen: list[Any] = []
        self.unhealthy: set[str] = set()
        self.kept_assignments = 0
        self.substituted = 0
        self._number = 0
        self._lock = asyncio.Lock()
        self._watch: asyncio.Queue[tuple[float, str, Pod]] = asyncio.Queue()
        self._running = AsyncExitStack()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["History"]:
        await self._start()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._show()), group.create_task(self._export())]
            yield self
            for task in tasks:
                task.cancel()
        await self._running.aclose()

    async def _start(self) -> None:
        await self._running.enter_async_context(self.agent.running(*self.advertised()))
        await until(lambda: all(self.kubelet.plugins.capacity(item.resource) for item in OFFERS))

    async def _show(self) -> None:
        """The watch: in order, and late."""
        while True:
            due, what, pod = await self._watch.get()
            await asyncio.sleep(due - asyncio.get_running_loop().time())
            getattr(self.agent, what)(pod)

    def _record(self, what: str, pod: Pod) -> None:
        due = asyncio.get_running_loop().time() + self.chance.random() * MAX_LAG_S
        self._watch.put_nowait((due, what, pod))

    async def _export(self) -> None:
        """Another client lists all the time."""
        while True:
            await asyncio.sleep(self.chance.random() * 0.05)
            self.kubelet.list_pods()

    def advertised(self) -> list[AdvertisedUnits]:
        return [
            replace(
                offer,
                units=tuple(
                    replace(unit, is_healthy=unit.device not in self.unhealthy)
                    for unit in offer.units
                ),
            )
            for offer in OFFERS
        ]

    def make(self) -> BoundPod:
        """Bind a pod: mostly to units that are nobody's, sometimes around us or to what another has."""
        self._number += 1
        name = f"p{self._number % 7}-{self._number}"
        offer = self.chance.choice(OFFERS)
        shape = self.chance.choice(SHAPES)
        taken = {u for item in self.live.values() for units in item.units.values() for u in units}
        free = [unit.id for unit in offer.units if unit.id not in taken]
        if self.chance.random() < 0.1:
            free = [unit.id for unit in offer.units]
        self.chance.shuffle(free)
        needed = sum(map(sum, (counts.values() for counts in shape.values())))
        assigned = None
        if len(free) >= needed and self.chance.random() < 0.9:
            assigned = assign(shape, free)
        pod = a_bound_pod(name, assigned=assigned, resource=offer.resource, **shape)
        bound = BoundPod(pod, offer.resource, shape, assigned or {})
        self.live[pod.metadata.uid] = bound
        self._record("show", pod)
        return bound

    async def admit(self, bound: BoundPod) -> None:
        uid = bound.pod.metadata.uid
        async with self._lock:
            can_have_it = self._can_have(bound)
            try:
                got = await self.kubelet.admit(bound.pod)
            except PodRejectedError:
                if can_have_it:
                    raise
                self.live.pop(uid)
                self._record("forget", bound.pod)
                return
            self.check()
            if can_have_it:
                self._assert_kept(bound, got)
                self.kept_assignments += 1
            elif bound.units:
                self.substituted += 1

    def _can_have(self, bound: BoundPod) -> bool:
        held = {
            u
            for uid in self.live
            if uid != bound.pod.metadata.uid
            for u in self.kubelet.units_of(uid)
        }
        units = {unit for item in bound.units.values() for unit in item}
        sick = {unit for unit in units if unit.partition("::")[0] in self.unhealthy}
        return bool(units) and units.isdisjoint(held) and not sick

    @staticmethod
    def _assert_kept(bound: BoundPod, got: dict[str, AdmittedContainer]) -> None:
        given = {name: item.units[bound.resource] for name, item in got.items()}
        inits = set().union(*(bound.units[name] for name in bound.shape.get("init", {})))
        for name, units in bound.units.items():
            if name not in bound.shape.get("init", {}) and inits > set(units):
                # kubelet takes any of the init container's.
                assert given[name] <= inits
            else:
                assert given[name] == set(units), (bound, given)

    def check(self) -> None:
        holders: dict[str, str] = {}
        for uid in self.live:
            for unit in self.kubelet.units_of(uid):
                assert unit not in holders, f"{unit} is with {holders[unit]} and {uid}"
                holders[unit] = uid

    async def end_some(self) -> None:
        async with self._lock:
            for uid in self.chance.sample(sorted(self.live), k=min(len(self.live), 3)):
                if self.kubelet.units_of(uid):
                    self.kubelet.end(uid)
                    self._record("forget", self.live.pop(uid).pod)

    async def burst(self) -> None:
        pods = [self.make() for _ in range(self.chance.randint(1, 5))]
        if self.chance.random() < 0.3:
            self.chance.shuffle(pods)
        async with asyncio.TaskGroup() as group:
            for pod in pods:
                group.create_task(self.admit(pod))

    async def restart_kubelet(self) -> None:
        async with self._lock:
            await self.kubelet.restart()
            await self._registered()

    async def restart_agent(self) -> None:
        async with self._lock:
            await self._running.aclose()
            self.agent = Agent(self.kubelet, self.folder)
            for bound in self.live.values():
                self.agent.show(bound.pod)
            await self._start()
            await self._registered()

    async def sicken(self) -> None:
        async with self._lock:
            self.unhealthy = {self.chance.choice(["GPU-0", "GPU-1", "GPU-s0"])}
            self.agent.served.advertise(self.advertised())
            await self._registered()

    async def _registered(self) -> None:
        def is_visible() -> bool:
            return not self.agent.served.missing and all(
                self.kubelet.plugins.devices.get(item.resource)
                == tuple(u.to_message() for u in item.units)
                for item in self.advertised()
            )

        await until(is_visible)

    async def step(self) -> None:
        step = self.chance.choices(
            [self.burst, self.end_some, self.restart_kubelet, self.restart_agent, self.sicken],
            weights=[10, 8, 1, 1, 1],
        )
        await step[0]()


@pytest.mark.parametrize("seed", range(3))
async def test_no_unit_is_allocated_twice_and_assigned_units_are_kept(
    node: KubeletOfNode, folder: Path, seed: int
):
    history = History(node, folder, seed)
    node.pod_resources.is_limited = seed % 2 == 0
    async with history.running():
        for number in range(600):
            await history.step()
            history.check()
            # When a unit is substituted depends on which of two calls comes first.
            if number >= 60 and history.substituted and history.kept_assignments > 15:
                break
        else:
            pytest.fail("no unit was ever substituted, or few assignments were kept")


def test_the_same_on_uvloop(folder: Path):
    async def story() -> None:
        async with KubeletOfNode(folder, random.Random(7)) as node:
            history = History(node, folder, 7)
            async with history.running():
                for _ in range(40):
                    await history.step()
            assert history.kept_assignments > 10

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(story())
