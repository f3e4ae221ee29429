"""Nodes that a pool got within the last hour: the limit behind all other rules.

Whatever rule is wrong, and whatever an autoscaler or a cloud does, no more nodes are asked for within an hour than
`spec.autoscaling.maxNodesPerHour`. A node counts by the UID of its NodeClaim, or by the id of its request where there is no
NodeClaim, and is kept in `status.autoscaling.nodesOfLastHour`: neither the deletion of the NodeClaim nor a new leader
forgets it.
"""

import datetime as dt
from typing import TYPE_CHECKING, Final

from api.kinds.autoscaling import CountedNode
from api.status_conditions import format_time, parse_time
from autoscaling.request_ids import is_id_of
from autoscaling.scaling_model import RequestPhase

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from autoscaling.scaling_model import ClaimFacts, ObservedRequest, ScalingParameters

HOUR: Final = dt.timedelta(hours=1)
_WITH_NODE: Final = frozenset(
    {
        RequestPhase.REGISTERED,
        RequestPhase.INCOMPLETE,
        RequestPhase.AGENT_READY,
        RequestPhase.RESERVED,
    }
)


def nodes_of_last_hour(
    counted: "Mapping[str, dt.datetime]",
    parameters: "ScalingParameters",
    observed: "Iterable[ObservedRequest]",
    *,
    claims: "Iterable[ClaimFacts]",
    now: dt.datetime,
) -> "dict[str, dt.datetime]":
    """Return the nodes of the last hour with the time of each, the oldest first; as many as the limit, the latest ones.

    Args:
        counted: those of the pass before.
        parameters: the pool's parameters.
        observed: the pool's requests.
        claims: NodeClaims, and the last facts of deleted ones; those of other pools are left out.
        now: the time; a node of a later time, which a clock that was ahead wrote, counts as one of now.
    """
    found = dict(_started_nodes(parameters, observed, claims)) | dict(counted)
    ages = {id_: min(at, now) for id_, at in found.items() if now - at < HOUR}
    latest = sorted(ages.items(), key=lambda age: (age[1], age[0]))[
        -parameters.max_nodes_per_hour :
    ]
    return dict(latest)


def counted_from(nodes: "Iterable[CountedNode] | None") -> "dict[str, dt.datetime]":
    """Return the nodes that a status keeps."""
    return {node.id: at for node in nodes or () if (at := parse_time(node.at)) is not None}


def counted_statuses(counted: "Mapping[str, dt.datetime]") -> list[CountedNode]:
    """Return the nodes as a status keeps them."""
    return [CountedNode(id=id_, at=format_time(at)) for id_, at in counted.items()]


def _started_nodes(
    parameters: "ScalingParameters",
    observed: "Iterable[ObservedRequest]",
    claims: "Iterable[ClaimFacts]",
) -> "Iterator[tuple[str, dt.datetime]]":
    for claim in claims:
        if claim.request is not None and is_id_of(parameters.pool, claim.request):
            yield claim.uid, claim.created
    for request in observed:
        if request.claim is not None:
            yield request.claim.uid, request.claim.created
        elif request.phase in _WITH_NODE:
            yield request.id, request.since
