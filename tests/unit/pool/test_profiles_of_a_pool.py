"""A pool with several MIG profiles: pods of each see its units alone, and the pool has them all."""

from typing import Any

import msgspec
import pytest

from api.kinds.gpupool import GPUPool
from api.names import NodeName, PoolName
from pool.allocation_state import AllocationState
from pool.facts import pool_facts
from pool.fitting_pods import fitting_pods
from pool.model import DeviceFacts, PodSelection, PoolFacts
from pool.placement.planner import Placed
from pool.what_if.explain import explain
from pool.what_if.question import WaitQuestion
from tests.support.allocation_state import (
    a_bound_pod,
    a_reserved_pod,
    commit_to,
    plan_reservation,
    pool_of,
    reserve,
    some_allocation_state,
)
from tests.support.builders import a_demand, a_device, a_pod_facts, at
from tests.support.nvml.library import H100_PROFILES

N1 = NodeName("n1")
MIXED, LARGE, SMALL = map(PoolName, ("mixed", "mixed.3g.40gb", "mixed.1g.10gb"))
CAPACITIES = tuple((profile.name, profile.capacity) for profile in H100_PROFILES)
INSTANCES = (("3g.40gb", "MIG-L"), *(("1g.10gb", f"MIG-{number}") for number in range(4)))


def a_mixed_pool(**changes: Any) -> PoolFacts:
    mig = [{"profile": "3g.40gb", "count": 1}, {"profile": "1g.10gb"}]
    allocation = {"mode": "MIG", "mig": mig}
    pool = {"metadata": {"name": "mixed"}, "spec": {"allocation": allocation, **changes}}
    return pool_facts(msgspec.convert(pool, GPUPool))


def a_mixed_device(number: int = 0, **changes: Any) -> DeviceFacts:
    instances = tuple((profile, f"{uuid}-{number}") for profile, uuid in INSTANCES)
    given = {"mig_instances": instances, "mig_capacities": CAPACITIES, **changes}
    return a_device("n1", number, "mixed", is_partitioned=True, **given)


def a_state(*devices: DeviceFacts) -> AllocationState:
    return some_allocation_state(a_mixed_pool(), devices=devices or [a_mixed_device()])


def available(state: AllocationState) -> tuple[int, int, int]:
    """Return the free units of the pool, of its large profile and of its small one."""
    whole, large, small = (
        state.index.state(name).capacity().available for name in (MIXED, LARGE, SMALL)
    )
    return whole, large, small


def test_the_pool_has_the_units_of_all_its_profiles():
    state = a_state(a_mixed_device(0), a_mixed_device(1))
    assert available(state) == (10, 2, 8)
    assert state.index.state(MIXED).largest_free() == 8, "a pod has units of one profile"
    assert {pool.name for pool in state.index.pools()} == {LARGE, SMALL}
    assert state.index.pools_on(N1) == {MIXED}


def test_a_profile_is_served_under_its_own_resource():
    index = a_state().index
    served = {
        resource: pool.name if (pool := index.pool_of(f"gpu.deckhouse.io/{resource}")) else None
        for resource in ("mixed", "mixed.3g.40gb", "mixed.1g.10gb")
    }
    assert served == {"mixed": None, "mixed.3g.40gb": LARGE, "mixed.1g.10gb": SMALL}


def test_a_pod_gets_units_of_its_profile_and_takes_none_of_others():
    state = a_state()
    large = plan_reservation(state, a_demand(1, pool=LARGE))
    assert isinstance(large, Placed)
    assert large.devices == {"c0": ("MIG-L-0",)}
    reserve(state, a_demand(1, pool=LARGE), id_="large")
    assert not isinstance(plan_reservation(state, a_demand(1, pool=LARGE)), Placed)
    small = plan_reservation(state, a_demand(4, pool=SMALL))
    assert isinstance(small, Placed)
    assert sorted(small.devices["c0"]) == [f"MIG-{number}-0" for number in range(4)]
    assert not isinstance(plan_reservation(state, a_demand(5, pool=SMALL)), Placed)


def test_a_bound_pod_has_its_unit_and_the_others_stay_free():
    state = a_state()
    pod = a_bound_pod("b", "MIG-2-0", pool=SMALL)
    state.observe_pod(pod, at(0))
    assert available(state) == (4, 1, 3)
    node = state.index.state(SMALL).node(N1)
    assert node is not None
    assert (node.total, node.used, node.free) == (4, 1, 3)


