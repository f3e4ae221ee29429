"""The nodes of a running simulation: what is free, and which pods fit.

Devices are measured in milli of one; a device of a pool whose units do not divide 1000 is a little less than 1000.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from api.kinds.gpupool import SlicePlacement
from pool.placement.fragmentation.target_workload import WHOLE_DEVICE, TargetShape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pool.placement.simulation.model import SimulatedPod
    from tests.bench.placement.trace_cluster import Cluster, SimulatedNode, SimulatedPool

UNKNOWN: Final = 1 << 60
"""Free CPU, memory or pods of a node where nothing is known about them: never the limit."""

Choice = tuple[tuple[int, int], ...]
"""(position among the pool's devices of the node, milli) of each device that a pod takes."""


@dataclass(frozen=True, slots=True)
class PoolRules:
    """How units of a pool are measured and taken."""

    name: str
    unit: int
    """Milli of one unit."""
    whole: int
    """Milli of a free device."""
    units_per_device: int
    placement: SlicePlacement

    @classmethod
    def of(cls, pool: "SimulatedPool") -> "PoolRules":
        unit = max(1, WHOLE_DEVICE // pool.units_per_device)
        return cls(
            pool.name, unit, unit * pool.units_per_device, pool.units_per_device, pool.placement
        )


@dataclass(frozen=True, slots=True)
class Ask:
    """What pods of one kind ask, memory apart; one object for all that are equal."""

    index: int
    rules: PoolRules | None
    """None: no devices."""
    milli: int
    """Of each device; all of them where they may lie on any."""
    devices: int
    """On which they lie; 0: on any."""
    cpu_milli: int
    models: tuple[str, ...]

    @property
    def pool(self) -> str:
        return self.rules.name if self.rules is not None else ""

    @property
    def demand(self) -> int:
        """Milli of all devices."""
        return self.milli * (self.devices or 1) if self.rules is not None else 0

    @property
    def is_share(self) -> bool:
        """Whether a part of one device is asked for."""
        return self.devices == 1 and self.rules is not None and self.milli < self.rules.whole

    @property
    def size(self) -> str:
        """Name of the size, by which refusals are counted."""
        if self.rules is None:
            return "cpu only"
        if self.is_share:
            return "share"
        return str(self.devices or -(-self.milli // self.rules.whole))

    @property
    def shape(self) -> TargetShape:
        """The same as a shape of a target workload."""
        if self.rules is None:
            return TargetShape(self.cpu_milli, 0, 0, self.models)
        if self.devices:
            milli = self.milli if self.is_share else WHOLE_DEVICE
            return TargetShape(self.cpu_milli, milli, self.devices, self.models)
        whole, remaining = divmod(self.milli, self.rules.whole)
        if whole:
            return TargetShape(self.cpu_milli, WHOLE_DEVICE, whole, self.models)
        return TargetShape(self.cpu_milli, remaining, 1, self.models)


@dataclass(slots=True)
class NodeState:
    """What is free on a node."""

    index: int
    model: str
    cpu: int
    memory: int
    pods: int
    remaining: dict[str, list[int]]
    """pool -> free milli by position among its devices."""
    positions: dict[str, tuple[int, ...]]
    """pool -> positions on the node."""
    wholes: dict[str, int]
    """pool -> milli of a free device."""
    sizes: dict[str, int] = field(default_factory=dict)
    """size -> running pods of the workload that have devices (for GpuClustering)."""
    generation: int = 0
    """Moves with every change."""

    @classmethod
    def of(cls, index: int, node: "SimulatedNode", pools: "Mapping[str, PoolRules]") -> "NodeState":
        remaining: dict[str, list[int]] = {}
        positions: dict[str, list[int]] = {}
        for position, device in enumerate(node.devices):
            remaining.setdefault(device.pool, []).append(device.free * pools[device.pool].unit)
            positions.setdefault(device.pool, []).append(position)
        return cls(
            index,
            node.model,
            UNKNOWN if node.cpu_milli is None else node.cpu_milli,
            UNKNOWN if node.memory_mib is None else node.memory_mib,
            UNKNOWN if node.pods is None else node.pods,
            remaining,
            {pool: tuple(of_pool) for pool, of_pool in positions.items()},
            {pool: pools[pool].whole for pool in remaining},
        )

    def take(self, ask: Ask, memory: int, choice: Choice) -> None:
        """Take what a pod asks; it must fit."""
        self._change(ask, memory, choice, 1)

    def release(self, ask: Ask, memory: int, choice: Choice) -> None:
        """Give back what a pod took."""
        self._change(ask, memory, choice, -1)

    def _change(self, ask: Ask, memory: int, choice: Choice, sign: int) -> None:
        self.generation += 1
        if self.cpu != UNKNOWN:
            self.cpu -= sign * ask.cpu_milli
        if self.memory != UNKNOWN:
            self.memory -= sign * memory
        if self.pods != UNKNOWN:
            self.pods -= sign
        if ask.rules is None:
            return
        remaining = self.remaining[ask.rules.name]
        for position, milli in choice:
            remaining[position] -= sign * milli
        running = self.sizes.get(ask.size, 0) + sign
        if running:
            self.sizes[ask.size] = running
        else:
            del self.sizes[ask.size]


class Asks:
    """Kinds of demand of a workload, each with one object."""

    def __init__(self, cluster: "Cluster") -> None:
        self.pools = {pool.name: PoolRules.of(pool) for pool in cluster.pools}
        self._cached: dict[tuple[str, int, int, tuple[str, ...]], Ask] = {}

    def of(self, pod: "SimulatedPod") -> Ask:
        """Return the kind of a pod."""
        key = (pod.pool, pod.units, pod.cpu_milli, pod.models)
        cached = self._cached.get(key)
        if cached is None:
            cached = self._cached[key] = self._new(pod)
        return cached

    def all(self) -> list[Ask]:
        """Return all kinds so far, by index."""
        return list(self._cached.values())

    def _new(self, pod: "SimulatedPod") -> Ask:
        index = len(self._cached)
        if not pod.pool:
            return Ask(index, None, 0, 0, pod.cpu_milli, pod.models)
        rules = self.pools[pod.pool]
        if rules.placement is not SlicePlacement.SAME_DEVICE:
            return Ask(index, rules, pod.units * rules.unit, 0, pod.cpu_milli, pod.models)
        whole, remaining = divmod(pod.units, rules.units_per_device)
        if not whole:
            return Ask(index, rules, remaining * rules.unit, 1, pod.cpu_milli, pod.models)
        # A demand that is no multiple fits nowhere, as admission refuses it.
        milli = rules.whole if not remaining else rules.whole + 1
        return Ask(index, rules, milli, whole, pod.cpu_milli, pod.models)


def devices_fit(left: "list[int]", ask: Ask) -> bool:
    """Say whether free devices of the pool are enough."""
    if ask.devices:
        return sum(remaining >= ask.milli for remaining in left) >= ask.devices
    return sum(left) >= ask.milli


class Met(IntEnum):
    """How far a node meets what a pod asks, in this order; memory apart."""

    NOTHING = 0
    MODEL = 1
    DEVICES = 2
    CPU = 3
    ALL = 4


def met(node: NodeState, ask: Ask) -> Met:
    """Return how far a node can take a pod, as devices, CPU, model and the number of pods go."""
    if ask.models and node.model not in ask.models:
        return Met.NOTHING
    if ask.rules is not None:
        remaining = node.remaining.get(ask.rules.name)
        if remaining is None:
            return Met.NOTHING
        if not (max(remaining) >= ask.milli if ask.devices == 1 else devices_fit(remaining, ask)):
            return Met.MODEL
    if node.cpu < ask.cpu_milli:
        return Met.DEVICES
    return Met.ALL if node.pods > 0 else Met.CPU


def choices(left: "list[int]", ask: Ask) -> "list[Choice]":
    """Return the different ways to take devices, by position: one for each distinct rest that a share fits into."""
    if ask.is_share:
        seen: set[int] = set()
        different: list[Choice] = []
        for position, remaining in enumerate(left):
            if remaining >= ask.milli and remaining not in seen:
                seen.add(remaining)
                different.append(((position, ask.milli),))
        return different
    if ask.devices:
        free = [position for position, remaining in enumerate(left) if remaining >= ask.milli]
        return [tuple((position, ask.milli) for position in free[: ask.devices])]
    return [spread_units(left, ask, fullest_first=True)] if ask.rules is not None else [()]


def spread_units(free_milli: "list[int]", ask: Ask, *, fullest_first: bool) -> Choice:
    """Take units round by round, one from each device before a second from any (`plan_devices`)."""
    assert ask.rules is not None
    unit = ask.rules.unit
    order = sorted(
        (position for position, remaining in enumerate(free_milli) if remaining >= unit),
        key=lambda position: (
            free_milli[position] if fullest_first else -free_milli[position],
            position,
        ),
    )
    taken = dict.fromkeys(order, 0)
    left = ask.milli
    while left:
        before = left
        for position in order:
            if left and free_milli[position] - taken[position] >= unit:
                taken[position] += unit
                left -= unit
        assert left < before, "the demand was found to fit"
    return tuple((position, milli) for position, milli in taken.items() if milli)
