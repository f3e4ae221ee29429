"""What the choice of devices on one node costs: the best set, the devices of a pod, and those with SameDevice.

Correct: the set is of the size asked for, of free devices, and aligned where an aligned one is free; whether it is the
best is checked for every question in `tests/unit/pool/test_device_sets.py`.
"""

import random
import time
from typing import TYPE_CHECKING, Final

from api.kinds.gpupool import Strategy
from pool.index.devices import DeviceEntry
from pool.layout import layout_of
from pool.model import ContainerRole
from pool.placement import device_sets
from pool.placement.aligned_sets import largest_aligned
from pool.placement.device_rules import device_rules
from pool.placement.device_sets import best_set
from pool.placement.planner import plan_devices
from pool.placement.same_device import Groups, groups_of, plan_same_device
from pool.placement.topology import is_aligned, topology_of
from tests.bench.report import Result, at_most, checked, in_ms
from tests.support import wirings
from tests.support.builders import a_demand, a_pool

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pool.model import Demand, DeviceFacts
    from pool.placement.device_rules import DeviceRules
    from pool.placement.topology import Topology

Question = tuple[int, int, tuple[int, ...]]
"""Free devices, size, preference."""

WIRINGS: "Final[dict[str, Callable[[], list[DeviceFacts]]]]" = {
    "8 devices on NVSwitch": wirings.h100,
    "8 devices with NVLink bridges": wirings.a100_pcie,
    "16 devices on NVSwitch": lambda: wirings.h100(16),
    "16 devices with NVLink bridges": wirings.sixteen_bridged,
    "32 devices on NVSwitch": lambda: wirings.h100(32),
}
SLICES: Final = 50


def measure_sets(count: int, seed: int = 1) -> list[Result]:
    """Ask so many random questions of each machine, for the first time and again."""
    results = []
    for name, devices in WIRINGS.items():
        topology = topology_of(devices())
        questions = _questions(topology, count, random.Random(seed))
        device_sets._best_choices.cache_clear()
        for turn in ("first time", "again"):
            samples = [_ask(topology, question) for question in questions]
            results.append(_result(f"best set, {name}, {turn}", samples))
    for units in (1, 4, 8):
        plans = _plans(units, count, random.Random(seed))
        for turn in ("first time", "again"):
            samples = [_plan(*plan) for plan in plans]
            results.append(_result(f"plan of {units} of 16 devices, {turn}", samples))
    results.append(_result("SameDevice, 16 devices", _same_device(count, random.Random(seed))))
    return results


def _questions(topology: "Topology", count: int, rng: random.Random) -> list[Question]:
    positions = list(range(len(topology.numa)))
    found = []
    for _ in range(count):
        free = rng.getrandbits(len(positions)) or 1
        rng.shuffle(positions)
        found.append((free, rng.randint(1, free.bit_count()), tuple(positions)))
    return found


def _ask(topology: "Topology", question: Question) -> float:
    free, count, preference = question
    began = time.thread_time()
    found = best_set(topology, free, count, preference=preference)
    spent = time.thread_time() - began
    assert found is not None
    assert (found & ~free, found.bit_count()) == (0, count)
    assert is_aligned(topology, found) is (count <= largest_aligned(topology, free))
    checked("set of devices")
    return spent


def _plans(
    units: int, count: int, rng: random.Random
) -> "list[tuple[list[DeviceEntry], Demand, DeviceRules]]":
    """Return nodes with 16 devices of which some are taken, and enough are free."""
    pool = a_pool()
    facts = wirings.sixteen_bridged()
    rules = device_rules(pool, facts, (1,) * len(facts))
    layouts = [layout_of(fact, pool) for fact in facts]
    demand = a_demand(units)
    found = []
    for _ in range(count):
        taken = set(rng.sample(range(len(facts)), rng.randint(0, len(facts) - units)))
        entries = [
            DeviceEntry(item, layout, observed=int(at in taken))
            for at, (item, layout) in enumerate(zip(facts, layouts, strict=True))
        ]
        found.append((entries, demand, rules))
    return found


def _plan(entries: "list[DeviceEntry]", demand: "Demand", rules: "DeviceRules") -> float:
    began = time.thread_time()
    found = plan_devices(entries, demand, rules)
    spent = time.thread_time() - began
    assert found is not None
    units = set(found["c0"])
    assert len(units) == demand.units
    assert units <= {unit for entry in entries if not entry.observed for unit in entry.layout.ids}
    checked("plan of devices")
    return spent


def _same_device(count: int, rng: random.Random) -> list[float]:
    topology = topology_of(wirings.sixteen_bridged())
    samples = []
    for _ in range(count):
        free = [rng.randint(0, SLICES) for _ in topology.numa]
        units = rng.choice([1, 5, 23, 30, SLICES, 2 * SLICES])
        began = time.thread_time()
        groups = groups_of(((ContainerRole.MAIN, units),), SLICES)
        assert isinstance(groups, Groups)
        found = plan_same_device(groups, free, strategy=Strategy.BIN_PACK, topology=topology)
        samples.append(time.thread_time() - began)
        requested, whole = (units, 1) if units <= SLICES else (SLICES, units // SLICES)
        assert (found is not None) is (sum(item >= requested for item in free) >= whole)
        checked("devices of a SameDevice pod")
    return samples


def _result(case: str, samples: "Sequence[float]") -> Result:
    p50, p99 = in_ms(samples)
    aims = (at_most("p50_ms", 0.03),) if "32" not in case else (at_most("p50_ms", 0.2),)
    return Result(
        subject="placement", case=case, samples=len(samples), p50_ms=p50, p99_ms=p99, aims=aims
    )
