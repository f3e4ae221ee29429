"""Allocation states with a cluster in them, and the stages of pods' lives."""

import datetime as dt
from typing import TYPE_CHECKING, Any

from api.annotations import ReservationNote
from api.names import NodeName, PodUid, PoolName, ReservationId, UnitId
from pool.admission_rules import IncomingPod
from pool.allocation_state import AllocationState
from pool.model import Constraints, NodeFacts, PodPhase
from pool.placement.planner import Placed
from pool.reservations.reservation import PlacementRequest
from tests.support.builders import EPOCH, a_device, a_node, a_pod_facts, a_pool, at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pool.admission_planner import Exhausted
    from pool.model import Demand, DeviceFacts, PodFacts, PoolFacts
    from pool.reservations.reservation import Ended, Reservation

N1 = NodeName("n1")
N2 = NodeName("n2")
ANYWHERE = Constraints()


def some_allocation_state(
    *pools: "PoolFacts",
    devices: "Iterable[DeviceFacts]" = (),
    nodes: "Iterable[NodeFacts | str]" = ("n1", "n2"),
    on_end: "Callable[[Ended], None] | None" = None,
) -> AllocationState:
    """An allocation state with these objects; one pool of whole devices unless pools are given."""
    allocation_state = AllocationState(on_end=on_end)
    for device in devices:
        allocation_state.index.replace_device(device)
    for pool in pools or (a_pool(),):
        allocation_state.index.replace_pool(pool)
    for node in nodes:
        allocation_state.index.replace_node(node if isinstance(node, NodeFacts) else a_node(node))
    return allocation_state


def some_devices(count: int, node: str = "n1", **changes: Any) -> "list[DeviceFacts]":
    return [a_device(node, index, **changes) for index in range(count)]


def pool_of(allocation_state: AllocationState, pool: str = "whole") -> "PoolFacts":
    facts = allocation_state.index.pool(PoolName(pool))
    assert facts is not None
    return facts


def a_placement_request(
    allocation_state: AllocationState, demand: "Demand", *, id_: str, name: str = "p"
) -> PlacementRequest:
    pool = allocation_state.index.pool_of(demand.resource)
    assert pool is not None
    return PlacementRequest(
        id=ReservationId(id_), pool=pool, demand=demand, namespace="default", name=name
    )


def plan_reservation(
    allocation_state: AllocationState,
    demand: "Demand",
    constraints: Constraints = ANYWHERE,
    **about: Any,
) -> "Placed | Exhausted":
    """Plan as the mutating webhook does, for the first pod of its namespace by default."""
    pool = about.pop("pool", None) or allocation_state.index.pool_of(demand.resource)
    assert pool is not None
    return allocation_state.reader.admission.plan(
        pool, demand, constraints, incoming=IncomingPod(**about)
    )


def reserve(
    allocation_state: AllocationState, demand: "Demand", *, id_: str = "r", seconds: float = 0
) -> "Reservation":
    """Reserve as the mutating webhook does where units are free."""
    request = a_placement_request(allocation_state, demand, id_=id_)
    placed = plan_reservation(allocation_state, demand)
    return allocation_state.reserve(
        request, placed if isinstance(placed, Placed) else None, at(seconds)
    )


def note_of(reservation: "Reservation") -> ReservationNote:
    """The annotation that the mutating webhook writes."""
    if not reservation.has_units:
        return ReservationNote(id=reservation.id, pool=reservation.pool)
    return ReservationNote(
        id=reservation.id,
        pool=reservation.pool,
        node=reservation.node or "",
        devices=reservation.devices,
        expires_at=EPOCH + dt.timedelta(seconds=reservation.expires_at),
    )


def a_reserved_pod(
    allocation_state: AllocationState, name: str = "p", units: int = 1, **changes: Any
) -> "PodFacts":
    """A pending pod whose reservation went all the way: made, tied, observed."""
    pod = a_pod_facts(name, units, **changes)
    reservation = reserve(allocation_state, pod.demand, id_=f"r-{name}")
    allocation_state.tie(reservation.id, pod.uid, name=name, now=at(0))
    pod = a_pod_facts(name, units, **{**changes, "reservation": note_of(reservation)})
    allocation_state.observe_pod(pod, at(0))
    return pod


def commit_to(
    allocation_state: AllocationState, pod: "PodFacts", node: str = "n1", *, seconds: float = 0
) -> "Reservation":
    """Commit as the extender's bind does before it writes."""
    request = a_placement_request(
        allocation_state, pod.demand, id_=f"bind-{pod.uid}", name=pod.name
    )
    placed = allocation_state.reader.plan_bind(
        NodeName(node), request.pool, pod.demand, uid=pod.uid
    )
    assert isinstance(placed, Placed), placed
    return allocation_state.commit(request, placed, uid=pod.uid, now=at(seconds))


def a_bound_pod(name: str = "b", *units: str, node: str = "n1", **changes: Any) -> "PodFacts":
    """A pod that the API server shows as bound to these units; to unknown ones without any."""
    fields: dict[str, Any] = {
        "phase": PodPhase.BOUND,
        "node": NodeName(node),
        "devices": {"c0": units} if units else None,
    }
    return a_pod_facts(name, **{"units": len(units) or 1, **fields, **changes})


def uid_of(name: str) -> PodUid:
    return PodUid(f"uid-{name}")


def unit_ids(*names: str) -> tuple[UnitId, ...]:
    return tuple(UnitId(name) for name in names)
