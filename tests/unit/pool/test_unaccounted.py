"""Pods that run on units that nobody knows: their node fails closed."""

from typing import TYPE_CHECKING, Any

import pytest

from api.names import PoolName
from pool.model import PodPhase
from pool.reservations.reservation import End
from tests.support.allocation_state import (
    N1,
    a_bound_pod,
    a_reserved_pod,
    some_allocation_state,
    some_devices,
    uid_of,
    unit_ids,
)
from tests.support.builders import a_device, a_pod_facts, a_pool, at

if TYPE_CHECKING:
    from pool.allocation_state import AllocationState
    from pool.index.node_view import PoolNode
    from pool.model import PodFacts


def node(allocation_state: "AllocationState", pool: str = "whole") -> "PoolNode":
    summary = allocation_state.index.state(PoolName(pool)).node(N1)
    assert summary is not None
    return summary


@pytest.mark.parametrize(
    ("devices", "used", "unaccounted"),
    [
        pytest.param(None, 0, 2, id="no annotation, or one that cannot be read"),
        pytest.param({}, 0, 2, id="an empty annotation"),
        pytest.param({"c0": unit_ids("GPU-n1-0")}, 1, 1, id="fewer units than it asks for"),
        pytest.param({"c0": unit_ids("GPU-n1-0", "GPU-n1-0")}, 1, 1, id="one unit twice"),
        pytest.param({"c0": unit_ids("GPU-n1-0", "GPU-n1-1")}, 2, 0, id="all its units"),
        pytest.param(
            {"c0": unit_ids("GPU-n1-0", "GPU-n1-1", "GPU-n1-2")}, 3, 0, id="more than it asks for"
        ),
    ],
)
def test_units_that_a_bound_pod_does_not_name_are_unaccounted(
    devices: Any, used: int, unaccounted: int
) -> None:
    allocation_state = some_allocation_state(devices=some_devices(4))
    allocation_state.observe_pod(a_bound_pod(units=2, devices=devices), at(0))
    assert (node(allocation_state).used, node(allocation_state).unaccounted) == (used, unaccounted)
    assert node(allocation_state).available == (0 if unaccounted else 4 - used)


def test_an_unaccounted_pod_ends_its_own_reservation() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    a_reserved_pod(allocation_state)
    assert [item.end for item in allocation_state.observe_pod(a_bound_pod("p"), at(1))] == [
        End.BOUND
    ]
    assert (node(allocation_state).reserved, node(allocation_state).unaccounted) == (0, 1)


def test_a_pod_whose_units_become_known_is_accounted() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    allocation_state.observe_pod(a_bound_pod(), at(0))
    allocation_state.observe_pod(a_bound_pod("b", "GPU-n1-1"), at(1))
    assert (
        node(allocation_state).used,
        node(allocation_state).free,
        node(allocation_state).unaccounted,
    ) == (1, 1, 0)


def test_a_pod_that_lost_its_annotation_is_unaccounted() -> None:
    """The same as after a restart: what is not written down is not known."""
    allocation_state = some_allocation_state(devices=some_devices(2))
    allocation_state.observe_pod(a_bound_pod("b", "GPU-n1-1"), at(0))
    allocation_state.observe_pod(a_bound_pod("b"), at(1))
    assert (node(allocation_state).used, node(allocation_state).unaccounted) == (0, 1)


@pytest.mark.parametrize("end", ["deleted", "ended"])
def test_a_node_opens_again_when_the_unaccounted_pod_is_gone(end: str) -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    allocation_state.observe_pod(a_bound_pod(), at(0))
    if end == "deleted":
        allocation_state.discard_pod(uid_of("b"))
    else:
        allocation_state.observe_pod(a_bound_pod(phase=PodPhase.ENDED), at(1))
    assert node(allocation_state).available == 2


def test_a_node_opens_only_when_the_last_unaccounted_pod_is_gone() -> None:
    allocation_state = some_allocation_state(devices=some_devices(4))
    for name in ("b", "c"):
        allocation_state.observe_pod(a_bound_pod(name), at(0))
    allocation_state.discard_pod(uid_of("b"))
    assert node(allocation_state).available == 0
    allocation_state.discard_pod(uid_of("c"))
    assert node(allocation_state).available == 4


def test_another_pool_on_the_same_node_stays_open() -> None:
    allocation_state = some_allocation_state(
        a_pool(), a_pool("other"), devices=[a_device(), a_device(index=1, pool="other")]
    )
    allocation_state.observe_pod(a_bound_pod(), at(0))
    assert (node(allocation_state).available, node(allocation_state, "other").available) == (0, 1)


def test_a_device_that_comes_later_is_closed_too() -> None:
    allocation_state = some_allocation_state()
    allocation_state.observe_pod(a_bound_pod(), at(0))
    allocation_state.index.replace_device(a_device())
    assert node(allocation_state).available == 0


def test_a_pool_that_takes_over_the_resource_closes_too() -> None:
    allocation_state = some_allocation_state(
        a_pool("late", resource="gpu.deckhouse.io/x"), devices=some_devices(1, pool="late")
    )
    allocation_state.observe_pod(a_bound_pod(), at(0))
    assert node(allocation_state, "late").available == 1
    allocation_state.index.replace_pool(a_pool("late", resource=a_pool().resource))
    assert node(allocation_state, "late").available == 0


def test_an_unaccounted_pod_seen_again_changes_nothing() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    allocation_state.observe_pod(a_bound_pod(), at(0))
    generation = allocation_state.index.generation
    allocation_state.observe_pod(a_bound_pod(), at(1))
    assert allocation_state.index.generation == generation


def test_a_pending_pod_is_not_unaccounted() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    allocation_state.observe_pod(a_pod_facts(), at(0))
    assert node(allocation_state).available == 2


def a_pod_of_two_pools(**changes: Any) -> "PodFacts":
    asked = (("gpu.deckhouse.io/other", 1), ("gpu.deckhouse.io/whole", 2))
    return a_bound_pod(pool="other", inadmissible_units=asked, **changes)


def test_a_pod_bound_with_two_pools_closes_its_node_for_both() -> None:
    allocation_state = some_allocation_state(
        a_pool(), a_pool("other"), devices=[*some_devices(3), a_device(index=9, pool="other")]
    )
    allocation_state.observe_pod(a_pod_of_two_pools(), at(0))
    assert (node(allocation_state).unaccounted, node(allocation_state, "other").unaccounted) == (
        2,
        1,
    )
    assert (node(allocation_state).available, node(allocation_state, "other").available) == (0, 0)


@pytest.mark.parametrize("end", ["deleted", "ended"])
def test_the_end_of_a_pod_with_two_pools_opens_its_node_for_both(end: str) -> None:
    allocation_state = some_allocation_state(
        a_pool(), a_pool("other"), devices=[*some_devices(3), a_device(index=9, pool="other")]
    )
    allocation_state.observe_pod(a_pod_of_two_pools(), at(0))
    if end == "deleted":
        allocation_state.discard_pod(uid_of("b"))
    else:
        allocation_state.observe_pod(a_pod_of_two_pools(phase=PodPhase.ENDED), at(1))
    assert (node(allocation_state).available, node(allocation_state, "other").available) == (3, 1)
    assert len(allocation_state.index.unaccounted) == 0
