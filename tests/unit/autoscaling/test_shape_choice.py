"""The first shape that serves a pod, and why none does."""

import datetime as dt
from typing import Any

import pytest

from api.foreign.core import NodeSelectorTerm
from api.foreign.karpenter import NodeRequirement
from api.kinds.gpupool import AllocationMode, DeviceTopology, SlicePlacement
from api.meta import SelectorOperator, SelectorRequirement
from autoscaling.scaling_model import NodePoolFacts, ScalingPlan, ShapeHistory, WaitReason
from pool.compute_resources import ComputeResources
from pool.model import PodSelection
from tests.support.builders import a_pool, a_slice_pool
from tests.support.scaling_plans import (
    NOW,
    a_shape,
    a_waiting_pod,
    planned,
    signalled,
    some_parameters,
)

ZONE = "topology.kubernetes.io/zone"


def shapes_of(plan: ScalingPlan) -> list[str]:
    return [request.shape.name for request in plan.requests]


def wait_of(plan: ScalingPlan) -> tuple[WaitReason, str]:
    (wait,) = plan.waits.values()
    assert not plan.requests
    return wait.reason, wait.message


def selecting(**labels: str) -> PodSelection:
    return PodSelection(
        tuple(sorted((key.replace("_", "/"), item) for key, item in labels.items()))
    )


def requiring(key: str, operator: SelectorOperator, *values: str) -> PodSelection:
    one = SelectorRequirement(key, operator, list(values) or None)
    return PodSelection(affinity=(NodeSelectorTerm(match_expressions=[one]),))


def with_node_pool(**changes: Any) -> dict[str, Any]:
    return {"node_pools": {"whole": NodePoolFacts(name="whole", **changes)}}


def test_a_pod_that_no_shape_can_hold():
    parameters = some_parameters(a_shape("two", 2), a_shape("four", 4))
    reason, message = wait_of(planned(parameters, [a_waiting_pod(units=5)]))
    assert reason is WaitReason.TOO_LARGE
    assert "four, has 4" in message


def test_a_pool_without_shapes_says_so():
    parameters = some_parameters()
    bare = type(parameters)(
        pool=parameters.pool, generation=1, backend=parameters.backend, shapes=()
    )
    reason, message = wait_of(planned(bare, [a_waiting_pod()]))
    assert reason is WaitReason.NO_SHAPE
    assert "name one" in message


def test_slices_on_the_same_device_need_a_device_that_has_them():
    pool = a_slice_pool(slices=4, slice_placement=SlicePlacement.SAME_DEVICE)
    parameters = some_parameters(a_shape("two", 2, units_per_device=4), pool=pool)
    waiting = [a_waiting_pod(f"p{number}", units=3, pool="slices") for number in range(4)]
    assert [len(request.pods) for request in planned(parameters, waiting).requests] == [2, 2]
    assert wait_of(planned(parameters, [a_waiting_pod(units=5, pool="slices")]))[0] is (
        WaitReason.TOO_LARGE
    )


def test_instances_of_a_mig_profile_are_units():
    pool = a_pool("mig", mode=AllocationMode.MIG, mig_profile="1g.10gb")
    parameters = some_parameters(a_shape("two", 2, units_per_device=7), pool=pool)
    waiting = [a_waiting_pod(f"p{number}", units=7, pool="mig") for number in range(3)]
    assert [len(request.pods) for request in planned(parameters, waiting).requests] == [2, 1]


def test_devices_of_an_expected_node_count_as_aligned():
    pool = a_pool(device_topology=DeviceTopology.REQUIRED)
    assert shapes_of(planned(some_parameters(pool=pool), [a_waiting_pod(units=8)])) == ["eight"]


