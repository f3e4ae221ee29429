"""Demand of a pod in terms of the existing pools: the first step of every verb."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from api.names import PodUid
from api.text import listed, truncate
from pool.demand import BadQuantity, ManyPools, TooLarge, demand_of
from pool.reservations.reservation import ReservationPhase
from telemetry.reasons import too_large_text

if TYPE_CHECKING:
    from api.names import NodeName
    from pool.allocation_reader import AllocationReader, AlreadyBound
    from pool.index.figures import IndexFigures
    from pool.model import Demand, PoolFacts
    from pool.refusal import NodeRefusal
    from scheduler.codec import ExtenderPod
    from scheduler.context import ExtenderContext
    from scheduler.ports import PodRef


@dataclass(frozen=True, slots=True)
class NoDemand:
    """The pod names no pool; any node fits."""


@dataclass(frozen=True, slots=True)
class ImpossibleDemand:
    """No node can serve the pod, however empty; the text has the reason."""

    text: str


@dataclass(frozen=True, slots=True)
class UnitDemand:
    pool: "PoolFacts"
    demand: "Demand"
    uid: PodUid | None
    """None for a pod that the API server never stored."""


PodDemand = NoDemand | ImpossibleDemand | UnitDemand


def read_pod(pod: "ExtenderPod", index: "IndexFigures") -> PodDemand:
    demand = demand_of(pod.spec, pod.metadata.namespace)
    match demand:
        case None:
            return NoDemand()
        case ManyPools():
            return ImpossibleDemand(
                f"the pod names several GPU pools ({listed(demand.resources)}); only one is possible"
            )
        case BadQuantity():
            return ImpossibleDemand(
                f'container {truncate(demand.container)}: {truncate(demand.resource)} is "{truncate(demand.value)}", '
                "not a whole number"
            )
        case TooLarge():
            return ImpossibleDemand(too_large_text(demand))
        case _:
            return _unit_demand(
                demand, index, PodUid(pod.metadata.uid) if pod.metadata.uid else None
            )


def remember_pod(pod: "ExtenderPod", asked: PodDemand, context: "ExtenderContext") -> None:
    """Keep the demand that filter read in a stored pod's spec, for the bind that follows."""
    if not pod.metadata.uid:
        return
    match asked:
        case NoDemand():
            context.recent.record_demand(PodUid(pod.metadata.uid), None)
        case UnitDemand(demand=demand):
            context.recent.record_demand(PodUid(pod.metadata.uid), demand)
        case ImpossibleDemand():
            pass  # no node passes, so that no bind follows


def recall_pod(pod: "PodRef", context: "ExtenderContext") -> PodDemand | None:
    """Return the demand of a pod known by its uid alone; None when its spec was not seen.

    The watch and filter read the stored pod; the ledger has the demand at admission, which validation compared with
    the final pod.
    """
    observed = context.reader.pods.get(pod.uid)
    if observed is not None:
        return _unit_demand(observed.demand, context.index, pod.uid)
    if context.recent.has_demand(pod.uid):
        demand = context.recent.demand(pod.uid)
        return NoDemand() if demand is None else _unit_demand(demand, context.index, pod.uid)
    reservation = context.reader.ledger.of_pod(pod.uid)
    if reservation is not None:
        return _unit_demand(reservation.demand, context.index, pod.uid)
    return None


def _unit_demand(
    demand: "Demand", index: "IndexFigures", uid: PodUid | None
) -> UnitDemand | ImpossibleDemand:
    pool = index.pool_of(demand.resource)
    if pool is None:
        return ImpossibleDemand(f"no GPUPool serves {demand.resource}")
    return UnitDemand(pool, demand, uid)


def own_node(
    asked: UnitDemand, reader: "AllocationReader"
) -> "tuple[NodeName | None, NodeRefusal | None]":
    """Return the node of the pod's own reservation, and why it cannot take the pod even so.

    Views count a pod's own reservation against it; this is the one node where that has to be undone.
    """
    reservation = reader.ledger.of_pod(asked.uid) if asked.uid is not None else None
    if reservation is None or reservation.node is None:
        return None, None
    return reservation.node, reader.refusal_on(
        reservation.node, asked.pool, asked.demand, uid=asked.uid
    )


def binding_text(bound: "AlreadyBound") -> str:
    """Return where a pod is bound, and how certain that is."""
    reservation = bound.reservation
    match reservation.phase if reservation is not None else None:
        case ReservationPhase.COMMITTED:
            return f"its binding to node {bound.node} is under way"
        case ReservationPhase.DOUBTFUL:
            return f"its binding to node {bound.node} is in doubt"
        case _:
            return f"it is bound to node {bound.node}"