def test_a_pod_from_before_the_partitioning_has_all_of_the_device():
    state = a_state()
    state.observe_pod(a_bound_pod("b", "GPU-n1-0", pool=MIXED), at(0))
    assert available(state) == (0, 0, 0)


def test_a_pod_with_unknown_devices_closes_the_node_for_its_profile():
    state = a_state()
    state.observe_pod(a_bound_pod("b", pool=SMALL), at(0))
    assert state.index.view(SMALL, a_demand(1, pool=SMALL)).scores == {}
    assert N1 in state.index.view(LARGE, a_demand(1, pool=LARGE)).scores


@pytest.mark.parametrize(
    ("instances", "missing"),
    [
        pytest.param(INSTANCES[:-1], 1, id="one is missing"),
        pytest.param((*INSTANCES, ("2g.20gb", "MIG-F")), 0, id="a foreign one"),
        pytest.param((*INSTANCES, ("1g.10gb", "MIG-F")), 0, id="one too many"),
        pytest.param(INSTANCES[1:], 1, id="a profile is missing"),
        pytest.param((), 5, id="none yet"),
    ],
)
def test_a_device_with_other_instances_is_withheld_from_every_profile(instances, missing):
    state = a_state(a_mixed_device(mig_instances=instances))
    assert available(state) == (0, 0, 0)
    assert state.index.state(MIXED).differing == {"n1-0": missing}


def test_a_device_that_cannot_hold_the_layout_has_no_units():
    state = a_state(a_mixed_device(mig_capacities=(("1g.6gb", 4), ("4g.24gb", 1))))
    assert state.index.state(MIXED).capacity().total == 0


def test_a_change_of_the_pool_closes_every_profile_and_its_end_takes_them_away():
    state = a_state()
    other = {"mode": "MIG", "migProfile": "1g.10gb"}
    pool = {
        "metadata": {"name": "mixed"},
        "spec": {"allocation": other},
        "status": {
            "allocation": {
                "mode": "MIG",
                "mig": [{"profile": "3g.40gb", "count": 1}, {"profile": "1g.10gb"}],
            }
        },
    }
    state.index.replace_pool(pool_facts(msgspec.convert(pool, GPUPool)))
    assert available(state) == (0, 0, 0)
    pool["status"] = {"allocation": other}
    state.index.replace_pool(pool_facts(msgspec.convert(pool, GPUPool)))
    assert state.index.pool(SMALL) is None
    serving = state.index.pool_of("gpu.deckhouse.io/mixed")
    assert serving is not None
    assert serving.name == MIXED
    state.index.discard_pool(MIXED)
    assert state.index.pools() == []


def test_reservations_of_a_pool_are_released_in_every_profile():
    state = a_state()
    reserve(state, a_demand(1, pool=LARGE), id_="large")
    reserve(state, a_demand(2, pool=SMALL), id_="small")
    state.release_reservations(MIXED)
    assert available(state) == (5, 1, 4)


@pytest.mark.parametrize("is_restarted", [False, True], ids=["at once", "by the next leader"])
def test_a_reserved_pod_is_bound_to_a_unit_of_its_profile(is_restarted):
    state = a_state()
    pod = a_reserved_pod(state, "p", 2, pool=SMALL)
    if is_restarted:
        state = a_state()
        state.observe_pod(pod, at(0))
    assert pod.reservation is not None
    assert pod.reservation.pool == SMALL
    committed = commit_to(state, pod)
    assert committed.devices == pod.reservation.devices
    assert available(state) == (3, 1, 2)
    assert fitting_pods(state.index, MIXED) == {1: 3, 2: 1, 4: 0, 8: 0}


def test_a_pod_that_waits_is_told_of_its_own_profile():
    """Another one has room, and is no reason why it waits."""
    state = a_state()
    state.observe_pod(a_bound_pod("b", "MIG-L-0", pool=LARGE), at(0))
    state.observe_pod(a_bound_pod("small", "MIG-0-0", pool=SMALL), at(0))
    pod = a_pod_facts("p", 1, pool=LARGE, selection=PodSelection())
    state.observe_pod(pod, at(0))
    explanation = explain(state.reader, state.index, WaitQuestion(pod=pod, now=0.0))
    assert explanation.pool == LARGE
    assert explanation.capacity is not None
    assert (explanation.capacity.total, explanation.capacity.used) == (1, 1)
    (node,) = explanation.nodes
    assert [holder.name for holder in node.holders] == ["b"]
    evicted = state.reader.pods_of_pool(pool_of(state, LARGE), N1)
    assert [victim.name for victim in evicted] == ["b"], "another profile's pod frees no unit of it"