@pytest.mark.parametrize(
    ("shape", "requests", "names"),
    [
        ({"cpu_milli": 1000}, ComputeResources(2000, 1), "2000m of CPU"),
        ({"memory_mib": 1000}, ComputeResources(1, 2000), "2000Mi of memory"),
    ],
)
def test_cpu_and_memory_of_a_shape(shape: dict[str, Any], requests: ComputeResources, names: str):
    parameters = some_parameters(a_shape(**shape))
    reason, message = wait_of(planned(parameters, [a_waiting_pod(requests=requests)]))
    assert reason is WaitReason.NO_SHAPE
    assert names in message


@pytest.mark.parametrize("shape", [{"cpu_milli": 4000}, {"memory_mib": 4000}])
def test_cpu_and_memory_of_a_shape_bound_packing(shape: dict[str, Any]):
    parameters = some_parameters(a_shape(**shape))
    requests = ComputeResources(2000, 2000)
    waiting = [a_waiting_pod(f"p{number}", requests=requests) for number in range(4)]
    plan = planned(parameters, waiting)
    assert [len(request.pods) for request in plan.requests] == [2, 2]
    again = planned(parameters, waiting, in_flight=tuple(map(signalled, plan.requests)))
    assert not again.requests


def test_a_label_that_nothing_knows_names_its_cure():
    reason, message = wait_of(
        planned(some_parameters(), [a_waiting_pod(selection=selecting(rack="1"))])
    )
    assert reason is WaitReason.NO_SHAPE
    assert "rack=1" in message
    assert "NodePool whole" in message


@pytest.mark.parametrize(
    ("selection", "serves"),
    [
        pytest.param(selecting(team="ml"), True, id="label of the NodePool"),
        pytest.param(selecting(team="web"), False, id="another value"),
        pytest.param(selecting(rack="2"), True, id="one of the NodePool's values"),
        pytest.param(selecting(rack="3"), False, id="none of them"),
        pytest.param(selecting(kind="a"), True, id="one of the shape's values"),
        pytest.param(selecting(kind="b"), False, id="excluded by the NodePool"),
        pytest.param(PodSelection(((ZONE, "a"),)), True, id="well known"),
        pytest.param(
            PodSelection((("karpenter.k8s.aws/instance-gpu-name", "h100"),)), True, id="provider's"
        ),
        pytest.param(PodSelection((("karpenter.sh/nodepool", "whole"),)), True, id="its NodePool"),
        pytest.param(
            PodSelection((("karpenter.sh/nodepool", "other"),)), False, id="another NodePool"
        ),
        pytest.param(requiring("rack", SelectorOperator.IN, "2", "9"), True, id="In"),
        pytest.param(requiring("rack", SelectorOperator.IN, "9"), False, id="In, none"),
        pytest.param(requiring("rack", SelectorOperator.NOT_IN, "1"), True, id="NotIn, some left"),
        pytest.param(requiring("rack", SelectorOperator.NOT_IN, "1", "2"), False, id="NotIn"),
        pytest.param(requiring("team", SelectorOperator.EXISTS), True, id="Exists"),
        pytest.param(requiring("stage", SelectorOperator.EXISTS), False, id="Exists, unknown"),
        pytest.param(requiring("stage", SelectorOperator.DOES_NOT_EXIST), True, id="absent"),
        pytest.param(requiring("team", SelectorOperator.DOES_NOT_EXIST), False, id="not absent"),
        pytest.param(requiring("stage", SelectorOperator.NOT_IN, "x"), True, id="NotIn, unknown"),
        pytest.param(requiring("rack", SelectorOperator.GT, "1"), True, id="Gt"),
        pytest.param(requiring("rack", SelectorOperator.LT, "1"), False, id="Lt"),
        pytest.param(requiring("size", SelectorOperator.IN, "5"), True, id="within Gte and Lt"),
        pytest.param(requiring("size", SelectorOperator.IN, "9"), False, id="beyond Lt"),
        pytest.param(requiring("size", SelectorOperator.IN, "big"), False, id="no number"),
        pytest.param(requiring(ZONE, SelectorOperator.EXISTS), True, id="well known exists"),
        pytest.param(requiring("never", SelectorOperator.IN, "1"), False, id="forbidden"),
        pytest.param(PodSelection(affinity=(NodeSelectorTerm(),)), False, id="an empty term"),
        pytest.param(
            PodSelection(
                affinity=(
                    NodeSelectorTerm(
                        match_fields=[
                            SelectorRequirement("metadata.name", SelectorOperator.IN, ["n1"])
                        ]
                    ),
                    NodeSelectorTerm(
                        match_expressions=[SelectorRequirement("no", SelectorOperator.EXISTS)]
                    ),
                )
            ),
            False,
            id="a node by its name, or a label that is not known",
        ),
        pytest.param(
            PodSelection(
                affinity=(
                    NodeSelectorTerm(
                        match_expressions=[SelectorRequirement("no", SelectorOperator.EXISTS)]
                    ),
                    NodeSelectorTerm(
                        match_expressions=[SelectorRequirement("team", SelectorOperator.EXISTS)]
                    ),
                )
            ),
            True,
            id="one of two terms",
        ),
    ],
)
def test_labels_of_shape_and_node_pool(selection: PodSelection, serves: bool):
    shape = a_shape(
        requirements=(SelectorRequirement("kind", SelectorOperator.IN, ["a", "b"]),),
    )
    supply = with_node_pool(
        labels={"team": "ml"},
        requirements=(
            NodeRequirement("rack", "In", ["1", "2"]),
            NodeRequirement("kind", "NotIn", ["b"]),
            NodeRequirement("size", "Gte", ["4"]),
            NodeRequirement("size", "Lt", ["9"]),
            NodeRequirement("other", "Exists"),
            NodeRequirement("never", "DoesNotExist"),
        ),
    )
    plan = planned(some_parameters(shape), [a_waiting_pod(selection=selection)], **supply)
    assert len(plan.requests) == serves
    assert [wait.reason for wait in plan.waits.values()] == [WaitReason.NO_SHAPE] * (not serves)


