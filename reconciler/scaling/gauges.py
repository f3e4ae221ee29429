"""Metrics of autoscaling: exported by the leader, removed with the pool."""

from collections import Counter
from typing import TYPE_CHECKING, Final

from autoscaling.scaling_model import MICRO, Failure
from telemetry.metrics import (
    NODE_CLAIM_PROVISION,
    SCALE_BUDGET_REMAINING,
    SCALE_DEVICES_WITHIN,
    SCALE_DUPLICATE_NODES,
    SCALE_FAILURES,
    SCALE_HANDOVER,
    SCALE_IDLE_DEVICE_SECONDS,
    SCALE_INFLIGHT_DEVICES,
    SCALE_NODE_COST,
    SCALE_PHASE,
    SCALE_REQUESTS,
    SCALE_RESULTS,
    SCALE_SIGNAL_LEAKS,
    SCALE_WAITING_PODS,
    SMART_PODS_ACTIVE,
    SMART_PODS_CREATED,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from api.names import PodUid, PoolName
    from autoscaling.device_use import UsageSample
    from autoscaling.scaling_model import (
        ObservedRequest,
        PodWait,
        RequestPhase,
        ScalingParameters,
    )

READY: Final = "ready"
FAILED: Final = "failed"
CANCELLED: Final = "cancelled"
_BY_PART: Final = (SCALE_REQUESTS, SCALE_WAITING_PODS, SCALE_NODE_COST, SCALE_BUDGET_REMAINING)
_BY_POOL: Final = (SCALE_DEVICES_WITHIN, SCALE_INFLIGHT_DEVICES, SMART_PODS_ACTIVE)
_KEPT: Final = (
    SMART_PODS_CREATED,
    NODE_CLAIM_PROVISION,
    SCALE_RESULTS,
    SCALE_FAILURES,
    SCALE_DUPLICATE_NODES,
    SCALE_IDLE_DEVICE_SECONDS,
)


def show_requests(pool: "PoolName", requests: "Iterable[ObservedRequest]") -> None:
    """Set the gauges of requests, their signals, and the devices on their way."""
    requests = list(requests)
    # Shown as 0 from the start, so that a rate sees the first.
    for result in (READY, FAILED, CANCELLED):
        SCALE_RESULTS.labels(pool, result)
    for failure in Failure:
        SCALE_FAILURES.labels(pool, failure.value)
    SCALE_REQUESTS.remove_by_labels({"pool": pool})
    for phase, count in Counter(request.phase.value for request in requests).items():
        SCALE_REQUESTS.labels(pool, phase).set(count)
    SMART_PODS_ACTIVE.labels(pool).set(sum(len(request.signals) for request in requests))
    SCALE_INFLIGHT_DEVICES.labels(pool).set(
        sum(
            request.shape.devices
            for request in requests
            if request.is_in_flight and request.shape is not None
        )
    )


def show_waits(pool: "PoolName", waits: "Mapping[PodUid, PodWait]") -> None:
    """Set the number of pods that no node comes for."""
    SCALE_WAITING_PODS.remove_by_labels({"pool": pool})
    for reason, count in Counter(wait.reason.value for wait in waits.values()).items():
        SCALE_WAITING_PODS.labels(pool, reason).set(count)


def show_parameters(
    parameters: "ScalingParameters", usage: "UsageSample", *, spent_micro: int
) -> None:
    """Set the time that a node has for its devices, the price of an hour by state, and what is left of the budget.

    Of what has no price there is none.
    """
    pool = parameters.pool.name
    SCALE_DEVICES_WITHIN.labels(pool).set(parameters.devices_within.total_seconds())
    SCALE_NODE_COST.remove_by_labels({"pool": pool})
    for use, micro in usage.micro.items():
        SCALE_NODE_COST.labels(pool, use.value).set(micro / MICRO)
    left = {
        "hour": (parameters.per_hour_micro, usage.running_micro),
        "day": (parameters.per_day_micro, spent_micro),
    }
    for period, (limit, taken) in left.items():
        if limit is not None:
            SCALE_BUDGET_REMAINING.labels(pool, period).set((limit - taken) / MICRO)
        else:
            SCALE_BUDGET_REMAINING.remove_by_labels({"pool": pool, "period": period})


def show_leaks(count: int) -> None:
    """Set the number of signals that are left over."""
    SCALE_SIGNAL_LEAKS.set(count)


def count_signal(pool: "PoolName") -> None:
    SMART_PODS_CREATED.labels(pool).inc()


def count_result(pool: "PoolName", result: str) -> None:
    SCALE_RESULTS.labels(pool, result).inc()


def count_failure(pool: "PoolName", failure: "Failure") -> None:
    SCALE_FAILURES.labels(pool, failure.value).inc()
    count_result(pool, FAILED)


def count_duplicate(pool: "PoolName") -> None:
    SCALE_DUPLICATE_NODES.labels(pool).inc()


def count_idle(pool: "PoolName", device_seconds: float) -> None:
    SCALE_IDLE_DEVICE_SECONDS.labels(pool).inc(device_seconds)


def observe_phase(phase: "RequestPhase", seconds: float) -> None:
    SCALE_PHASE.labels(phase.value).observe(seconds)


def observe_provision(pool: "PoolName", seconds: float) -> None:
    NODE_CLAIM_PROVISION.labels(pool).observe(seconds)
    count_result(pool, READY)


def observe_handover(seconds: float) -> None:
    SCALE_HANDOVER.observe(seconds)


def forget_scaling(pool: "PoolName") -> None:
    """Remove the series of a pool that is gone, or does not scale any more."""
    for metric in (*_BY_PART, *_BY_POOL, *_KEPT):
        metric.remove_by_labels({"pool": pool})


def forget_all_scaling() -> None:
    """Remove the gauges of all pools, as where this replica does not lead."""
    for metric in (*_BY_PART, *_BY_POOL):
        metric.clear()
    SCALE_SIGNAL_LEAKS.set(0)
