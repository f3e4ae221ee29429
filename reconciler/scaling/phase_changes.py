"""What changed between two looks at the requests of a pool, as metrics: each change counts once, by the status of the look before."""

from typing import TYPE_CHECKING, Final

from api.status_conditions import parse_time
from autoscaling.scaling_model import RequestPhase
from autoscaling.shape_history import failures_seen
from reconciler.scaling.scaling_gauges import (
    CANCELLED,
    count_failure,
    count_result,
    observe_phase,
    observe_provision,
)

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence

    from api.kinds.autoscaling import ScaleRequestStatus
    from api.names import PoolName
    from autoscaling.scaling_model import ObservedRequest

_READY: Final = frozenset({RequestPhase.AGENT_READY, RequestPhase.RESERVED})
_ASKED: Final = frozenset({RequestPhase.PLANNED.value, RequestPhase.SIGNALLED.value})
_PHASES: Final = {item.value: item for item in RequestPhase}


def count_changes(
    pool: "PoolName",
    observed: "Sequence[ObservedRequest]",
    known: "Sequence[ScaleRequestStatus]",
) -> None:
    """Count phases that ended, nodes that came, requests that failed or were withdrawn."""
    before = {item.id: item for item in known}
    for request in failures_seen(observed, known):
        if request.failure is not None:
            count_failure(pool, request.failure)
    for request in observed:
        shown = before.pop(request.id, None)
        if shown is None or shown.phase == request.phase.value:
            continue
        _count_end(shown, request)
        if request.phase in _READY and _PHASES.get(shown.phase) not in _READY:
            observe_provision(pool, (request.since - _asked_at(request)).total_seconds())
    for shown in before.values():
        if shown.phase in _ASKED and not shown.node_claim:
            count_result(pool, CANCELLED)


def _count_end(shown: "ScaleRequestStatus", request: "ObservedRequest") -> None:
    phase, since = _PHASES.get(shown.phase), parse_time(shown.since)
    if phase is not None and since is not None:
        observe_phase(phase, max(0.0, (request.since - since).total_seconds()))


def _asked_at(request: "ObservedRequest") -> "dt.datetime":
    """Return when the node was asked for: by its signal, or as far as its NodeClaim shows."""
    times = [signal.created for signal in request.signals]
    if request.claim is not None:
        times.append(request.claim.created)
    return min((*times, request.since))
