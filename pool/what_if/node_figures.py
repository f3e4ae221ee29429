"""Figures of a pool's nodes for one waiting pod, and the pods that have their units."""

from typing import TYPE_CHECKING

import msgspec

from api.names import PodUid, ReservationId
from pool.compute_resources import NOTHING
from pool.index.node_view import PoolNode, refusal_of
from pool.what_if.exclusion import CORDONED, NOT_READY, exclusion_of
from pool.what_if.explanation import NodeExplanation, UnitsHolder

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from api.names import NodeName
    from pool.allocation_reader import AllocationReader
    from pool.index.reader import IndexReader
    from pool.model import Constraints, PodFacts, PoolFacts
    from pool.placement.unit_request import UnitRequest
    from pool.refusal import NodeRefusal
    from pool.reservations.reservation import Reservation


def figures_of_nodes(
    index: "IndexReader", pool: "PoolFacts", pod: "PodFacts", *, constraints: "Constraints"
) -> "list[NodeExplanation]":
    """Return the figures of every node of the pool without holders, most free units first, then by name."""
    state = index.state_for(pool.name, pod.demand)
    request = state.request_of(pod.demand)
    # What is left of CPU and memory is not known where not all pods are read; a place that is missing then is.
    requests = pod.requests if index.requests.is_whole else NOTHING
    found: list[NodeExplanation] = []
    for name, node in _with_missing(index, pool, state.nodes()).items():
        figures = _figures(index, name, node, request=request, constraints=constraints)
        if not figures.exclusion and (shortage := index.shortage(requests, name, without=pod.uid)):
            figures = msgspec.structs.replace(figures, shortage=shortage)
        found.append(figures)
    return sorted(found, key=lambda item: (-item.free, bool(item.exclusion), item.node))


def _with_missing(
    index: "IndexReader", pool: "PoolFacts", nodes: "Mapping[NodeName, PoolNode]"
) -> "Mapping[NodeName, PoolNode]":
    """Count the units that devices lack since others partitioned them among those that are withheld."""
    found = nodes
    for device, count in index.state(pool.name).differing.items():
        name = index.devices[device].facts.node
        node = found.get(name) or PoolNode(0, 0, 0, 0, 0, 0)
        more = {field: getattr(node, field) + count for field in ("total", "unhealthy", "unusable")}
        found = {**found, name: msgspec.structs.replace(node, **more)}
    return found


def _figures(
    index: "IndexReader",
    name: "NodeName",
    node: "PoolNode",
    *,
    request: "UnitRequest",
    constraints: "Constraints",
) -> NodeExplanation:
    facts = index.nodes.get(name)
    exclusion = "node does not exist" if facts is None else exclusion_of(facts, constraints)
    refusal = refusal_of(node, request)
    idle = node.free + node.unconfirmed
    is_open = node.available > 0 and not node.unaccounted
    is_open = is_open and facts is not None and exclusion not in {CORDONED, NOT_READY}
    return NodeExplanation(
        node=name,
        total=node.total,
        free=idle if is_open else 0,
        used=node.used,
        reserved=node.reserved,
        withheld=node.unhealthy + (0 if is_open else idle),
        exclusion=exclusion,
        refusal=refusal,
    )


def refused(
    figures: "Iterable[NodeExplanation]",
) -> "Iterable[tuple[NodeExplanation, NodeRefusal]]":
    """Yield the nodes that the pod may go to and that have no units for it."""
    for figure in figures:
        if not figure.exclusion and figure.refusal is not None:
            yield figure, figure.refusal


def holders_on(
    reader: "AllocationReader",
    index: "IndexReader",
    pool: "PoolFacts",
    *,
    node: "NodeName",
    now: float,
) -> tuple[UnitsHolder, ...]:
    """Return the pods with units of the pool on a node, most units first; holders of unknown devices included."""
    units: dict[PodUid | ReservationId, int] = {}
    for entry in index.devices_on(pool.name, node):
        for holder, item in index.claims.holders(entry).items():
            units[holder] = units.get(holder, 0) + len(item)
    units.update(index.unaccounted.at(pool.resource, node).items())
    found = [units_holder(reader, holder, count, now=now) for holder, count in units.items()]
    return tuple(sorted(found, key=lambda item: (-item.units, item.ref)))


def units_holder(
    reader: "AllocationReader", holder: "PodUid | ReservationId", units: int, *, now: float
) -> UnitsHolder:
    """Return who has units, by the uid of a pod or the id of a reservation."""
    pod = reader.holder(PodUid(holder))
    if pod is not None:
        return holder_of_pod(pod, units=units)
    reservation = reader.ledger.get(ReservationId(holder))
    if reservation is not None:
        return holder_of_reservation(reservation, reader, units=units, now=now)
    return UnitsHolder(namespace="", name="", uid=holder, units=units)


def holder_of_pod(pod: "PodFacts", *, units: int) -> UnitsHolder:
    return UnitsHolder(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        units=units,
        priority=pod.priority,
        created=pod.created,
    )


def holder_of_reservation(
    reservation: "Reservation", reader: "AllocationReader", *, units: int, now: float
) -> UnitsHolder:
    pod = reader.pods.get(reservation.uid) if reservation.uid is not None else None
    expires = reservation.phase.is_uncommitted
    return UnitsHolder(
        namespace=reservation.namespace,
        name=reservation.name,
        uid=reservation.uid or "",
        units=units,
        priority=pod.priority if pod is not None else 0,
        created=pod.created if pod is not None else "",
        is_reserved=True,
        expires_in_s=max(0.0, reservation.expires_at - now) if expires else None,
    )
