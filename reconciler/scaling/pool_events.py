"""Events on a pool that scales: withdrawn requests, nodes that are not as promised, and conditions that became False."""

from typing import TYPE_CHECKING, Final

from api.status_conditions import find_condition
from autoscaling.scaling_model import Failure
from autoscaling.shape_history import new_failures
from kube.event_recorder import ObjectReference
from kube.resources import GPU_POOLS
from reconciler.scaling.events import (
    budget_exhausted,
    node_with_fewer_devices,
    request_cancelled,
    scaling_misconfigured,
)
from telemetry.conditions import PoolScalingCondition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from api.kinds.autoscaling import ScaleRequestStatus
    from api.kinds.gpupool import GPUPool
    from api.meta import Condition
    from autoscaling.scaling_model import Cancel, ObservedRequest
    from kube.event_recorder import EventRecorder

_EVENTS: Final = {
    PoolScalingCondition.BACKEND_READY: scaling_misconfigured,
    PoolScalingCondition.NODE_POOL_VALID: scaling_misconfigured,
    PoolScalingCondition.BUDGET_AVAILABLE: budget_exhausted,
}
"""Events of conditions that an administrator has to do something about; the Events of pods have the others."""


def record_conditions(
    recorder: "EventRecorder",
    pool: "GPUPool",
    *,
    before: "Iterable[Condition]",
    after: "Iterable[Condition]",
) -> None:
    """Record the conditions that are False now and were not, or have another reason."""
    before, after = list(before), list(after)
    for type_, event in _EVENTS.items():
        current, found = find_condition(before, type_), find_condition(after, type_)
        if found is None or found.status != "False":
            continue
        if current is None or (current.status, current.reason) != ("False", found.reason):
            event(found.message).record(recorder, ObjectReference.to(GPU_POOLS, pool.metadata))


def record_cancels(recorder: "EventRecorder", pool: "GPUPool", cancels: "Iterable[Cancel]") -> None:
    for cancel in cancels:
        request_cancelled(cancel).record(recorder, ObjectReference.to(GPU_POOLS, pool.metadata))


def record_short_nodes(
    recorder: "EventRecorder",
    pool: "GPUPool",
    *,
    observed: "Iterable[ObservedRequest]",
    recorded: "Sequence[ScaleRequestStatus]",
) -> None:
    """Record the nodes that are seen for the first time to have failed with fewer units than promised."""
    for request in new_failures(observed, recorded):
        if request.failure is Failure.FEWER_DEVICES:
            event = node_with_fewer_devices(request)
            event.record(recorder, ObjectReference.to(GPU_POOLS, pool.metadata))
