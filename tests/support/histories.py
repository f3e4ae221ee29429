"""Random histories of a small cluster: driven by a seed, replayed, and cut to the smallest that fails."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from tests.support.small_cluster import SmallCluster

Option = TypeVar("Option")

ACTIONS: Final[dict[str, int]] = {
    "device": 4,
    "pool": 1,
    "node": 2,
    "admit": 14,
    "hand_in": 8,
    "event": 14,
    "relist": 1,
    "end": 8,
    "nominate": 3,
    "ungate": 3,
    "time_passes": 4,
    "empty": 1,
    "hold": 8,
    "extend": 1,
    "leave": 1,
    "bind": 28,
    "until_stable": 4,
    "stranger": 3,
    "report": 5,
    "preempt": 3,
    "restart": 1,
}
"""How often each action of the small cluster is taken, beside the others."""

EPISODE: Final = 1_000
"""Steps in one cluster: short enough to be cut down in seconds, long enough to get into trouble."""
AGREE_EVERY: Final = 5


@dataclass(frozen=True, slots=True)
class Step:
    """An action, with the number of each option that it picked."""

    action: str
    picks: tuple[int, ...]

    def __str__(self) -> str:
        return f'Step("{self.action}", {self.picks})'


class Dice:
    """Picks at random, and keeps what it picked."""

    def __init__(self, source: random.Random) -> None:
        self._random = source.random
        self.picks: list[int] = []

    def __call__(self, options: Sequence[Option]) -> Option:
        number = int(self._random() * len(options))
        self.picks.append(number)
        return options[number]


class Script:
    """Picks what is written; the first option where nothing is."""

    def __init__(self, picks: Sequence[int]) -> None:
        self._picks = iter(picks)

    def __call__(self, options: Sequence[Option]) -> Option:
        return options[next(self._picks, 0) % len(options)]


class Played(Protocol):
    """A cluster that histories are played on; its actions are methods that are given a picker."""

    def __init__(self, pick: Any) -> None: ...
    def holds(self) -> None: ...
    def agrees(self) -> None: ...
    def ends(self) -> None: ...


def actions_of(cluster: type[Played]) -> dict[str, int]:
    """Return how often each action is taken: the cluster's own, or those of the small one."""
    found: dict[str, int] = getattr(cluster, "actions", ACTIONS)
    return found


class DisagreementError(Exception):
    """Allocation state and model disagree; the message is the smallest history that shows it."""


def play(seed: int, steps: int, new_cluster: type[Played] = SmallCluster) -> Iterator[int]:
    """Take that many steps, an episode at a time; yield how many were taken after each.

    Raises:
        Disagreement: something came apart.
    """
    taken = 0
    for number in range(-(-steps // EPISODE)):
        history: list[Step] = []
        count = min(EPISODE, steps - taken)
        try:
            _episode(random.Random(f"{seed}/{number}"), count, history, new_cluster)  # no secret
        except Exception as error:
            smallest = smallest_failing(history, lambda steps: failure_of(steps, new_cluster))
            raise DisagreementError(_report(seed, number, smallest, new_cluster)) from error
        taken += count
        yield taken


def _episode(
    source: random.Random, count: int, history: list[Step], new_cluster: type[Played]
) -> None:
    # Some actions are rare in an episode and others frequent, so that what they hide is seen too.
    weight_by_action = actions_of(new_cluster)
    weights = [weight * source.choice((0.1, 1, 1, 3)) for weight in weight_by_action.values()]
    actions = source.choices(list(weight_by_action), weights, k=count)
    dice = Dice(source)
    cluster = new_cluster(dice)
    history.append(Step("start", tuple(dice.picks)))
    for number, action in enumerate(actions, 1):
        dice.picks = []
        # Noted before it is taken: it may fail in the middle.
        picks = dice.picks
        try:
            getattr(cluster, action)(dice)
        finally:
            history.append(Step(action, tuple(picks)))
        cluster.holds()
        if number % AGREE_EVERY == 0:
            cluster.agrees()
    cluster.agrees()
    cluster.ends()


def failure_of(
    history: Sequence[Step], new_cluster: type[Played] = SmallCluster
) -> Exception | None:
    """Replay a history, compare everything after every step, and return what fails."""
    start, *steps = history
    try:
        cluster = new_cluster(Script(start.picks))
        for step in steps:
            getattr(cluster, step.action)(Script(step.picks))
            cluster.holds()
            cluster.agrees()
        cluster.ends()
    except Exception as error:  # noqa: BLE001  # whatever it is, it is the failure
        return error
    return None


def smallest_failing(
    history: Sequence[Step], fails: Callable[[Sequence[Step]], Exception | None]
) -> list[Step]:
    """Leave out parts, halves first and single steps last, while the rest still fails."""
    start, *steps = history
    size = max(1, len(steps) // 2)
    while True:
        before = len(steps)
        position = 0
        while position < len(steps):
            remaining = steps[:position] + steps[position + size :]
            if fails([start, *remaining]) is not None:
                steps = remaining
            else:
                position += size
        if size > 1:
            size //= 2
        elif len(steps) == before:
            return [start, *steps]


def _report(seed: int, number: int, history: Sequence[Step], new_cluster: type[Played]) -> str:
    lines = "\n".join(f"    {step}," for step in history)
    error = failure_of(history, new_cluster)
    return f"seed {seed}, episode {number}: {error!r}\nafter\n{lines}"
