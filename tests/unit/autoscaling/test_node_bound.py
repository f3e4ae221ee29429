"""The bound by which random days judge nodes: it never counts a node as too many that pods need."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.naive_scaling_planner import all_fit
from tests.support.node_bound import may_fit, surplus

SIZES = st.lists(st.integers(1, 8), max_size=5)


@given(pods=SIZES, nodes=st.lists(st.sampled_from([1, 2, 3, 4, 8]), max_size=4))
def test_pods_that_fit_are_never_said_not_to(pods: list[int], nodes: list[int]):
    if all_fit([(units, 0) for units in pods], [(units, 0) for units in nodes]):
        assert may_fit(pods, nodes)


@pytest.mark.parametrize(
    ("pods", "new", "others", "expected"),
    [
        pytest.param([1] * 8, [8], [], 0, id="one node, full"),
        pytest.param([1] * 8, [8, 8], [], 1, id="two nodes for one's pods"),
        pytest.param([1] * 9, [8, 8], [], 0, id="one pod more"),
        pytest.param([5, 5], [8, 8], [], 0, id="pods of more than half a node"),
        pytest.param([3, 5, 3, 5], [8, 8, 8], [], 1, id="pairs fill a node"),
        pytest.param([1] * 4, [8], [8], 1, id="a node on its way has room"),
        pytest.param([8], [8], [4, 4], 0, id="free units on two nodes are none for one pod"),
        pytest.param([8, 3], [8, 4], [], 0, id="one of each shape"),
        pytest.param([3, 3], [4, 4], [], 0, id="small nodes"),
        pytest.param([], [8, 4], [], 2, id="nobody waits"),
    ],
)
def test_surplus(pods: list[int], new: list[int], others: list[int], expected: int):
    assert surplus(pods, new, others) == expected
