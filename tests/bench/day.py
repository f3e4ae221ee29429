"""A day's pods in order of their arrival: what each asks for, how long it lives, how it ends.

Made up by seed, or taken from the Alibaba trace `openb_pod_list_default.csv` (its order, sizes and
life times), repeated until there are enough. Time is counted in arrivals, and stretched so that the pods
that live at a time fill two thirds of their pool.
"""

import csv
import random
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.world import DEVICES, SEED, SLICES, WHOLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.world import World

TRACE = "openb_pod_list_default.csv"
FULL_SHARE = 2 / 3


class Fate(Enum):
    """What becomes of a pod."""

    RUNS = "runs"
    REFUSED = "refused"
    """After our webhook, by a quota or somebody else's webhook: it never exists."""
    DELETED = "deleted"
    """Before it is scheduled."""


@dataclass(frozen=True, slots=True)
class Job:
    """One pod."""

    pool: str
    units: int
    lives: float
    """How many other pods arrive before it ends."""
    fate: Fate


@dataclass(frozen=True, slots=True)
class _Wish:
    pool: str
    units: int
    duration: float
    """In a unit of time that is stretched later."""


def jobs(count: int, world: "World", trace: Path | None) -> "Iterator[Job]":
    """Yield so many pods."""
    rng = random.Random(SEED)
    wishes = _of_trace(trace / TRACE) if trace is not None else _made_up(rng)
    stretch = {pool: _stretch(pool, wishes, world) for pool in (WHOLE, SLICES)}
    for number in range(count):
        wish = wishes[number % len(wishes)]
        draw = rng.random()
        fate = Fate.REFUSED if draw < 0.02 else Fate.DELETED if draw < 0.03 else Fate.RUNS
        yield Job(wish.pool, wish.units, wish.duration * stretch[wish.pool], fate)


def _stretch(pool: str, wishes: list[_Wish], world: "World") -> float:
    """Return by what durations are multiplied, so that units x arrivals fill the pool as wanted."""
    asked = sum(wish.units * wish.duration for wish in wishes if wish.pool == pool) / len(wishes)
    nodes = sum(world.pool_of(node) == pool for node in range(world.nodes))
    units = nodes * DEVICES * (1 if pool == WHOLE else world.slices)
    return units * FULL_SHARE / asked if asked else 1.0


def _made_up(rng: random.Random) -> list[_Wish]:
    """Mostly slices, few large pods; most live briefly, some for long."""
    sizes = ((SLICES, 1), (WHOLE, 1), (WHOLE, 2), (WHOLE, 4), (WHOLE, 8))
    drawn = rng.choices(sizes, weights=(60, 25, 10, 4, 1), k=10_000)
    return [_Wish(pool, units, rng.lognormvariate(0, 1.2)) for pool, units in drawn]


def _of_trace(path: Path) -> list[_Wish]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: float(row["creation_time"]))
    wishes = []
    for row in rows:
        devices = int(row["num_gpu"])
        if devices:
            shared = int(row["gpu_milli"]) < 1_000
            seconds = float(row["deletion_time"] or 0) - float(row["creation_time"])
            pool = SLICES if shared else WHOLE
            wishes.append(_Wish(pool, min(devices, DEVICES), max(1.0, seconds)))
    if not wishes:
        raise ValueError(f"{path} has no pod that asks for a GPU")
    return wishes
