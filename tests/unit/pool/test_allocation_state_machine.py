"""The allocation state against a naive model that computes everything again, driven and shrunk by hypothesis.

`--long` looks longer; `test_many_steps` goes much further with a plain generator.
"""

from collections.abc import Sequence
from typing import TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.support.histories import ACTIONS
from tests.support.sets_of_devices import SetsOfDevices
from tests.support.small_cluster import SmallCluster

Option = TypeVar("Option")


class Drawing:
    """Picks what hypothesis draws."""

    def __init__(self, data: st.DataObject) -> None:
        self._data = data

    def __call__(self, options: Sequence[Option]) -> Option:
        return self._data.draw(st.sampled_from(options))


class AllocationStateMachine(RuleBasedStateMachine):
    cluster: SmallCluster

    @initialize(data=st.data())
    def a_small_cluster(self, data: st.DataObject) -> None:
        drawing = Drawing(data)
        self.cluster = drawing((SmallCluster, SetsOfDevices))(drawing)

    @invariant()
    def allocation_state_and_model_agree(self) -> None:
        self.cluster.holds()
        self.cluster.agrees()

    def teardown(self) -> None:
        if hasattr(self, "cluster"):
            self.cluster.ends()


def _taking(action: str) -> None:
    @rule(data=st.data())
    def step(self: AllocationStateMachine, data: st.DataObject) -> None:
        getattr(self.cluster, action)(Drawing(data))

    step.__name__ = action
    setattr(AllocationStateMachine, action, step)


for name in ACTIONS:
    _taking(name)

TestAllocationState = AllocationStateMachine.TestCase
PROFILE = settings()
TestAllocationState.settings = settings(max_examples=PROFILE.max_examples, stateful_step_count=50)
