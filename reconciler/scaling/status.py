"""`status.autoscaling` of a pool as a value, and when it is worth a write. Pure."""

import datetime as dt
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

import msgspec

from api.kinds.autoscaling import AutoscalingStatus, ScaleRequestStatus
from api.status_conditions import format_time, parse_time
from autoscaling.device_hours import decimal_text, other_day, usage_statuses
from autoscaling.nodes_per_hour import counted_statuses
from autoscaling.scaling_model import MICRO, RequestPhase
from autoscaling.shape_history import shape_statuses

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from api.kinds.autoscaling import ScalingBackend
    from api.meta import Condition
    from api.names import PodUid
    from autoscaling.device_hours import UsageTotals
    from autoscaling.device_use import UsageSample
    from autoscaling.scaling_model import (
        NodeRequest,
        ObservedRequest,
        RequestId,
        ScalingPlan,
        ShapeHistory,
    )

FIGURES_S: Final = 30.0
"""Seconds between two writes for other numbers of devices alone."""
COUNTING_S: Final = 1800.0
"""Seconds between two writes for the time that passed alone; as much is counted again after a restart, at the
figures of then. Longer than a quiet cluster is observed for, and half of the most that is counted at once."""
REMEMBERED: Final = dt.timedelta(seconds=60)
"""How long a request that was withdrawn is shown: Karpenter may be about to answer it."""
MOST_REQUESTS: Final = 200
"""Requests in the status; those on their way first. A pool may have 100 on their way."""
_UNANSWERED: Final = frozenset(
    {RequestPhase.PLANNED.value, RequestPhase.SIGNALLED.value, RequestPhase.SUPERSEDED.value}
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingOutcome:
    """What one pass over a pool saw, decided and counted."""

    backend: "ScalingBackend"
    plan: "ScalingPlan"
    observed: "Sequence[ObservedRequest]"
    history: "Sequence[ShapeHistory]"
    usage: "UsageSample"
    totals: "UsageTotals"
    conditions: "Sequence[Condition]"
    nodes_of_last_hour: "Mapping[str, dt.datetime]" = field(default_factory=dict)


def autoscaling_status(
    outcome: ScalingOutcome, *, recorded: "Sequence[ScaleRequestStatus]", now: dt.datetime
) -> AutoscalingStatus:
    """Return the status that the pool should show.

    Args:
        outcome: what the pass saw, decided and counted.
        recorded: `requests` of the status that it shows.
        now: the time.
    """
    has_prices = bool(outcome.totals.micro_ms)
    return AutoscalingStatus(
        phase=_phase(outcome),
        backend=outcome.backend,
        requests=list(_requests(outcome, recorded, now))[:MOST_REQUESTS] or None,
        shapes=shape_statuses(outcome.history) or None,
        nodes_of_last_hour=counted_statuses(outcome.nodes_of_last_hour) or None,
        usage=usage_statuses(outcome.totals, outcome.usage),
        day=outcome.totals.day.isoformat(),
        other_day=other_day(outcome.totals),
        spent=decimal_text(outcome.totals.spent_micro, MICRO) if has_prices else "",
        counted_at=format_time(outcome.totals.counted_at),
        conditions=list(outcome.conditions),
    )


def write_after_s(current: AutoscalingStatus | None, status: AutoscalingStatus) -> float | None:
    """Return after how many seconds since the last write this status is worth one; None where it is not.

    What happens is written at once. Of a pool without a device nothing is counted, so that it is never written for time.
    """
    if current is None or _without_figures(current) != _without_figures(status):
        return 0.0
    devices = _devices(status)
    if _devices(current) != devices or _messages(current) != _messages(status):
        return FIGURES_S
    return COUNTING_S if any(devices.values()) else None


def _phase(outcome: ScalingOutcome) -> str:
    if outcome.plan.requests or any(item.is_in_flight for item in outcome.observed):
        return "Scaling"
    is_blocked = outcome.plan.waits or outcome.plan.warm_wait is not None
    return "Blocked" if is_blocked else "Idle"


def _requests(
    outcome: ScalingOutcome, recorded: "Sequence[ScaleRequestStatus]", now: dt.datetime
) -> "Iterator[ScaleRequestStatus]":
    assigned = outcome.plan.assigned
    ids = {item.id for item in outcome.observed}
    by_id = {item.id: item for item in recorded}
    for request in outcome.observed:
        yield request_status(request, assigned, recorded=by_id.get(request.id))
    for planned in outcome.plan.requests:
        if planned.id not in ids:
            last = by_id.get(planned.id)
            yield _planned(planned, last.since if last is not None else format_time(now))
    ids |= {item.id for item in outcome.plan.requests}
    for before in recorded:
        if before.id not in ids and before.phase in _UNANSWERED and not before.node_claim:
            was_withdrawn = before.phase == RequestPhase.SUPERSEDED.value
            at = (parse_time(before.since) if was_withdrawn else None) or now
            if now - at < REMEMBERED:
                yield msgspec.structs.replace(
                    before,
                    phase=RequestPhase.SUPERSEDED.value,
                    since=format_time(min(at, now)),
                    pods=0,
                    message="it was withdrawn",
                )


def request_status(
    request: "ObservedRequest",
    assigned: "Mapping[RequestId, tuple[PodUid, ...]]",
    *,
    recorded: ScaleRequestStatus | None = None,
) -> ScaleRequestStatus:
    """Return an observed request as the status shows it; the next pass reads it again."""
    shape, claim, node = request.shape, request.claim, request.node
    message = request.message
    if request.failure is not None:
        message = f"{request.failure.value}: {message}"
    return ScaleRequestStatus(
        id=request.id,
        shape=shape.name if shape is not None else _former_shape(request, recorded),
        phase=request.phase.value,
        node_claim=claim.name if claim is not None else "",
        node=node.name if node is not None else (claim.node if claim is not None else ""),
        units=shape.units if shape is not None else 0,
        pods=len(assigned.get(request.id, ())),
        since=format_time(request.since),
        message=message,
    )


def _former_shape(request: "ObservedRequest", recorded: ScaleRequestStatus | None) -> str:
    """Return the name of a shape that is not in the spec any more: it may come back."""
    named = next((signal.shape for signal in request.signals if signal.shape), "")
    return named or (recorded.shape if recorded is not None else "")


def _planned(request: "NodeRequest", since: str) -> ScaleRequestStatus:
    return ScaleRequestStatus(
        id=request.id,
        shape=request.shape.name,
        phase=RequestPhase.PLANNED.value,
        units=request.shape.units,
        pods=len(request.pods),
        since=since,
        message="the autoscaler is being asked",
    )


def _without_figures(status: AutoscalingStatus) -> AutoscalingStatus:
    conditions = [
        msgspec.structs.replace(condition, message="") for condition in status.conditions or ()
    ]
    return msgspec.structs.replace(
        status, usage=None, other_day=None, day="", spent="", counted_at="", conditions=conditions
    )


def _messages(status: AutoscalingStatus) -> list[str]:
    return [condition.message for condition in status.conditions or ()]


def _devices(status: AutoscalingStatus) -> dict[str, int]:
    return {item.state: item.devices for item in status.usage or ()}
