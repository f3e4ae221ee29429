"""What became of requests for nodes: phases, deadlines and failures, from signals, NodeClaims and Nodes.

A phase is derived from the objects in each pass, so that a restart loses nothing; of the pass before, as
`status.autoscaling.requests` keeps it, only the times, the shapes and what is gone since are used. A phase goes back in two
cases: a request that failed has a NodeClaim again, and a node that was ready is not.

Times: one in the future, of a clock that was ahead, counts as now, so that nothing is overdue because of it. A clock that
jumps ahead ends requests without a NodeClaim or without a Node, which costs a new signal. It deletes no NodeClaim:
controller nodeclaim.watch measures that time by a clock that does not jump.
"""

from typing import TYPE_CHECKING

from autoscaling import scaling_model
from autoscaling.request_ids import is_id_of
from autoscaling.request_state import NOT_OURS, ON_ITS_WAY, RequestState, RequestTrace

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from api.kinds.autoscaling import ScaleRequestStatus


def observed_requests(  # noqa: PLR0913  # the kinds of objects that a request leaves
    parameters: "scaling_model.ScalingParameters",
    *,
    signals: "Iterable[scaling_model.SignalFacts]",
    claims: "Iterable[scaling_model.ClaimFacts]",
    nodes: "Mapping[scaling_model.RequestId, scaling_model.RequestedNode]",
    now: "dt.datetime",
    recorded: "Sequence[ScaleRequestStatus]",
    deleted: "Iterable[scaling_model.ClaimFacts]" = (),
) -> "tuple[scaling_model.ObservedRequest, ...]":
    """Return the requests of a pool that left a trace in the API, in the order of their ids.

    Requests whose node was handed over are not among them.

    Args:
        parameters: the pool's parameters.
        signals: signals of the pool.
        claims: NodeClaims; those of other pools are left out.
        nodes: Nodes of the pool's requests.
        now: the time.
        recorded: the pool's `status.autoscaling.requests`.
        deleted: last facts of NodeClaims that were deleted.
    """
    before = {scaling_model.RequestId(item.id): item for item in recorded}
    traces: dict[scaling_model.RequestId, RequestTrace] = {}

    def trace(request: scaling_model.RequestId) -> RequestTrace:
        return traces.setdefault(request, RequestTrace(request, [], [], []))

    for signal in signals:
        trace(signal.request).signals.append(signal)
    for request in nodes:
        trace(request)
    for request, status in before.items():
        if status.node_claim and status.phase in ON_ITS_WAY:
            trace(request)
    for into, found in (("claims", claims), ("deleted", deleted)):
        for claim in found:
            request_id = claim.request
            if request_id is None:
                continue
            if (
                request_id in traces
                or request_id in before
                or is_id_of(parameters.pool, request_id)
            ):
                getattr(trace(request_id), into).append(claim)
    states = (
        RequestState(parameters, traces[item], nodes.get(item), before.get(item), now).observed()
        for item in sorted(traces)
    )
    return tuple(state for state in states if state is not None)


def foreign_claims(
    observed: "Iterable[scaling_model.ObservedRequest]",
) -> "Iterator[scaling_model.ClaimFacts]":
    """Yield NodeClaims on their way with the label of a request that this control plane did not make."""
    for request in observed:
        if request.message.startswith(NOT_OURS) and request.claim is not None:
            yield request.claim
