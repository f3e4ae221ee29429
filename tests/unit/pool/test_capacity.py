"""What a pool has: total = reserved + used + available + unhealthy, always."""

from typing import TYPE_CHECKING

from api.kinds.gpupool import AllocationMode
from api.names import PoolName
from pool.model import Capacity
from tests.support.allocation_state import (
    a_bound_pod,
    a_reserved_pod,
    some_allocation_state,
    some_devices,
    uid_of,
)
from tests.support.builders import a_device, a_node, a_pod_facts, a_pool, a_slice_pool, at

if TYPE_CHECKING:
    from pool.allocation_state import AllocationState


def capacity(allocation_state: "AllocationState", pool: str = "whole") -> Capacity:
    figures = allocation_state.index.state(PoolName(pool)).capacity()
    assert figures.total == (
        figures.reserved + figures.used + figures.available + figures.unhealthy
    )
    return figures


def test_free_devices_are_available() -> None:
    allocation_state = some_allocation_state(devices=[*some_devices(2), *some_devices(1, "n2")])
    assert capacity(allocation_state) == Capacity(total=3, available=3)


def test_reserved_units_are_reserved() -> None:
    allocation_state = some_allocation_state(devices=some_devices(3))
    a_reserved_pod(allocation_state, units=2)
    assert capacity(allocation_state) == Capacity(total=3, reserved=2, available=1)


def test_units_of_bound_pods_are_used() -> None:
    allocation_state = some_allocation_state(devices=some_devices(3))
    allocation_state.observe_pod(a_bound_pod("b", "GPU-n1-0", "GPU-n1-1"), at(0))
    assert capacity(allocation_state) == Capacity(total=3, used=2, available=1)


def test_units_of_ended_pods_are_available_again() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    allocation_state.observe_pod(a_bound_pod("b", "GPU-n1-0"), at(0))
    allocation_state.discard_pod(uid_of("b"))
    assert capacity(allocation_state) == Capacity(total=1, available=1)


def test_a_faulted_device_is_unhealthy() -> None:
    allocation_state = some_allocation_state(
        devices=[a_device(), a_device(index=1, is_faulted=True)]
    )
    assert capacity(allocation_state) == Capacity(total=2, available=1, unhealthy=1)


def test_a_faulted_device_in_use_stays_used() -> None:
    allocation_state = some_allocation_state(devices=[a_device(is_faulted=True)])
    allocation_state.observe_pod(a_bound_pod("b", "GPU-n1-0"), at(0))
    assert capacity(allocation_state) == Capacity(total=1, used=1)


def test_devices_of_a_node_that_takes_no_pods_are_not_available() -> None:
    nodes = (a_node("n1", is_cordoned=True), a_node("n2", is_ready=False))
    allocation_state = some_allocation_state(
        devices=[*some_devices(1), *some_devices(2, "n2"), *some_devices(3, "ghost")], nodes=nodes
    )
    assert capacity(allocation_state) == Capacity(total=6, unhealthy=6)


def test_an_unaccounted_pod_makes_the_rest_of_its_node_unavailable() -> None:
    allocation_state = some_allocation_state(devices=[*some_devices(4), *some_devices(1, "n2")])
    allocation_state.observe_pod(a_bound_pod("stranger"), at(0))
    assert capacity(allocation_state) == Capacity(total=5, used=1, available=1, unhealthy=3)


def test_an_unaccounted_pod_that_is_larger_than_what_is_free_adds_no_units() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    a_reserved_pod(allocation_state)
    allocation_state.observe_pod(a_bound_pod("stranger", units=3), at(0))
    assert capacity(allocation_state) == Capacity(total=2, reserved=1, used=1)


def test_a_device_without_uuid_has_no_units_yet() -> None:
    allocation_state = some_allocation_state(devices=[a_device(uuid="")])
    assert capacity(allocation_state) == Capacity()
    allocation_state.index.replace_device(a_device())
    assert capacity(allocation_state) == Capacity(total=1, available=1)


def test_a_mig_pool_counts_the_instances_of_each_device() -> None:
    """Lesson 5: node-wide counts on every device multiplied the capacity."""
    pool = a_pool("mig", mode=AllocationMode.MIG, mig_profile="1g.10gb")
    some_devices = [
        a_device(
            index=n, pool="mig", mig_instances=tuple(("1g.10gb", f"M{n}{i}") for i in range(k))
        )
        for n, k in enumerate((7, 2, 0))
    ]
    allocation_state = some_allocation_state(pool, devices=some_devices)
    assert capacity(allocation_state, "mig") == Capacity(total=9, available=9)


def test_a_unit_reserved_and_already_in_use_is_counted_once() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    a_reserved_pod(allocation_state, "late")
    allocation_state.observe_pod(a_bound_pod("fast", "GPU-n1-0"), at(0))
    assert capacity(allocation_state) == Capacity(total=1, used=1)


def test_slices_add_up() -> None:
    allocation_state = some_allocation_state(
        a_slice_pool(slices=4), devices=some_devices(2, pool="slices")
    )
    a_reserved_pod(allocation_state, units=3, pool="slices")
    allocation_state.observe_pod(a_bound_pod("b", "GPU-n1-0::3", pool="slices"), at(0))
    assert capacity(allocation_state, "slices") == Capacity(
        total=8, reserved=3, used=1, available=4
    )


def test_an_unknown_pool_has_nothing() -> None:
    assert capacity(some_allocation_state(), "ghost") == Capacity()


def test_a_pending_pod_takes_nothing_by_itself() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    allocation_state.observe_pod(a_pod_facts(), at(0))
    assert capacity(allocation_state) == Capacity(total=1, available=1)
