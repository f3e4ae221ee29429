"""Plans against the fewest nodes there can be: never fewer, never more than first fit's bound, pods whole."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from api.kinds.gpupool import SlicePlacement
from api.names import PodUid
from autoscaling.scaling_model import (
    NodeRequest,
    ObservedRequest,
    ScalingParameters,
    ScalingPlan,
    WaitReason,
)
from pool.allocation_state import AllocationState
from pool.compute_resources import ComputeResources
from pool.model import PodFacts, PodSelection
from tests.support.builders import a_slice_pool
from tests.support.naive_scaling_planner import Capacity, all_fit, fewest_new_nodes
from tests.support.scaling_plans import (
    a_shape,
    a_waiting_pod,
    add_node,
    an_index,
    launched,
    planned,
    signalled,
    some_parameters,
)

AMPLE = 1 << 30


@dataclass(frozen=True)
class Case:
    parameters: ScalingParameters
    pods: list[PodFacts]
    free: list[int]

    @property
    def state(self) -> AllocationState:
        state = AllocationState(an_index(self.parameters.pool))
        for number, units in enumerate(self.free):
            add_node(state, f"n{number}", devices=4, used=4 - units)
        return state

    @property
    def shapes(self) -> list[Capacity]:
        return [(shape.units, shape.cpu_milli or AMPLE) for shape in self.parameters.shapes]

    def plan(self, **supply: Any) -> ScalingPlan:
        return planned(self.parameters, self.pods, self.state.index, **supply)

    def needs(self, uids: Iterable[PodUid]) -> list[Capacity]:
        by_uid = {pod.uid: pod for pod in self.pods}
        return [needs(by_uid[uid]) for uid in uids]


def needs(pod: PodFacts) -> Capacity:
    return (pod.demand.units, pod.requests.cpu_milli)


@st.composite
def cases(
    draw: st.DrawFn, *, most_shapes: int = 3, most_nodes: int = 4, zones: tuple[str, ...] = ("",)
) -> Case:
    has_cpu = draw(st.booleans())
    sizes = draw(st.lists(st.integers(1, 8), min_size=1, max_size=most_shapes, unique=True))
    shapes = [
        a_shape(f"s{size}", size, cpu_milli=draw(st.integers(1, 6)) if has_cpu else None)
        for size in sizes
    ]
    pods = [
        a_waiting_pod(
            f"p{number}",
            units=draw(st.integers(1, 8)),
            priority=draw(st.integers(0, 1)),
            created=f"2026-01-01T00:00:0{draw(st.integers(0, 9))}Z",
            requests=ComputeResources(draw(st.integers(0, 4)) if has_cpu else 0, 0),
            selection=_in_zone(draw(st.sampled_from(zones))),
        )
        for number in range(draw(st.integers(0, 6)))
    ]
    free = draw(st.lists(st.integers(0, 4), max_size=most_nodes))
    return Case(some_parameters(*shapes), pods, free)


def _in_zone(zone: str) -> PodSelection | None:
    return PodSelection((("topology.kubernetes.io/zone", zone),)) if zone else None


@given(cases())
def test_every_pod_has_a_node_of_its_own_units_or_a_reason(case: Case):
    plan = case.plan()
    assigned = [uid for uids in plan.assigned.values() for uid in uids]
    assert len(assigned) == len(set(assigned))
    assert not set(assigned) & plan.waits.keys()
    for request in plan.requests:
        capacity = (request.shape.units, request.shape.cpu_milli or AMPLE)
        assert all_fit(case.needs(request.pods), [capacity])
        assert plan.assigned[request.id] == request.pods
    here = [pod for pod in case.pods if pod.uid not in {*assigned, *plan.waits}]
    # CPU of nodes that exist is kube-scheduler's affair.
    assert all_fit([(pod.demand.units, 0) for pod in here], [(units, 0) for units in case.free])
    for pod in case.pods:
        if pod.uid in plan.waits:
            assert plan.waits[pod.uid].reason in {WaitReason.TOO_LARGE, WaitReason.NO_SHAPE}
            assert not any(all_fit([needs(pod)], [shape]) for shape in case.shapes)


@given(cases())
def test_never_fewer_nodes_than_needed_and_never_more_than_the_bound(case: Case):
    plan = case.plan()
    served = [pod for pod in case.pods if pod.uid not in plan.waits]
    least = fewest_new_nodes(
        [needs(pod) for pod in served], [(units, AMPLE) for units in case.free], case.shapes
    )
    assert least is not None
    assert len(plan.requests) >= least
    for shape in case.parameters.shapes:
        some = [request for request in plan.requests if request.shape == shape]
        on_it = case.needs(uid for item in some for uid in item.pods)
        fewest = fewest_new_nodes(on_it, [], [(shape.units, shape.cpu_milli or AMPLE)])
        assert fewest is not None
        if shape.cpu_milli is None:
            assert len(some) <= math.floor(1.7 * fewest)
        else:  # packing of vectors: any fit, two dimensions
            assert len(some) <= 3 * fewest


@given(cases(most_shapes=1, most_nodes=0))
def test_nodes_of_the_only_shape_are_within_the_bound_of_first_fit_decreasing(case: Case):
    if case.parameters.shapes[0].cpu_milli is not None:
        return
    plan = case.plan()
    served = [needs(pod) for pod in case.pods if pod.uid not in plan.waits]
    fewest = fewest_new_nodes(served, [], case.shapes)
    assert fewest is not None
    assert len(plan.requests) <= math.floor(11 / 9 * fewest + 6 / 9)


@given(
    cases(zones=("", "a", "b")),
    st.randoms(use_true_random=False),
    st.sampled_from([signalled, launched]),
)
def test_equal_inputs_give_equal_plans_and_a_plan_that_is_carried_out_asks_for_nothing(
    case: Case, random: Random, form: Callable[[NodeRequest], ObservedRequest]
):
    plan = case.plan()
    shuffled = list(case.pods)
    random.shuffle(shuffled)
    assert Case(case.parameters, shuffled, case.free).plan() == plan
    on_their_way = tuple(form(request) for request in plan.requests)
    again = case.plan(in_flight=on_their_way, used_ids=frozenset(item.id for item in on_their_way))
    assert not again.requests
    assert again.waits == plan.waits
    assert sorted(uid for uids in again.assigned.values() for uid in uids) == sorted(
        uid for uids in plan.assigned.values() for uid in uids
    )
    third = case.plan(in_flight=on_their_way)
    assert third == again


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.integers(1, 3))
def test_slices_on_one_device_are_never_split(units: list[int], devices: int):
    pool = a_slice_pool(slices=4, slice_placement=SlicePlacement.SAME_DEVICE)
    parameters = some_parameters(a_shape("s", devices, units_per_device=4), pool=pool)
    pods = [a_waiting_pod(f"p{at}", units=size, pool="slices") for at, size in enumerate(units)]
    plan = planned(parameters, pods)
    assert not plan.waits
    sizes = {pod.uid: pod.demand.units for pod in pods}
    for request in plan.requests:
        assert all_fit([(sizes[uid], 0) for uid in request.pods], [(4, 0)] * devices)
    least = fewest_new_nodes([(size, 0) for size in units], [], [(4, 0)])
    assert least is not None
    assert len(plan.requests) >= -(-least // devices)
