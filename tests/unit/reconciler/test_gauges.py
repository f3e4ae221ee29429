"""Gauges say what the allocation state says, by pool, and are gone with the pool or the leadership."""

import datetime as dt
from collections.abc import Iterator

import pytest

from api.kinds.gpupool import GPUPool, GPUPoolSpec, PoolResource
from api.meta import ObjectMeta
from api.names import PodUid, PoolName, UnitId
from pool.allocation_state import AllocationState
from pool.catalog import Catalog
from pool.model import Capacity
from reconciler.pool import gauges
from reconciler.pool.fragmentation_gauges import FragmentationGauges
from telemetry.metrics import REGISTRY
from tests.support.allocation_state import (
    a_bound_pod,
    a_reserved_pod,
    commit_to,
    reserve,
    some_allocation_state,
    some_devices,
)
from tests.support.builders import EPOCH, a_demand, a_device, a_node, a_pod_facts, a_slice_pool, at

WHOLE = PoolName("whole")
PHASES = {"held": 1, "tied": 0, "confirmed": 0, "committed": 1, "doubtful": 0, "bound": 0}


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    gauges.forget_all()


def a_catalog(*names: str) -> Catalog:
    catalog = Catalog()
    for name in names:
        catalog.pools[PoolName(name)] = GPUPool(metadata=ObjectMeta(name=name))
    return catalog


def show(
    allocation_state: AllocationState, seconds: float = 60, catalog: Catalog | None = None
) -> None:
    catalog = catalog or a_catalog("whole")
    index = allocation_state.index
    for _ in gauges.showing_sums(allocation_state.reader, catalog, at(seconds), index=index):
        pass


def gauge(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, labels)


def test_reservations_are_counted_by_phase() -> None:
    allocation_state = some_allocation_state(devices=some_devices(3))
    reserve(allocation_state, a_demand(1))
    pod = a_pod_facts("p")
    allocation_state.observe_pod(pod, at(0))
    commit_to(allocation_state, pod)
    show(allocation_state)
    assert {phase: gauge("gpu_reservations", phase=phase) for phase in PHASES} == PHASES


def a_fragmented_pool() -> AllocationState:
    """Of two nodes with a device each, and pods that asked for one or two devices."""
    devices = [a_device("n1"), a_device("n2")]
    allocation_state = some_allocation_state(devices=devices)
    for number, units in enumerate((1, 2, 2, 2)):
        pod = a_pod_facts(f"p{number}", units, created="2026-01-01T00:00:00Z")
        allocation_state.observe_pod(pod, at(0))
    return allocation_state


def show_useful(allocation_state: AllocationState) -> None:
    for _ in FragmentationGauges(allocation_state.index).showing(a_catalog("whole")):
        pass


def test_devices_that_recent_pods_could_not_use_are_fragments() -> None:
    allocation_state = a_fragmented_pool()
    show_useful(allocation_state)
    assert gauge("gpupool_fragmentation", pool="whole") == pytest.approx(3 / 4)
    allocation_state.index.replace_device(a_device("n1", 1))
    show_useful(allocation_state)
    assert gauge("gpupool_fragmentation", pool="whole") == pytest.approx(3 / 4 / 3)


def placeable(topology: str) -> dict[int, float | None]:
    labels = {"pool": "whole", "topology": topology}
    return {
        size: gauge("gpupool_placeable_pods", devices=str(size), **labels) for size in (1, 2, 4, 8)
    }