def test_a_request_carries_what_its_pods_demand_beyond_the_shape():
    shape = a_shape(
        requirements=(SelectorRequirement("kind", SelectorOperator.IN, ["a"]),),
        labels={"kind": "a"},
    )
    selection = PodSelection(
        (("kind", "a"), (ZONE, "z")),
        affinity=requiring("kubernetes.io/arch", SelectorOperator.IN, "amd64").affinity,
    )
    (request,) = planned(some_parameters(shape), [a_waiting_pod(selection=selection)]).requests
    assert request.node_selector == {ZONE: "z"}
    assert request.affinity == selection.affinity


def test_pods_of_other_zones_get_other_nodes():
    waiting = [
        a_waiting_pod(f"p{number}", selection=PodSelection(((ZONE, zone),)))
        for number, zone in enumerate("abab")
    ]
    plan = planned(some_parameters(), waiting)
    assert [request.node_selector for request in plan.requests] == [{ZONE: "a"}, {ZONE: "b"}]
    again = planned(some_parameters(), waiting, in_flight=tuple(map(signalled, plan.requests)))
    assert again.assigned == plan.assigned
    assert not again.requests


@pytest.mark.parametrize("name", ["a", "z"])
def test_a_pod_that_demands_nothing_joins_a_node_of_a_zone(name: str):
    pinned = a_waiting_pod("p", selection=PodSelection(((ZONE, "a"),)))
    waiting = [a_waiting_pod(name), pinned]
    plan = planned(some_parameters(), waiting)
    assert [request.node_selector for request in plan.requests] == [{ZONE: "a"}]
    again = planned(some_parameters(), waiting, in_flight=tuple(map(signalled, plan.requests)))
    assert not again.requests
    assert again.assigned == plan.assigned


