"""Seals on reservations, and what becomes of one that another replica took.

Mutation and validation of one pod may be answered by different replicas: between the two calls the
lead may pass on, and a connection that stays open keeps asking the replica that led before. Whoever
validates does not have the hold in its ledger then. The seal tells it that the note is ours, is for
this very demand in this namespace, and says what it said when it was written.
"""

import hmac
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from admission.context import AdmissionContext
    from api.annotations import ReservationNote
    from pool.model import Demand


_encode: Final = msgspec.json.Encoder().encode


def sealed_text(
    note: "ReservationNote", demand: "Demand", *, namespace: str, context: "AdmissionContext"
) -> str:
    """Return the annotation that says what the note says, with the seal that it must have.

    The note has none yet. A seal is the last member of the object, so that it is added to the text.
    """
    content = _encode(note)
    seal = _seal_on(content, demand, namespace=namespace, context=context)
    return (b'%b,"seal":%b}' % (content[:-1], _encode(seal))).decode()


def is_sealed(
    note: "ReservationNote", demand: "Demand", *, namespace: str, context: "AdmissionContext"
) -> bool:
    """Say whether a replica of ours wrote this note, for this demand in this namespace."""
    content = _encode(msgspec.structs.replace(note, seal=""))
    seal = _seal_on(content, demand, namespace=namespace, context=context)
    # In constant time: whoever reaches the port can send notes here.
    is_ours = hmac.compare_digest(note.seal.encode("utf-8", "replace"), seal.encode())
    return is_ours and note.seal == seal


def _seal_on(
    content: bytes, demand: "Demand", *, namespace: str, context: "AdmissionContext"
) -> str:
    shares = [(share.name, share.role, share.units) for share in demand.containers]
    return context.seal(_encode((namespace, demand.resource, shares, msgspec.Raw(content))))
