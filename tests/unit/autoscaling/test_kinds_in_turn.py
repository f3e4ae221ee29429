"""Kinds of waiting pods have places by namespace in turn; those that nothing can serve take none."""

from autoscaling.plan_attempt import MOST_KINDS
from autoscaling.scaling_model import WaitReason
from pool.model import PodSelection
from tests.support.builders import a_node
from tests.support.scaling_plans import a_waiting_pod, an_index, planned, some_parameters

ZONE = "topology.kubernetes.io/zone"
MANY = 2 * MOST_KINDS


def selecting(key: str, value: str) -> PodSelection:
    return PodSelection(node_selector=((key, value),))


def test_kinds_that_no_shape_can_serve_keep_no_pod_from_a_node():
    odd = [
        a_waiting_pod(f"odd-{item:03}", selection=selecting("example.com/x", f"v{item}"))
        for item in range(MANY)
    ]
    honest = a_waiting_pod("honest", created="2026-01-02T00:00:00Z")
    plan = planned(some_parameters(), [*odd, honest])
    assert [request.pods for request in plan.requests] == [(honest.uid,)]
    assert {wait.reason for wait in plan.waits.values()} == {WaitReason.NO_SHAPE}


def test_kinds_of_one_namespace_keep_no_pod_of_another_from_a_node():
    varied = [
        a_waiting_pod(
            f"varied-{item:03}", selection=selecting(ZONE, f"z{item}"), namespace="greedy"
        )
        for item in range(MANY)
    ]
    honest = a_waiting_pod("honest", created="2026-01-02T00:00:00Z", namespace="honest")
    plan = planned(some_parameters(max_in_flight=1_000), [*varied, honest])
    assert any(honest.uid in request.pods for request in plan.requests)
    assert len(plan.requests) == MOST_KINDS - 1
    assert {wait.reason for wait in plan.waits.values()} == {WaitReason.TOO_MANY_PODS}


def test_zones_that_do_not_exist_ask_for_nothing():
    index = an_index()
    index.replace_node(a_node("n1", labels={ZONE: "a"}))
    pods = [a_waiting_pod(f"p{item}", selection=selecting(ZONE, f"v{item}")) for item in range(16)]
    real = a_waiting_pod("real", selection=selecting(ZONE, "a"))
    plan = planned(some_parameters(max_in_flight=100), [*pods, real], index)
    assert [request.pods for request in plan.requests] == [(real.uid,)]
    assert plan.waits[pods[0].uid].reason is WaitReason.NO_SHAPE
    assert "add the label to NodePool" in plan.waits[pods[0].uid].message
