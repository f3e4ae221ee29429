"""FGD's fragmentation, against its definition written out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.placement.fragmentation.expected_loss import ExpectedLoss
from pool.placement.fragmentation.target_workload import TargetShape, TargetWorkload

SHAPES = st.builds(
    lambda cpu, size, models: TargetShape(cpu, size[0], size[1], models),
    st.integers(0, 12).map(lambda cores: cores * 1000),
    st.sampled_from([(0, 0), (100, 1), (460, 1), (810, 1), (1000, 1), (1000, 2), (1000, 4)]),
    st.sampled_from([(), ("a",), ("a", "b"), ("b",)]),
)


def loss_by_definition(shape: TargetShape, model: str, cpu: int, left: list[int]) -> int:
    idle = sum(left)
    is_served = (
        shape.devices > 0
        and shape.takes(model)
        and cpu >= shape.cpu_milli
        and len([remaining for remaining in left if remaining >= shape.milli]) >= shape.devices
    )
    return sum(remaining for remaining in left if remaining < shape.milli) if is_served else idle


@given(
    st.lists(SHAPES, min_size=1, max_size=30),
    st.sampled_from(["a", "b", "c"]),
    st.integers(0, 13_000),
    st.lists(st.integers(0, 100).map(lambda part: part * 10), max_size=8),
)
def test_loss_is_the_expected_milli_that_the_next_pod_cannot_use(shapes, model, cpu, remaining):
    target = TargetWorkload.of(shapes)
    want = sum(
        p * loss_by_definition(shape, model, cpu, remaining) for shape, p in target.frequent(0.95)
    )
    losses = ExpectedLoss(target)
    assert losses.of(model, cpu, remaining) == pytest.approx(want)
    assert losses.of(model, cpu, remaining[::-1]) == losses.of(model, cpu, remaining)


def test_a_node_that_pods_without_devices_cannot_use_is_lost_to_them() -> None:
    target = TargetWorkload.of([TargetShape(1000, 0, 0), TargetShape(1000, 500, 1)])
    assert ExpectedLoss(target).of("a", 8000, [1000, 400]) == pytest.approx(0.5 * 1400 + 0.5 * 400)


def test_target_shapes_are_the_most_frequent_ones_in_the_published_order() -> None:
    rare = TargetShape(1, 10, 1)
    small, large = TargetShape(2, 20, 1), TargetShape(3, 20, 1)
    target = TargetWorkload.of([rare, *[small] * 10, *[large] * 10])
    assert target.frequent(0.95) == [(large, 0.5), (small, 0.5)]
    assert [shape for shape, _ in target.frequent(1.0)] == [large, small, rare]
    assert list(TargetWorkload().frequent(0.95)) == []
