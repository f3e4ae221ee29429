"""The reservation ledger: reservations by id and by pod uid, with their deadlines.

It knows nothing of devices; `pool.allocation_state` keeps the index's assumed claims equal to it. Every
transition replaces the reservation by a new value. A call that contradicts the lifecycle raises
`InvariantViolatedError`; asking for something that has ended is a value (None).
"""

import heapq
from collections import Counter
from typing import TYPE_CHECKING, Final, final

from msgspec.structs import replace

from api.names import ReservationId
from pool.errors import InvariantViolatedError
from pool.reservations.reservation import End, Ended, Reservation, ReservationPhase

if TYPE_CHECKING:
    from collections.abc import Iterable

    from api.names import PodUid, PoolName
    from pool.model import PodFacts

_FEW_DEADLINES: Final = 4096
"""Stale entries below which no sweep is worth it; beyond them, four for each live reservation."""


@final
class ReservationLedger:
    def __init__(self) -> None:
        self._by_id: dict[ReservationId, Reservation] = {}
        self._id_by_uid: dict[PodUid, ReservationId] = {}
        self._deadlines: list[tuple[float, ReservationId]] = []
        # heap of (deadline, id); an entry is stale when the reservation ended or its deadline moved
        self._unconfirmed: Counter[tuple[PoolName, str]] = Counter()
        # (pool, namespace) -> units of reservations whose pods are not observed yet

    def __len__(self) -> int:
        return len(self._by_id)

    def all(self) -> "Iterable[Reservation]":
        """Return all live reservations, to be read and not kept."""
        return self._by_id.values()

    def get(self, id_: "ReservationId") -> Reservation | None:
        return self._by_id.get(id_)

    def of_pod(self, uid: "PodUid") -> Reservation | None:
        id_ = self._id_by_uid.get(uid)
        return self._by_id[id_] if id_ is not None else None

    def untied(self, id_: "ReservationId") -> Reservation | None:
        """Return a reservation if it has no uid yet."""
        reservation = self._by_id.get(id_)
        return reservation if reservation is not None and reservation.uid is None else None

    def of(self, pod: "PodFacts") -> Reservation | None:
        """Return a pod's reservation: by uid, or the one without uid that its annotation names."""
        reservation = self.of_pod(pod.uid)
        if reservation is None and pod.reservation is not None:
            return self.untied(ReservationId(pod.reservation.id))
        return reservation

    def oldest(self) -> "dict[PoolName, Reservation]":
        """Return each pool's oldest reservation with units; one pass over all of them."""
        oldest: dict[PoolName, Reservation] = {}
        for item in self._by_id.values():
            earlier = oldest.get(item.pool)
            if item.has_units and (earlier is None or item.created_at < earlier.created_at):
                oldest[item.pool] = item
        return oldest

    def unresolved(self) -> list[Reservation]:
        """Return the commitments that the watch has not retired: doubtful and written ones."""
        late = {ReservationPhase.DOUBTFUL, ReservationPhase.BOUND}
        return [item for item in self._by_id.values() if item.phase in late]

    def has_unconfirmed(self) -> bool:
        """Say whether units are reserved for a pod that is not observed yet."""
        return bool(self._unconfirmed)

    def unconfirmed_units(self, pool: "PoolName", namespace: str) -> int:
        """Return the units of a namespace's pods that the API server may never store."""
        return self._unconfirmed[pool, namespace]

    def add(self, reservation: Reservation) -> None:
        """Add a reservation.

        Raises:
            InvariantViolatedError: the id, or the pod, has one already.
        """
        if reservation.id in self._by_id:
            raise InvariantViolatedError(f"reservation {reservation.id} is there already")
        self._put(reservation)

    def tie(self, id_: "ReservationId", uid: "PodUid", *, name: str, observe_by: float) -> None:
        """Set the final name and uid of the pod. Idempotent."""
        reservation = self._require(id_)
        if reservation.uid == uid and reservation.phase is not ReservationPhase.HELD:
            return
        if reservation.phase is not ReservationPhase.HELD:
            raise InvariantViolatedError(f"reservation {id_} is tied to pod uid {reservation.uid}")
        self._put(
            replace(
                reservation,
                uid=uid,
                name=name,
                observe_by=observe_by,
                phase=ReservationPhase.TIED,
            )
        )

    def confirm(self, id_: "ReservationId", uid: "PodUid", name: str) -> None:
        """Record that the watch showed the pod. Idempotent; changes no later phase."""
        reservation = self._require(id_)
        if reservation.uid is not None and reservation.uid != uid:
            raise InvariantViolatedError(f"reservation {id_} is tied to pod uid {reservation.uid}")
        if reservation.phase in {ReservationPhase.HELD, ReservationPhase.TIED}:
            self._put(replace(reservation, uid=uid, name=name, phase=ReservationPhase.CONFIRMED))

    def move(self, reservation: Reservation) -> None:
        """Replace a live reservation by its successor in the lifecycle (commit, write, doubt)."""
        self._require(reservation.id)
        self._put(reservation)

    def end(self, id_: "ReservationId", end: End) -> Ended | None:
        """Remove a reservation; None when it has ended before."""
        reservation = self._by_id.pop(id_, None)
        if reservation is None:
            return None
        if reservation.uid is not None:
            del self._id_by_uid[reservation.uid]
        self._count_unconfirmed(reservation, -1)
        return Ended(reservation, end)

    def due(self, now: float) -> list[tuple[Reservation, End]]:
        """Return the overdue reservations and how each ends; removes nothing."""
        found: list[tuple[Reservation, End]] = []
        seen: set[ReservationId] = set()
        while self._deadlines and self._deadlines[0][0] <= now:
            _, id_ = heapq.heappop(self._deadlines)
            reservation = self._by_id.get(id_)
            if reservation is None or id_ in seen or not reservation.phase.is_uncommitted:
                continue
            deadline, end = _deadline_of(reservation)
            if deadline <= now:
                seen.add(id_)
                found.append((reservation, end))
        for reservation, _ in found:
            heapq.heappush(self._deadlines, (_deadline_of(reservation)[0], reservation.id))
        return found

    def next_deadline(self) -> float | None:
        """Return when `due` may next have something; an estimate that is never late."""
        return self._deadlines[0][0] if self._deadlines else None

    def _require(self, id_: "ReservationId") -> Reservation:
        reservation = self._by_id.get(id_)
        if reservation is None:
            raise InvariantViolatedError(f"reservation {id_} has ended")
        return reservation

    def _put(self, reservation: Reservation) -> None:
        uid = reservation.uid
        if uid is not None:
            owner = self._id_by_uid.setdefault(uid, reservation.id)
            if owner != reservation.id:
                raise InvariantViolatedError(f"pod uid {uid} has reservation {owner} already")
        before = self._by_id.get(reservation.id)
        if before is None or before.phase.is_confirmed is not reservation.phase.is_confirmed:
            self._count_unconfirmed(reservation, +1)
            self._count_unconfirmed(before, -1)
        self._by_id[reservation.id] = reservation
        if reservation.phase.is_uncommitted:
            heapq.heappush(self._deadlines, (_deadline_of(reservation)[0], reservation.id))
            if len(self._deadlines) > _FEW_DEADLINES + 4 * len(self._by_id):
                self._drop_stale_deadlines()

    def _count_unconfirmed(self, reservation: Reservation | None, sign: int) -> None:
        if reservation is None or reservation.phase.is_confirmed or not reservation.has_units:
            return
        key = reservation.pool, reservation.namespace
        self._unconfirmed[key] += sign * reservation.demand.units
        if not self._unconfirmed[key]:
            del self._unconfirmed[key]

    def _drop_stale_deadlines(self) -> None:
        """Keep one entry for each reservation; most end long before their deadline."""
        self._deadlines = [
            (_deadline_of(item)[0], item.id)
            for item in self._by_id.values()
            if item.phase.is_uncommitted
        ]
        heapq.heapify(self._deadlines)


def _deadline_of(reservation: Reservation) -> tuple[float, End]:
    if reservation.phase is ReservationPhase.CONFIRMED:
        return reservation.expires_at, End.EXPIRED
    if reservation.observe_by < reservation.expires_at:
        return reservation.observe_by, End.NOT_OBSERVED
    return reservation.expires_at, End.EXPIRED
