"""The hand-over, the holds and the ends on leaving nodes under random events, faults and ends of processes."""

import random
from collections.abc import Sequence
from typing import TypeVar

import pytest

from kube.resources import GPU_DEVICES, NODES, PODS
from manifests.constants import DEFAULT_NAMESPACE
from tests.component.reconciler.handover_histories import ACTIONS, History
from tests.component.reconciler.handover_run import N1, REQUEST, a_scaling_run

pytestmark = pytest.mark.looptime

Option = TypeVar("Option")
STEPS = 60


class Dice:
    def __init__(self, seed: int) -> None:
        self.source = random.Random(seed)

    def __call__(self, options: Sequence[Option]) -> Option:
        return options[int(self.source.random() * len(options))]


async def play(seed: int) -> None:
    dice = Dice(seed)
    async with a_scaling_run() as run:
        await run.admin.delete(NODES, N1)
        await run.admin.delete(PODS, f"scale-{REQUEST}", namespace=DEFAULT_NAMESPACE)
        for name in ("n1-0", "n1-1"):
            await run.admin.delete(GPU_DEVICES, name)
        history = History(run, dice)
        await history.restart()
        actions = dice.source.choices(list(ACTIONS), list(ACTIONS.values()), k=STEPS)
        for action in ["node_comes", "pod_comes", *actions]:
            await getattr(history, action)()
            await history.no_unit_is_given_twice()
        await history.becomes_idle()


@pytest.mark.parametrize("seed", range(12))
async def test_nothing_is_given_twice_and_nothing_is_left_behind(seed: int):
    """Weak points 7, 12, 13: over 12 histories, each with faults and ends of processes."""
    await play(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 300))
async def test_nothing_is_given_twice_in_many_more_histories(seed: int):
    await play(seed)
