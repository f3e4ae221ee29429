"""A day of demand on one pool, made up by seed, and compressed: an hour takes 15 seconds.

Pods come in bursts, more by day than by night, run and end; a few are deleted while they wait. The cloud has no
capacity for a while on some days. Times are in proportion to each other, not to the hours: a node takes 4 to 20 seconds
to come, and half of the pods run for more than 38. Only changes of demand matter; hours without any would cost the same.
"""

import math
import random
from dataclasses import dataclass
from typing import Final

DAY_S: Final = 360.0
MOST_PODS: Final = 20
"""Of one burst."""
LONGEST_RUN_S: Final = 150.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLife:
    """A pod of one burst."""

    units: int
    is_urgent: bool
    runs_s: float
    vanishes_after_s: float | None
    """From its creation until it is deleted, if it waits then; None: it waits as long as it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Burst:
    """Pods that come at once."""

    at_s: float
    pods: tuple[PodLife, ...]
    devices_after_s: float
    """From the readiness of a node to its devices, until the next burst."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomDay:
    """What happens, and when."""

    seed: int
    shapes: tuple[int, ...]
    """Units of the pool's shapes, in their order."""
    bursts: tuple[Burst, ...]
    outage: tuple[float, float] | None
    """From when to when every launch fails."""


def random_day(seed: int) -> RandomDay:
    """Make up a day; equal seeds make equal days."""
    rng = random.Random(seed)
    largest = rng.choice([4, 8, 8, 8])
    shapes = [largest]
    if largest == 8 and rng.random() < 0.4:
        shapes.insert(rng.randrange(2), 4)
    sizes = rng.choice([[1], [1, 2, 4], [1, 2, 4, 8], [1, 1, 1, 8], [3, 5], [1, 2, 3]])
    sizes = [min(size, largest) for size in sizes]
    times = sorted(_hour_of_day(rng) for _ in range(rng.choice([2, 6, 12])))
    begins = rng.choice(times) - rng.uniform(0, 5)
    return RandomDay(
        seed=seed,
        shapes=tuple(shapes),
        bursts=tuple(_burst(rng, at_s, sizes) for at_s in times),
        outage=(begins, begins + rng.uniform(10, 30)) if rng.random() < 0.25 else None,
    )


def _hour_of_day(rng: random.Random) -> float:
    """Return a time of the day; noon is the likeliest, midnight does not come."""
    while True:
        share = rng.random()
        if rng.random() * 2 < 1 + math.sin(math.tau * (share - 0.25)):
            return share * DAY_S


def _burst(rng: random.Random, at_s: float, sizes: list[int]) -> Burst:
    units, is_urgent = rng.choice(sizes), rng.random() < 0.25
    pods = [
        PodLife(
            units=units,
            is_urgent=is_urgent,
            runs_s=min(LONGEST_RUN_S, 5 + rng.lognormvariate(3.5, 1.0)),
            vanishes_after_s=rng.uniform(0.5, 8) if rng.random() < 0.02 else None,
        )
        for _ in range(min(MOST_PODS, 1 + int(rng.expovariate(0.3))))
    ]
    return Burst(at_s=at_s, pods=tuple(pods), devices_after_s=rng.uniform(2, 18))
