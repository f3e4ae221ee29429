"""Who has units of a pool, in whatever cut they were given."""

from api.kinds.gpupool import AllocationMode
from api.names import NodeName, PoolName
from inventory.pools.maintenance import PoolUsage
from pool.allocation_state import AllocationState
from pool.model import PodPhase
from reconciler.pool.usage import usage_of
from tests.support.allocation_state import (
    a_bound_pod,
    a_reserved_pod,
    commit_to,
    some_allocation_state,
    some_devices,
    unit_ids,
)
from tests.support.builders import a_pod_facts, a_pool, at

WHOLE = PoolName("whole")


def usage_in(allocation_state: AllocationState) -> PoolUsage:
    return usage_of(allocation_state.reader, allocation_state.index, WHOLE)


def named(usage: PoolUsage) -> list[tuple[str, int]]:
    return [(pod.ref, pod.units) for pod in usage.pods]


def test_a_pool_without_pods_is_empty():
    usage = usage_in(some_allocation_state(devices=some_devices(2)))
    assert usage.is_empty
    assert (usage.devices, usage.partitioned_devices) == (2, 2)


def test_bound_pods_have_units_and_reservations_and_commitments_are_reserved():
    allocation_state = some_allocation_state(devices=some_devices(4))
    allocation_state.observe_pod(a_bound_pod("b", "GPU-n1-0", "GPU-n1-1"), at(0))
    a_reserved_pod(allocation_state)
    commit_to(allocation_state, a_pod_facts("c"))
    usage = usage_in(allocation_state)
    assert named(usage) == [("default/b", 2)]
    assert usage.reserved == 2
    assert not usage.is_empty


def test_a_pod_of_which_nobody_knows_the_devices_is_in_the_way():
    allocation_state = some_allocation_state(devices=some_devices(2))
    allocation_state.observe_pod(a_bound_pod("stranger"), at(0))
    assert named(usage_in(allocation_state)) == [("default/stranger", 1)]


def test_a_pod_that_was_given_a_device_in_another_cut_has_it():
    allocation_state = some_allocation_state(devices=some_devices(1))
    allocation_state.observe_pod(a_bound_pod("b", "GPU-n1-0"), at(0))
    allocation_state.index.replace_pool(a_pool(mode=AllocationMode.MIG, mig_profile="1g.10gb"))
    usage = usage_in(allocation_state)
    assert named(usage) == [("default/b", 1)]
    assert (usage.devices, usage.partitioned_devices) == (1, 0)


def test_ended_pods_and_claims_of_nobody_are_not_in_the_way():
    allocation_state = some_allocation_state(devices=some_devices(2))
    allocation_state.observe_pod(a_bound_pod("b", "GPU-n1-0"), at(0))
    allocation_state.observe_pod(a_bound_pod("b", "GPU-n1-0", phase=PodPhase.ENDED), at(1))
    allocation_state.index.set_observed(a_pod_facts("unknown").uid, unit_ids("GPU-n1-1"))
    assert usage_in(allocation_state).is_empty


def test_a_pool_whose_object_is_gone_is_asked_about_all_the_same():
    allocation_state = some_allocation_state(devices=some_devices(1))
    allocation_state.observe_pod(a_bound_pod("b", "GPU-n1-0"), at(0))
    allocation_state.index.discard_pool(WHOLE)
    assert NodeName("n1") in allocation_state.index.state(WHOLE).devices_by_node
    assert named(usage_in(allocation_state)) == [("default/b", 1)]
