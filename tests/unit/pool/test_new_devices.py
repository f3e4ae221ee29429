"""A device that came into a pool a moment ago: kubelet may not have its units yet."""

from dataclasses import replace

import pytest

from api.kinds.gpupool import Strategy
from api.names import PoolName
from pool.index.new_devices import NEW_FOR_S
from tests.support.allocation_state import commit_to, some_allocation_state, some_devices
from tests.support.builders import a_device, a_pod_facts, a_pool, at

AGED = 2 * NEW_FOR_S


def aged_allocation_state(*some_devices, strategy: Strategy = Strategy.BIN_PACK):
    allocation_state = some_allocation_state(
        a_pool(strategy=strategy), a_pool("other"), devices=some_devices
    )
    allocation_state.expire(at(AGED))
    return allocation_state


def given(allocation_state, name: str = "p") -> str:
    (unit,) = commit_to(allocation_state, a_pod_facts(name)).units
    return unit


@pytest.mark.parametrize("strategy", Strategy)
def test_units_that_kubelet_has_are_allocated_first(strategy: Strategy) -> None:
    allocation_state = aged_allocation_state(
        *some_devices(1, "n1", uuid="GPU-old", name="n1-9"), strategy=strategy
    )
    allocation_state.index.replace_device(a_device("n1", 0), is_event=True)
    assert [given(allocation_state, "p"), given(allocation_state, "q")] == ["GPU-old", "GPU-n1-0"]


def test_a_device_from_another_pool_is_new() -> None:
    moved = a_device("n1", 0, "other")
    allocation_state = aged_allocation_state(moved, a_device("n1", 1))
    allocation_state.index.replace_device(replace(moved, pool=PoolName("whole")), is_event=True)
    assert given(allocation_state) == "GPU-n1-1"


def test_a_device_of_which_something_else_changes_is_as_new_as_before() -> None:
    first, second = a_device("n1", 0), a_device("n1", 1)
    allocation_state = aged_allocation_state(first, second)
    allocation_state.index.replace_device(replace(first, is_faulted=True), is_event=True)
    allocation_state.index.replace_device(first, is_event=True)
    assert given(allocation_state) == "GPU-n1-0"


def test_a_new_device_is_like_any_other_after_a_while() -> None:
    allocation_state = aged_allocation_state(a_device("n1", 1))
    allocation_state.index.replace_device(a_device("n1", 0), is_event=True)
    allocation_state.expire(at(AGED + NEW_FOR_S))
    assert given(allocation_state) == "GPU-n1-0"


def test_a_new_device_that_goes_is_forgotten() -> None:
    allocation_state = aged_allocation_state(a_device("n1", 1))
    device = a_device("n1", 0)
    allocation_state.index.replace_device(device, is_event=True)
    allocation_state.index.discard_device(device.name)
    allocation_state.expire(at(AGED + NEW_FOR_S))
    assert (len(allocation_state.index._new), len(allocation_state.index._new._order)) == (0, 0)


def test_a_device_that_was_merely_listed_is_not_new() -> None:
    allocation_state = aged_allocation_state(a_device("n1", 1))
    allocation_state.index.replace_device(a_device("n1", 0))
    assert given(allocation_state) == "GPU-n1-0"


def test_very_many_new_devices_settle_bit_by_bit() -> None:
    allocation_state = aged_allocation_state()
    for number in range(1_500):
        allocation_state.index.replace_device(a_device("n1", number), is_event=True)
    left = []
    for _ in range(2):
        allocation_state.expire(at(AGED + NEW_FOR_S))
        left.append(len(allocation_state.index._new))
    assert left == [500, 0]
