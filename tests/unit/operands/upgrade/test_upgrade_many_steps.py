"""Driver upgrades over very many steps, by seed: a million with `--long`, a few thousand without.

`SEED=7 pytest --long tests/unit/operands/upgrade/test_upgrade_many_steps.py` plays one again. Clusters have 1 to 200 nodes,
which die and return; pods come back, budgets refuse, clocks jump, and a leader is killed between any two writes. After every
pass the answers equal those of the naive model; no promise of `tests.support.upgrade_world` is broken; and each episode ends
with everything done that can be.
"""

import inspect
import os
import random
import time

import pytest

from tests.support.histories import play
from tests.support.upgrade_histories import ACTIONS, UpgradeHistory

FEW, MANY = 4_000, 1_000_000
REPORT_EVERY = 50_000


def test_machine_and_model_agree_over_many_steps(is_long: bool, capfd: pytest.CaptureFixture[str]):
    seed = int(os.environ.get("SEED") or (random.randrange(2**32) if is_long else 1))
    steps, began = (MANY if is_long else FEW), time.process_time()
    for taken in play(seed, steps, UpgradeHistory):
        if is_long and taken % REPORT_EVERY == 0:
            with capfd.disabled():
                spent = time.process_time() - began
                print(f"seed {seed}: {taken:,} of {steps:,} steps agree ({spent:.0f} s of CPU)")
    assert taken == steps


def test_every_action_of_the_history_is_taken():
    takes_pick = {
        name
        for name, item in vars(UpgradeHistory).items()
        if inspect.isfunction(item)
        and item.__code__.co_varnames[: item.__code__.co_argcount] == ("self", "pick")
    }
    assert {item for item in takes_pick if not item.startswith("_")} == ACTIONS.keys()


class ForgetsTheLimit(UpgradeHistory):
    """A history whose leader lets every waiting node start."""

    def planned(self):
        self.numbers, kept = self.numbers_without_limits(), self.numbers
        upgrade, expected = super().planned()
        self.numbers = kept
        self.starts_within_limits(upgrade)
        return upgrade, expected


def test_a_leader_that_lets_too_many_start_is_found_out():
    with pytest.raises(Exception, match="seed 3, episode"):
        list(play(3, 20_000, ForgetsTheLimit))
