"""The annotation that describes a reservation, and restoration of one that an earlier process wrote there.

A restored reservation is still valid. Nothing is repaired: an annotation that is no longer valid leaves its pod without a reservation.
"""

import datetime as dt
from typing import TYPE_CHECKING

from api.annotations import ReservationNote
from api.names import NodeName, ReservationId
from pool.placement.planner import is_intact
from pool.reservations.reservation import Reservation, ReservationPhase

if TYPE_CHECKING:
    from api.clock import Instant
    from pool.index.figures import IndexFigures
    from pool.model import PodFacts


def note_of(reservation: Reservation, now: "Instant") -> ReservationNote:
    """Return the annotation's content, unsigned."""
    if reservation.node is None:
        return ReservationNote(id=reservation.id, pool=reservation.pool)
    return ReservationNote(
        id=reservation.id,
        pool=reservation.pool,
        node=reservation.node,
        devices=reservation.devices,
        expires_at=now.utc + dt.timedelta(seconds=reservation.expires_at - now.monotonic),
    )


def restored_reservation(
    facts: "PodFacts", index: "IndexFigures", now: "Instant"
) -> Reservation | None:
    """Return the reservation that a pending pod's annotation describes, if it is still valid.

    Its time is what was left by the wall clock, at most the pool's TTL. Its units must all exist, be healthy and
    partitioned the same way, and belong to no bound pod; the caller checks other reservations. A pool that allocates
    no units restores none.
    """
    note = facts.reservation
    pool = index.pool_of(facts.demand.resource)
    if note is None or pool is None or note.pool != pool.name or note.expires_at is None:
        return None
    if pool.closed is not None:
        return None
    left_s = min((note.expires_at - now.utc).total_seconds(), float(pool.ttl_s))
    reservation = Reservation(
        id=ReservationId(note.id),
        pool=pool.name,
        demand=facts.demand,
        namespace=facts.namespace,
        name=facts.name,
        uid=facts.uid,
        peer=facts.peer,
        node=NodeName(note.node) if note.node else None,
        devices=note.devices,
        phase=ReservationPhase.CONFIRMED,
        created_at=now.monotonic,
        expires_at=now.monotonic + left_s,
        observe_by=now.monotonic,
    )
    return reservation if left_s > 0 and _is_valid(reservation, index) else None


def _is_valid(reservation: Reservation, index: "IndexFigures") -> bool:
    if reservation.node is None or len(reservation.units) != reservation.demand.units:
        return False
    counts = {name: len(units) for name, units in reservation.devices.items()}
    if counts != {container.name: container.units for container in reservation.demand.containers}:
        return False
    entries = index.devices_on(reservation.pool, reservation.node)
    masks = index.claims.masks_of(reservation.units)
    return is_intact(reservation.devices, masks, entries)
