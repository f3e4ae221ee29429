"""Nodes where more than the number of free units decides, what is known of nodes on their way, and very many pods."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.foreign.core import NodeSelectorTerm, Toleration
from api.kinds.gpunodeinventory import TopologyManagerPolicy, TopologyManagerScope
from api.kinds.gpupool import DeviceTopology, SlicePlacement
from api.meta import SelectorOperator, SelectorRequirement
from api.names import DeviceName, NodeName
from autoscaling.plan_attempt import MOST_KINDS, MOST_PODS
from autoscaling.scaling_model import ScalingPlan, WaitReason
from pool.allocation_state import AllocationState
from pool.compute_resources import ComputeResources
from pool.model import (
    Constraints,
    ContainerDemand,
    ContainerRole,
    Demand,
    KubeletTopology,
    PodFacts,
    PodPhase,
    PodSelection,
)
from pool.placement.planner import Placed
from tests.support.builders import (
    a_device,
    a_node,
    a_pod_facts,
    a_pool,
    a_slice_pool,
    at,
)
from tests.support.naive_scaling_planner import all_fit
from tests.support.scaling_plans import (
    a_shape,
    a_waiting_pod,
    add_node,
    an_index,
    launched,
    planned,
    ready,
    signalled,
    some_parameters,
)

ZONE = "topology.kubernetes.io/zone"
SAME_DEVICE = a_slice_pool(slices=4, slice_placement=SlicePlacement.SAME_DEVICE)


def sliced_node(state: AllocationState, name: str, used: list[int]) -> None:
    """Add a node with a device for each number, of which so many slices are used."""
    state.index.replace_node(a_node(name))
    for number, count in enumerate(used):
        state.index.replace_device(a_device(name, number, pool="slices"))
        if count:
            units = tuple(f"GPU-{name}-{number}::{slot}" for slot in range(count))
            pod = a_pod_facts(
                f"on-{name}-{number}",
                units=count,
                pool="slices",
                phase=PodPhase.BOUND,
                node=NodeName(name),
                devices={"c0": units},
            )
            state.observe_pod(pod, at(0))


def slices(*units: int) -> list[PodFacts]:
    return [
        a_waiting_pod(f"p{number:02}", units=count, pool="slices")
        for number, count in enumerate(units)
    ]


@given(
    st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=3), max_size=3),
    st.lists(st.integers(1, 4), min_size=1, max_size=5),
)
def test_slices_of_one_device_on_nodes_that_exist(nodes: list[list[int]], units: list[int]):
    state = AllocationState(an_index(SAME_DEVICE))
    for number, used in enumerate(nodes):
        sliced_node(state, f"n{number}", used)
    parameters = some_parameters(a_shape(units_per_device=4), pool=SAME_DEVICE)
    waiting = slices(*units)
    plan = planned(parameters, waiting, state.index)
    assert not plan.waits
    assigned = {uid for uids in plan.assigned.values() for uid in uids}
    here = [(pod.demand.units, 0) for pod in waiting if pod.uid not in assigned]
    assert all_fit(here, [(4 - count, 0) for used in nodes for count in used])
    if plan.requests:
        first = next(pod for pod in waiting if pod.uid in assigned)
        before = waiting[: waiting.index(first)]
        if not before:  # nothing was packed ahead of it: no node takes it
            found = state.reader.admission.plan(SAME_DEVICE, first.demand, Constraints())
            assert not isinstance(found, Placed)


def test_free_devices_of_two_numa_nodes_do_not_serve_a_pod_that_must_have_one():
    pool = a_pool(device_topology=DeviceTopology.REQUIRED)
    state = AllocationState(an_index(pool))
    state.index.replace_node(a_node("n1"))
    for number in range(4):
        state.index.replace_device(a_device("n1", number, numa_node=number // 2))
    plan = planned(some_parameters(pool=pool), [a_waiting_pod(units=3)], state.index)
    assert len(plan.requests) == 1
    assert not planned(some_parameters(pool=pool), [a_waiting_pod(units=2)], state.index).requests


def test_a_kubelet_that_would_reject_the_pod_has_no_room():
    state = AllocationState(an_index())
    state.index.replace_node(a_node("n1"))
    for number in range(4):
        state.index.replace_device(a_device("n1", number, numa_node=number // 2))
    policy = TopologyManagerPolicy.SINGLE_NUMA_NODE
    state.index.replace_kubelet(
        NodeName("n1"), KubeletTopology(policy, TopologyManagerScope.CONTAINER)
    )
    assert len(planned(some_parameters(), [a_waiting_pod(units=3)], state.index).requests) == 1
    assert not planned(some_parameters(), [a_waiting_pod(units=2)], state.index).requests


@pytest.mark.parametrize("pool", [a_pool(), a_pool(device_topology=DeviceTopology.REQUIRED)])
def test_devices_that_fail_or_leave_are_not_free(pool: Any):
    state = AllocationState(an_index(pool))
    state.index.replace_node(a_node("n1"))
    state.index.replace_device(a_device("n1", 0, numa_node=0, is_faulted=True))
    state.index.replace_device(a_device("n1", 1, numa_node=0))
    state.index.replace_device(a_device("n1", 2, numa_node=0))
    state.index.withhold(DeviceName("n1-2"))
    parameters = some_parameters(pool=pool)
    assert not planned(parameters, [a_waiting_pod(units=1)], state.index).requests
    assert len(planned(parameters, [a_waiting_pod(units=2)], state.index).requests) == 1


def test_the_devices_of_a_ready_node_decide_not_its_shape():
    parameters = some_parameters(a_shape("two", 2, units_per_device=4), pool=SAME_DEVICE)
    first = planned(parameters, slices(4, 4))
    state = AllocationState(an_index(SAME_DEVICE))
    sliced_node(state, "n1", [2, 2])
    came = ready(first.requests[0], "n1", 8)
    plan = planned(parameters, slices(4, 2), state.index, in_flight=(came,))
    assert plan.assigned[came.id] == ("uid-p01",)
    assert [request.pods for request in plan.requests] == [("uid-p00",)]


def in_zone(zone: str) -> PodSelection:
    return PodSelection(((ZONE, zone),))


def assigned_to(plan: ScalingPlan) -> list[str]:
    return [uid for uids in plan.assigned.values() for uid in uids]


def test_the_zone_of_a_launched_node_is_known():
    first = planned(some_parameters(), [a_waiting_pod("a")])
    came = launched(first.requests[0], zone="a")
    waiting = [
        a_waiting_pod("p0", selection=in_zone("a")),
        a_waiting_pod("p1", selection=in_zone("b")),
    ]
    plan = planned(some_parameters(), waiting, in_flight=(came,))
    assert plan.assigned[came.id] == ("uid-p0",)
    assert [request.pods for request in plan.requests] == [("uid-p1",)]


def test_labels_of_the_node_are_known_once_it_exists():
    first = planned(some_parameters(), [a_waiting_pod("a")])
    came = ready(first.requests[0], "n1", 8)
    assert came.node is not None
    came = dataclasses.replace(came, node=dataclasses.replace(came.node, labels={"rack": "1"}))
    state = AllocationState(an_index())
    add_node(state, "n1", devices=8)
    pod = a_waiting_pod(selection=PodSelection((("rack", "1"),)))
    assert planned(some_parameters(), [pod], state.index, in_flight=(came,)).assigned


def affinity(*zones: str) -> tuple[NodeSelectorTerm, ...]:
    one = SelectorRequirement(ZONE, SelectorOperator.IN, list(zones))
    return (NodeSelectorTerm(match_expressions=[one]),)


def test_a_signal_whose_pod_is_gone_serves_pods_of_the_same_selection():
    selection = PodSelection((("kubernetes.io/arch", "arm64"),), affinity("a", "b"))
    gone = a_waiting_pod("gone", selection=selection)
    first = planned(some_parameters(), [gone])
    plan = planned(
        some_parameters(),
        [a_waiting_pod("other", selection=selection), a_waiting_pod("free")],
        in_flight=(signalled(first.requests[0]),),
    )
    assert not plan.requests
    assert sorted(assigned_to(plan)) == ["uid-free", "uid-other"]


def test_the_pod_that_a_node_was_asked_for_is_found_by_the_id_alone():
    selection = PodSelection(affinity=affinity("a", "b"))
    pod = a_waiting_pod(selection=selection)
    (request,) = planned(some_parameters(), [pod]).requests
    bare = dataclasses.replace(launched(request), signals=())
    plan = planned(some_parameters(), [pod], in_flight=(bare,))
    assert plan.assigned == {request.id: (pod.uid,)}
    assert not plan.requests


def test_affinity_that_known_labels_satisfy_shares_a_node():
    pinned = a_waiting_pod("p0", selection=in_zone("a"))
    waiting = [pinned, a_waiting_pod("p1", selection=PodSelection(affinity=affinity("a", "b")))]
    assert len(planned(some_parameters(), waiting).requests) == 1
    waiting = [pinned, a_waiting_pod("p1", selection=PodSelection(affinity=affinity("b")))]
    assert len(planned(some_parameters(), waiting).requests) == 2


def test_tolerations_do_not_part_pods():
    tolerating = PodSelection(tolerations=(Toleration(key="x", operator="Exists"),))
    waiting = [a_waiting_pod("p0", selection=tolerating), a_waiting_pod("p1")]
    assert len(planned(some_parameters(), waiting).requests) == 1


def test_pods_beyond_the_bound_wait_for_those_ahead():
    parameters = some_parameters(a_shape(devices=64), max_in_flight=100)
    waiting = [a_waiting_pod(f"p{number:05}") for number in range(MOST_PODS + 5)]
    plan = planned(parameters, waiting)
    late = [uid for uid, wait in plan.waits.items() if wait.reason is WaitReason.TOO_MANY_PODS]
    assert late == [pod.uid for pod in waiting[MOST_PODS:]]
    assert len(assigned_to(plan)) == MOST_PODS


def test_pods_of_too_many_kinds_wait_for_those_ahead():
    waiting = [
        a_waiting_pod(f"p{number:05}", selection=in_zone(str(number)))
        for number in range(MOST_KINDS + 3)
    ]
    plan = planned(some_parameters(max_in_flight=1_000), waiting)
    assert len(plan.requests) == MOST_KINDS
    assert {wait.reason for wait in plan.waits.values()} == {WaitReason.TOO_MANY_PODS}
    assert len(plan.waits) == 3


def test_pods_are_of_one_kind_whatever_their_containers_are_called():
    waiting = [
        a_waiting_pod(
            f"p{number:05}",
            demand=Demand(
                "gpu.deckhouse.io/whole",
                (ContainerDemand(f"c{number}", ContainerRole.MAIN, 1),),
                1,
            ),
            requests=ComputeResources(number, number),
        )
        for number in range(MOST_KINDS + 3)
    ]
    assert not planned(some_parameters(max_in_flight=1_000), waiting).waits


def test_ten_thousand_pods_have_a_node_or_a_reason():
    waiting = [a_waiting_pod(f"p{number:05}", units=1 + number % 8) for number in range(10_000)]
    plan = planned(some_parameters(max_in_flight=15), waiting)
    assert len(plan.requests) == 15
    assert len(assigned_to(plan)) + len(plan.waits) == 10_000
