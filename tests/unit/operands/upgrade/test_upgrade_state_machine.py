"""The upgrade machine against a naive model that computes everything again, driven and shrunk by hypothesis.

`--long` looks longer; `test_upgrade_many_steps` goes much further with a plain generator.
"""

from collections.abc import Sequence
from typing import TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.support.upgrade_histories import ACTIONS, UpgradeHistory

Option = TypeVar("Option")


class Drawing:
    """Picks what hypothesis draws."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def __call__(self, options: Sequence[Option]) -> Option:
        return self._data.draw(st.sampled_from(options))


class UpgradeStateMachine(RuleBasedStateMachine):
    history: UpgradeHistory

    @initialize(data=st.data())
    def a_cluster(self, data: st.DataObject) -> None:
        self.history = UpgradeHistory(Drawing(data), is_small=True)

    @invariant()
    def machine_and_model_agree(self) -> None:
        self.history.holds()
        self.history.agrees()

    def teardown(self) -> None:
        if hasattr(self, "history"):
            self.history.ends()


def _taking(action: str) -> None:
    @rule(data=st.data())
    def step(self: UpgradeStateMachine, data: st.DataObject) -> None:
        getattr(self.history, action)(Drawing(data))

    step.__name__ = action
    setattr(UpgradeStateMachine, action, step)


for name in ACTIONS:
    _taking(name)

TestDriverUpgrades = UpgradeStateMachine.TestCase
PROFILE = settings()
TestDriverUpgrades.settings = settings(
    max_examples=min(PROFILE.max_examples, 1000), stateful_step_count=50
)
