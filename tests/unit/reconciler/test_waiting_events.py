"""What waiting pods are told, how often, and how many of them at once."""

import datetime as dt

from api.names import PoolName
from autoscaling.scaling_model import PodWait, ScalingPlan, WaitReason
from pool.model import PodFacts
from reconciler.scaling.waiting_events import MAX_EVENTS_PER_PASS, REPEAT_S, WaitingPodEvents
from tests.support.builders import a_pod_facts
from tests.support.node_requests import a_node_request
from tests.support.recorded_events import RecordedEvents

POOL = PoolName("training")
NOW = dt.datetime(2026, 11, 28, 12, tzinfo=dt.UTC)


def some_pods(count: int) -> list[PodFacts]:
    return [a_pod_facts(f"p{number:03}") for number in range(count)]


def all_wait(pods: list[PodFacts], reason: WaitReason = WaitReason.MAX_UNITS) -> ScalingPlan:
    return ScalingPlan(waits={pod.uid: PodWait(reason, "8 of 8 units") for pod in pods})


def test_a_pod_is_told_again_only_when_the_reason_changes():
    recorder, pods = RecordedEvents(), some_pods(1)
    events = WaitingPodEvents(recorder)
    for _ in range(3):
        events.record(POOL, pods, plan=all_wait(pods), observed=(), now=NOW)
    assert [item.reason for item in recorder.taken()] == ["GPUNodeRequestBlocked"]
    events.record(POOL, pods, plan=all_wait(pods, WaitReason.BUDGET_DAY), observed=(), now=NOW)
    request = a_node_request(pods=(pods[0].uid,))
    plan = ScalingPlan(requests=(request,), assigned={request.id: request.pods})
    events.record(POOL, pods, plan=plan, observed=(), now=NOW)
    assert [item.reason for item in recorder.taken()] == [
        "GPUNodeRequestBlocked",
        "GPUNodeRequested",
    ]


def test_a_pod_that_still_waits_is_told_again_before_its_event_has_ended():
    recorder, pods = RecordedEvents(), some_pods(1)
    events = WaitingPodEvents(recorder)
    for number in range(4):
        at = NOW + dt.timedelta(seconds=number * REPEAT_S / 2)
        events.record(POOL, pods, plan=all_wait(pods), observed=(), now=at)
    assert [item.reason for item in recorder.taken()] == ["GPUNodeRequestBlocked"] * 2


def test_the_first_pods_of_a_long_queue_are_told_first_and_the_rest_later():
    recorder, pods = RecordedEvents(), some_pods(2 * MAX_EVENTS_PER_PASS)
    events = WaitingPodEvents(recorder)
    for entry in (pods[:MAX_EVENTS_PER_PASS], pods[MAX_EVENTS_PER_PASS:], []):
        events.record(POOL, pods, plan=all_wait(pods), observed=(), now=NOW)
        assert [item.regarding.name for item in recorder.taken()] == [pod.name for pod in entry]


def test_a_pool_that_is_forgotten_is_told_again():
    recorder, pods = RecordedEvents(), some_pods(1)
    events = WaitingPodEvents(recorder)
    events.record(POOL, pods, plan=all_wait(pods), observed=(), now=NOW)
    events.forget(POOL)
    events.record(POOL, pods, plan=all_wait(pods), observed=(), now=NOW)
    assert len(recorder.taken()) == 2