def test_required_affinity_is_not_satisfied_by_labels_that_are_not_known():
    waiting = [
        a_waiting_pod("p0", selection=requiring(ZONE, SelectorOperator.IN, "a", "b")),
        a_waiting_pod("p1", selection=requiring(ZONE, SelectorOperator.NOT_IN, "a")),
    ]
    plan = planned(some_parameters(), waiting)
    assert len(plan.requests) == 2
    again = planned(some_parameters(), waiting, in_flight=tuple(map(signalled, plan.requests)))
    assert again.assigned == plan.assigned


def history(**changes: Any) -> ShapeHistory:
    fields: dict[str, Any] = {
        "shape": "first",
        "failures": 2,
        "reason": "InsufficientCapacityError",
    }
    return ShapeHistory(**{**fields, **changes})


TWO = (a_shape("first", 8), a_shape("second", 8))


@pytest.mark.parametrize(
    ("failed", "expected"),
    [
        pytest.param(history(retry_after=NOW + dt.timedelta(minutes=1)), "second", id="backs off"),
        pytest.param(history(retry_after=NOW), "first", id="over"),
        pytest.param(history(), "first", id="none"),
        pytest.param(history(without_devices=2, excluded_at=1), "second", id="left out"),
        pytest.param(history(without_devices=2, excluded_at=7), "first", id="the spec changed"),
        pytest.param(
            history(zone="a", retry_after=NOW + dt.timedelta(minutes=1)), "first", id="one zone"
        ),
    ],
)
def test_the_next_shape_is_taken_while_one_backs_off(failed: ShapeHistory, expected: str):
    """Weak point 15: a shape without capacity is left alone for a while, and the next one taken at once."""
    plan = planned(some_parameters(*TWO), [a_waiting_pod()], history=(failed,))
    assert shapes_of(plan) == [expected]


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        pytest.param(PodSelection(((ZONE, "a"),)), "second", id="that zone"),
        pytest.param(PodSelection(((ZONE, "b"),)), "first", id="another"),
        pytest.param(requiring(ZONE, SelectorOperator.IN, "a"), "second", id="by affinity"),
        pytest.param(requiring(ZONE, SelectorOperator.IN, "a", "b"), "first", id="two zones"),
    ],
)
def test_a_zone_without_capacity_backs_off_alone(selection: PodSelection, expected: str):
    """Weak point 15."""
    failed = history(zone="a", retry_after=NOW + dt.timedelta(minutes=1))
    plan = planned(some_parameters(*TWO), [a_waiting_pod(selection=selection)], history=(failed,))
    assert shapes_of(plan) == [expected]


def test_a_pod_is_told_when_its_only_shape_is_tried_again():
    """Weak point 15: reasons are told apart."""
    failed = history(retry_after=NOW + dt.timedelta(minutes=1))
    parameters = some_parameters(a_shape("first"))
    reason, message = wait_of(planned(parameters, [a_waiting_pod()], history=(failed,)))
    assert reason is WaitReason.BACKING_OFF
    assert "InsufficientCapacityError" in message
    assert "01:01:00" in message


def test_a_node_pool_with_a_fault_serves_no_pod():
    faults: dict[str, Any] = {
        "node_pool_faults": {"whole": "NodePool whole has no startup taint: add it"}
    }
    reason, message = wait_of(planned(some_parameters(), [a_waiting_pod()], **faults))
    assert (reason, message) == (WaitReason.NODE_POOL_INVALID, faults["node_pool_faults"]["whole"])
    other = some_parameters(a_shape("first"), a_shape("second", node_pool="other"))
    assert shapes_of(planned(other, [a_waiting_pod()], **faults)) == ["second"]


def test_the_reason_of_the_shape_that_came_furthest_is_told():
    parameters = some_parameters(a_shape("small", 1), a_shape("large", 8), max_units=4)
    assert wait_of(planned(parameters, [a_waiting_pod(units=8)]))[0] is WaitReason.MAX_UNITS