def test_pods_of_each_size_that_still_fit_are_shown_by_topology() -> None:
    """Three devices of one NUMA node and one of the other are idle."""
    devices = [a_device("n1", number, numa_node=number // 4) for number in range(8)]
    allocation_state = some_allocation_state(devices=devices)
    taken = tuple(UnitId(f"GPU-n1-{number}") for number in (0, 5, 6, 7))
    allocation_state.index.set_observed(PodUid("p"), taken)
    show_useful(allocation_state)
    assert placeable("any") == {1: 4, 2: 2, 4: 1, 8: 0}
    assert placeable("aligned") == {1: 4, 2: 1, 4: 0, 8: 0}
    assert gauge("gpupool_largest_demand", pool="whole", topology="any") == 4
    assert gauge("gpupool_largest_demand", pool="whole", topology="aligned") == 3


def test_pods_that_fit_are_counted_in_units_of_the_pool() -> None:
    """Two devices of four slices each: a pod of eight gets some slices of both."""
    devices = [a_device("n1", 0, pool="small"), a_device("n1", 1, pool="small")]
    allocation_state = some_allocation_state(a_slice_pool("small", 4), devices=devices)
    for _ in FragmentationGauges(allocation_state.index).showing(a_catalog("small")):
        pass
    found = {
        size: gauge("gpupool_fitting_pods", pool="small", units=str(size)) for size in (1, 2, 4, 8)
    }
    assert found == {1: 8, 2: 4, 4: 2, 8: 1}


def test_a_pool_without_free_devices_or_demand_has_no_fragments() -> None:
    show_useful(some_allocation_state(devices=some_devices(3)))
    assert gauge("gpupool_fragmentation", pool="whole") == 0
    allocation_state = a_fragmented_pool()
    for node in ("n1", "n2"):
        allocation_state.index.replace_node(a_node(node, is_cordoned=True))
    show_useful(allocation_state)
    assert gauge("gpupool_fragmentation", pool="whole") == 0


def test_units_of_a_pool_are_shown_though_its_status_is_not_written_yet() -> None:
    allocation_state = some_allocation_state(devices=some_devices(3))
    a_reserved_pod(allocation_state)
    show(allocation_state)
    names = ("capacity_total", "capacity_reserved", "capacity_available", "largest_free")
    figures = [gauge(f"gpupool_{name}", pool="whole") for name in names]
    assert figures == [3, 1, 2, 2]


def created(seconds: int) -> str:
    return (EPOCH + dt.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_waiting_pods_are_counted_and_the_oldest_is_timed() -> None:
    allocation_state = some_allocation_state()
    for name, seconds in (("a", 30), ("b", 10)):
        allocation_state.observe_pod(a_pod_facts(name, created=created(seconds)), at(30))
    show(allocation_state)
    assert gauge("gpu_pods_waiting", pool="whole") == 2
    assert gauge("gpu_pods_longest_wait_seconds", pool="whole") == 50


@pytest.mark.parametrize("text", ["", "yesterday", "2026-01-01T00:00:00", created(3600)])
def test_a_pod_whose_age_cannot_be_told_has_waited_for_no_time(text: str) -> None:
    allocation_state = some_allocation_state()
    allocation_state.observe_pod(a_pod_facts(created=text), at(0))
    show(allocation_state)
    assert gauge("gpu_pods_waiting", pool="whole") == 1
    assert gauge("gpu_pods_longest_wait_seconds", pool="whole") == 0


def test_pods_wait_for_the_pool_that_serves_their_resource() -> None:
    allocation_state = some_allocation_state()
    allocation_state.observe_pod(a_pod_facts(), at(0))
    catalog = a_catalog("whole")
    resource = PoolResource(name="gpu.deckhouse.io/whole")
    other = GPUPool(metadata=ObjectMeta(name="zz"), spec=GPUPoolSpec(resource=resource))
    catalog.pools[PoolName("zz")] = other
    show(allocation_state, catalog=catalog)
    assert gauge("gpu_pods_waiting", pool="whole") == 1
    assert gauge("gpu_pods_waiting", pool="zz") == 0


def test_what_was_bound_around_us_is_counted() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    for name, units in (("a", ["GPU-n1-0"]), ("b", ["GPU-n1-0"]), ("c", [])):
        allocation_state.observe_pod(a_bound_pod(name, *units), at(0))
    show(allocation_state)
    assert (gauge("gpu_units_held_twice"), gauge("gpu_pods_unaccounted")) == (1, 1)


def test_a_pool_that_is_gone_leaves_no_gauge() -> None:
    show(some_allocation_state())
    gauges.show_capacity(WHOLE, Capacity(), largest_free=0, missing=0)
    gauges.show_assignments(WHOLE, 0)
    gauges.forget_pool(WHOLE)
    samples = [sample for family in REGISTRY.collect() for sample in family.samples]
    assert [sample.name for sample in samples if sample.labels.get("pool") == "whole"] == []


def test_who_does_not_lead_shows_nothing() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    allocation_state.observe_pod(a_bound_pod("c"), at(0))
    show(allocation_state)
    gauges.forget_all()
    assert gauge("gpu_pods_unaccounted") == 0
    assert gauge("gpu_pods_waiting", pool="whole") is None
    assert gauge("gpu_reservations", phase="held") is None
