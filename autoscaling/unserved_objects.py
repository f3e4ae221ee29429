"""CapacityBuffers and static NodePools for which Karpenter does nothing: its feature gate is off, or it does not run.

Whether a gate is set cannot be asked. Without `CapacityBuffer` Karpenter writes no condition to a buffer. Without
`StaticCapacity` a NodePool with replicas is valid and Ready, `status.nodes` is 0, and no NodeClaim is made (v1.14.1:
`pkg/controllers/controllers.go` leaves the controllers out, and the provisioner skips such a NodePool).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from autoscaling.request_look import ANSWERED_WITHIN
from autoscaling.scaling_model import RequestPhase

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Mapping

    from autoscaling.scaling_model import ClaimFacts, NodePoolFacts, ObservedRequest


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BufferFacts:
    """A CapacityBuffer, as observed."""

    name: str
    created: "dt.datetime"
    generation: int
    answered: int = 0
    """`observedGeneration` of its conditions, the latest; 0: there is no condition."""


@final
@dataclass(frozen=True, slots=True)
class UnansweredBuffer:
    """Since when a buffer has no condition of its generation."""

    since: "dt.datetime"
    answered: int
    """`observedGeneration` of its conditions; 0: there is none."""

    def is_overdue(self, now: "dt.datetime") -> bool:
        return now - self.since >= ANSWERED_WITHIN


def unanswered_buffers(
    buffers: "Iterable[BufferFacts]",
    before: "Mapping[str, UnansweredBuffer]",
    *,
    now: "dt.datetime",
) -> "dict[str, UnansweredBuffer]":
    """Return the buffers that Karpenter has not answered, by name.

    A buffer without any condition waits since its creation, so that a restart changes nothing. One whose gate was turned
    off later has conditions of an older generation, and waits since it was first seen so.

    Args:
        buffers: the buffers of a pool.
        before: what this returned at the look before.
        now: the time.
    """
    found: dict[str, UnansweredBuffer] = {}
    for one in buffers:
        if one.answered >= one.generation:
            continue
        since, known = now, before.get(one.name)
        if not one.answered:
            since = min(one.created, now)
        elif known is not None and known.answered == one.answered:
            since = min(known.since, now)
        found[one.name] = UnansweredBuffer(since, one.answered)
    return found


def unserved_node_pools(
    requests: "Iterable[ObservedRequest]",
    node_pools: "Mapping[str, NodePoolFacts]",
    claims: "Iterable[ClaimFacts]",
    *,
    now: "dt.datetime",
) -> tuple[str, ...]:
    """Return the static NodePools whose replicas Karpenter does not follow, by name.

    A NodePool that is not Ready, or has reached its limit of nodes, gets no NodeClaim though the gate is set, and one that
    got a NodeClaim since the request is served.

    Args:
        requests: of pools with backend karpenter-static; their times are those of the status, which outlives a restart.
        node_pools: NodePools by name.
        claims: all NodeClaims, also those that are being deleted, which count for the limit.
        now: the time.
    """
    asked_at: dict[str, dt.datetime] = {}
    for one in requests:
        if one.phase is RequestPhase.SIGNALLED and one.shape is not None:
            name = one.shape.node_pool
            asked_at[name] = min(asked_at.get(name, one.since), one.since)
    made: dict[str, list[ClaimFacts]] = {name: [] for name in asked_at}
    for claim in claims:
        if claim.node_pool in made:
            made[claim.node_pool].append(claim)
    return tuple(
        name
        for name, since in sorted(asked_at.items())
        if now - since >= ANSWERED_WITHIN
        and _can_grow(node_pools.get(name), len(made[name]))
        and not any(claim.created > since for claim in made[name])
    )


def _can_grow(facts: "NodePoolFacts | None", count: int) -> bool:
    if facts is None or facts.ready.status == "False":
        return False
    limit = facts.limits.get("nodes")
    return limit is None or count < limit
