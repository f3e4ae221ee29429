"""Events on waiting pods: which node was asked for and what the request leaves out, or why none is; again after a change, and after half an hour."""

from typing import TYPE_CHECKING, Final, final

from kube.event_recorder import ObjectReference
from kube.resources import PODS
from reconciler.scaling.events import (
    node_awaited,
    node_requested,
    request_blocked,
    with_omissions,
)

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator, Sequence

    from api.names import PodUid, PoolName
    from autoscaling.scaling_model import ObservedRequest, ScalingPlan
    from kube.event_recorder import EventRecorder
    from pool.model import PodFacts
    from reconciler.scaling.events import ScalingEvent

MAX_EVENTS_PER_PASS: Final = 100
"""Events about pods of one pool in one pass: the recorder's queue has capacity for ten such pools."""
REPEAT_S: Final = 1800.0
"""The API server deletes an Event after an hour: a pod that still waits has another one by then."""


@final
class WaitingPodEvents:
    """The last Event of each waiting pod, by pool."""

    def __init__(self, recorder: "EventRecorder") -> None:
        self._recorder = recorder
        self._reported: dict[PoolName, dict[PodUid, str]] = {}
        # pool -> pod -> id of the request, or reason, of its last Event, and in which half hour it was recorded

    def record(
        self,
        pool: "PoolName",
        waiting: "Sequence[PodFacts]",
        *,
        plan: "ScalingPlan",
        observed: "Sequence[ObservedRequest]",
        now: "dt.datetime",
    ) -> None:
        """Record what is new, for the first pods of the queue; the others get theirs at the next passes."""
        before, events = self._reported.get(pool, {}), dict(_events_by_pod(plan, observed))
        after: dict[PodUid, str] = {}
        count = 0
        for pod in waiting:
            found = events.get(pod.uid)
            if found is None:
                continue
            key, event = f"{found[0]} {now.timestamp() // REPEAT_S}", found[1]
            if before.get(pod.uid) == key:
                after[pod.uid] = key
            elif count < MAX_EVENTS_PER_PASS:
                count += 1
                after[pod.uid] = key
                if pod.uid not in plan.waits:
                    event = with_omissions(event, pod.selection)
                event.record(self._recorder, ObjectReference.to(PODS, pod))
        self._reported[pool] = after

    def forget(self, pool: "PoolName") -> None:
        self._reported.pop(pool, None)


def _events_by_pod(
    plan: "ScalingPlan", observed: "Sequence[ObservedRequest]"
) -> "Iterator[tuple[PodUid, tuple[str, ScalingEvent]]]":
    """Yield for each pod what distinguishes its state, and its Event."""
    events = {item.id: node_awaited(item) for item in observed}
    events |= {request.id: node_requested(request) for request in plan.requests}
    for id_, pods in plan.assigned.items():
        if id_ in events:
            for uid in pods:
                yield uid, (id_, events[id_])
    for uid, wait in plan.waits.items():
        yield uid, (wait.reason.value, request_blocked(wait))
