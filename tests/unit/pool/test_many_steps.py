"""Index and ledger over very many steps, by seed: a quarter of a million with `--long`, a few thousand without.

`SEED=7 pytest --long tests/unit/pool/test_many_steps.py` plays one again.
"""

import os
import random
import time

import pytest

from tests.support.histories import ACTIONS, DisagreementError, Step, failure_of, play
from tests.support.sets_of_devices import SetsOfDevices
from tests.support.small_cluster import SmallCluster

FEW, MANY = 5_000, 250_000
"""A thousand steps of a cluster take 0.7 s of processor time, and with sets of devices 1.0 s."""
REPORT_EVERY = 50_000


@pytest.mark.parametrize("new_cluster", [SmallCluster, SetsOfDevices])
def test_allocation_state_and_model_agree_over_many_steps(
    new_cluster: type[SmallCluster], is_long: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("SEED") or (random.randrange(2**32) if is_long else 1))
    steps, began = (MANY if is_long else FEW), time.process_time()
    for taken in play(seed, steps, new_cluster):
        if is_long and taken % REPORT_EVERY == 0:
            with capfd.disabled():
                spent = time.process_time() - began
                print(f"seed {seed}: {taken:,} of {steps:,} steps agree ({spent:.0f} s of CPU)")
    assert taken == steps


def test_every_action_of_the_small_cluster_is_taken() -> None:
    takes_pick = {
        name
        for name, item in vars(SmallCluster).items()
        if callable(item)
        and item.__code__.co_varnames[: item.__code__.co_argcount] == ("self", "pick")
    }
    assert takes_pick - {"a_pool_spec", "__init__"} == ACTIONS.keys()


class ForgetsToReport(SmallCluster):
    """A cluster whose allocation state is not updated when a node is cordoned or leaves."""

    def set_node(self, name: str, state: tuple[bool, str]) -> None:
        if name in self.model.nodes:
            self.model.nodes[name] = {"ready": state[0], "closed": state[1]}
        else:
            super().set_node(name, state)


def test_a_disagreement_is_cut_to_the_steps_that_show_it() -> None:
    with pytest.raises(DisagreementError) as failed:
        list(play(1, 20_000, ForgetsToReport))
    report = str(failed.value)
    assert report.startswith("seed 1, episode ")
    current = [report.count(f'Step("{action}"') for action in ("start", "node", "leave")]
    assert report.count("Step(") == 2
    assert current in ([1, 1, 0], [1, 0, 1])


def test_a_history_that_fails_nowhere_has_no_failure() -> None:
    history = [Step("start", ()), *(Step(action, (1, 0, 2)) for action in ACTIONS)]
    assert failure_of(history) is None
