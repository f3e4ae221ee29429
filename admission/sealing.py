"""Seals on reservations, and what becomes of one that another replica took.

Mutation and validation of one pod may be answered by different replicas: between the two calls the
lead may pass on, and a connection that stays open keeps asking the replica that led before. Whoever
validates does not have the hold in its ledger then. The seal tells it that the note is ours, is for
this very demand in this namespace, and says what it said when it was written.
"""

import hmac
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from admission.desk import AdmissionDesk
    from api.annotations import ReservationNote
    from pool.model import Demand


def sealed(
    note: "ReservationNote", demand: "Demand", *, namespace: str, desk: "AdmissionDesk"
) -> "ReservationNote":
    """Return the note with the seal that it must have."""
    content = msgspec.structs.replace(note, seal="")
    shares = [(share.name, share.role.value, share.units) for share in demand.containers]
    seal = desk.seal(msgspec.json.encode((namespace, demand.resource, shares, content)))
    return msgspec.structs.replace(note, seal=seal)


def is_sealed(
    note: "ReservationNote", demand: "Demand", *, namespace: str, desk: "AdmissionDesk"
) -> bool:
    """Say whether a replica of ours wrote this note, for this demand in this namespace."""
    true = sealed(note, demand, namespace=namespace, desk=desk)
    # In constant time: whoever reaches the port can send notes here.
    is_ours = hmac.compare_digest(note.seal.encode("utf-8", "replace"), true.seal.encode())
    return is_ours and note == true
