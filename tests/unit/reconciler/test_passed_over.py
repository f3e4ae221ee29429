"""Free units that kube-scheduler passes over for a pod do not count for it, and a node elsewhere is asked for, not for ever."""

from typing import Any

import pytest

from api.names import NodeName
from autoscaling.scaling_model import ScalingPlan, WaitReason
from pool.allocation_state import AllocationState
from pool.compute_resources import ComputeResources
from pool.model import PodSelection
from reconciler.scaling.demand.passed_over import PASSED_OVER_S, PassedOverNodes
from tests.support.builders import a_device, a_node
from tests.support.scaling_plans import a_waiting_pod, an_index, planned, some_parameters

ZONE = "topology.kubernetes.io/zone"
OLD = "2025-12-31T00:00:00Z"
PARAMETERS = some_parameters()


class World:
    def __init__(self) -> None:
        self.index = AllocationState(an_index()).index
        self.passed_over = PassedOverNodes(self.index)
        self.pod = a_waiting_pod("p", awaits_capacity=False, created=OLD)
        self.now = 0.0

    def add_node(self, name: str, *, zone: str = "", **facts: Any) -> None:
        self.index.replace_node(a_node(name, labels={ZONE: zone} if zone else {}, **facts))
        self.index.replace_device(a_device(name, 0))

    def observe(self, pass_s: float = 0.0) -> ScalingPlan:
        self.now += pass_s
        waiting = self.passed_over.narrowed([self.pod])
        plan = planned(PARAMETERS, waiting, self.index)
        self.passed_over.update(PARAMETERS.pool, waiting, plan, now=self.now)
        return plan

    def reason(self, plan: ScalingPlan) -> WaitReason:
        return plan.waits[self.pod.uid].reason


def test_a_node_in_another_zone_is_asked_for_where_the_free_one_is_passed_over():
    world = World()
    world.add_node("n1", zone="a")
    assert world.reason(world.observe()) is WaitReason.NOT_DEVICES
    assert world.reason(world.observe(PASSED_OVER_S - 1)) is WaitReason.NOT_DEVICES
    assert world.passed_over.narrowed([world.pod]) == [world.pod]
    world.observe(1)
    (request,) = world.observe().requests
    (term,) = request.affinity
    assert term.match_expressions is not None
    (expression,) = term.match_expressions
    assert (expression.key, expression.operator.value, expression.values) == (ZONE, "NotIn", ["a"])


@pytest.mark.parametrize(
    ("node", "pod"),
    [
        pytest.param({"zone": "b", "is_cordoned": True}, {}, id="a cordoned node"),
        pytest.param(
            {"zone": "b", "cpu_milli": 1_000},
            {"requests": ComputeResources(cpu_milli=2_000, memory_mib=0)},
            id="a node without room",
        ),
        pytest.param(
            {"zone": "b"},
            {"selection": PodSelection(node_selector=((ZONE, "a"),))},
            id="a node that the pod excludes",
        ),
    ],
)
def test_a_zone_is_left_out_only_for_nodes_that_the_pod_could_have_had(
    node: dict[str, Any], pod: dict[str, Any]
):
    world = World()
    world.pod = a_waiting_pod("p", awaits_capacity=False, created=OLD, **pod)
    world.add_node("n1", zone="a")
    world.add_node("n2", **node)
    world.observe()
    world.observe(PASSED_OVER_S)
    (narrowed,) = world.passed_over.narrowed([world.pod])
    assert narrowed.selection is not None
    (term,) = narrowed.selection.affinity
    assert [expression.values for expression in term.match_expressions or ()] == [["a"]]


def test_each_zone_is_tried_once_though_its_node_has_gone():
    world = World()
    world.add_node("n1", zone="a")
    world.observe()
    world.observe(PASSED_OVER_S)
    world.add_node("n2", zone="b")
    world.index.discard_node(NodeName("n1"))
    assert world.reason(world.observe()) is WaitReason.NOT_DEVICES
    world.observe(PASSED_OVER_S)
    (request,) = world.observe().requests
    (term,) = request.affinity
    assert [expression.values for expression in term.match_expressions or ()] == [["a", "b"]]


def test_nodes_without_zone_and_type_are_not_told_apart():
    world = World()
    world.add_node("n1")
    world.observe()
    world.observe(PASSED_OVER_S)
    assert world.reason(world.observe(PASSED_OVER_S)) is WaitReason.NOT_DEVICES


def test_a_pod_that_is_bound_is_forgotten():
    world = World()
    world.add_node("n1", zone="a")
    world.observe()
    world.observe(PASSED_OVER_S)
    assert world.passed_over.uids() == (world.pod.uid,)
    world.passed_over.forget([])
    assert world.passed_over.narrowed([world.pod]) == [world.pod]
