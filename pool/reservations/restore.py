"""Restoring: the hold that an earlier process wrote into a pod's annotation, while it is still good.

Nothing is repaired: a note that does not hold any more leaves its pod without a hold.
"""

from typing import TYPE_CHECKING

from api.names import NodeName, ReservationId
from pool.placement.planner import is_intact
from pool.reservations.reservation import Reservation, ReservationPhase

if TYPE_CHECKING:
    from pool.index.device_index import DeviceIndex
    from pool.model import Instant, PodFacts


def restored_reservation(
    facts: "PodFacts", index: "DeviceIndex", now: "Instant"
) -> Reservation | None:
    """Return the hold that a pending pod's note describes, if it may be taken up as it was.

    Its time is what it had left by the wall clock, at most the pool's TTL; its units must all be
    there, healthy, cut the same way, and no bound pod's; that no reservation has them is for the caller
    to see. A pool that gives out nothing takes up nothing.
    """
    note = facts.reservation
    pool = index.pool_of(facts.demand.resource)
    if note is None or pool is None or note.pool != pool.name or note.expires_at is None:
        return None
    if pool.closed is not None:
        return None
    left_s = min((note.expires_at - now.utc).total_seconds(), float(pool.ttl_s))
    hold = Reservation(
        id=ReservationId(note.id),
        pool=pool.name,
        demand=facts.demand,
        namespace=facts.namespace,
        name=facts.name,
        uid=facts.uid,
        node=NodeName(note.node) if note.node else None,
        devices=note.devices,
        phase=ReservationPhase.CONFIRMED,
        created_at=now.monotonic,
        expires_at=now.monotonic + left_s,
        observe_by=now.monotonic,
    )
    return hold if left_s > 0 and _is_good(hold, index) else None


def _is_good(hold: Reservation, index: "DeviceIndex") -> bool:
    if hold.node is None or len(hold.units) != hold.demand.units:
        return False
    given = {name: len(units) for name, units in hold.devices.items()}
    if given != {one.name: one.units for one in hold.demand.containers}:
        return False
    entries = index.devices_on(hold.pool, hold.node)
    masks = index.claims.masks_of(hold.units)
    return is_intact(hold.devices, masks, entries)
