"""States: their order, and what they need."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operands.errors import StateOrderError
from operands.nvidia.policy_states import BUILT_IN_STATES
from operands.operand_state import OperandState, in_order

NAMES = [f"state-{number}" for number in range(8)]


def a_state(name: str, *needs: str) -> OperandState[None]:
    return OperandState(name=name, needs=needs, why_off=lambda _: "", build=lambda _: [])


@st.composite
def acyclic(draw):
    """States that need some of those before them, in any order."""
    states = [
        a_state(name, *draw(st.lists(st.sampled_from(NAMES[:place]), unique=True)))
        if place
        else a_state(name)
        for place, name in enumerate(NAMES)
    ]
    return draw(st.permutations(states))


@given(acyclic())
def test_every_state_comes_after_those_that_it_needs(states: list[OperandState[None]]):
    order = in_order(states)
    assert sorted(item.name for item in order) == NAMES
    seen: set[str] = set()
    for state in order:
        assert set(state.needs) <= seen
        seen.add(state.name)


@given(acyclic())
def test_a_legal_order_stays_as_it_is(states: list[OperandState[None]]):
    order = in_order(states)
    assert in_order(order) == order


@given(acyclic(), st.sampled_from(NAMES))
def test_states_that_need_each_other_have_no_order(states, closing: str):
    """The last state of a chain of needs, needed by its first, closes a circle."""
    by_name = {state.name: state for state in states}
    by_name["first"] = a_state("first", closing)
    by_name[closing] = a_state(closing, *by_name[closing].needs, "first")
    with pytest.raises(StateOrderError, match="need each other"):
        in_order(by_name.values())


def test_an_unknown_need_is_named():
    with pytest.raises(StateOrderError, match="state gfd needs toolkit: no such state"):
        in_order([a_state("gfd", "toolkit")])


def test_two_states_of_one_name_are_refused():
    with pytest.raises(StateOrderError, match="two states are called gfd"):
        in_order([a_state("gfd"), a_state("gfd")])


def test_the_order_of_the_operands_follows_from_their_needs():
    names = [state.name for state in BUILT_IN_STATES]
    chain = ["validator", "gpu-feature-discovery", "state-dcgm", "state-dcgm-exporter"]
    assert [name for name in names if name in chain] == chain
