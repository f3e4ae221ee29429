"""Signatures of reservations, and reservations that another replica made.

Mutation and validation of one pod may be answered by different replicas: leadership may change between the two
calls, and an open connection keeps asking the earlier leader. The validating replica then lacks the
reservation in its ledger. The signature proves that the annotation is from a replica of this control plane,
for this demand in this namespace, and unchanged.
"""

import hmac
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from admission.context import AdmissionContext
    from api.annotations import ReservationNote
    from pool.model import Demand


_encode: Final = msgspec.json.Encoder().encode


def signed_text(
    note: "ReservationNote", demand: "Demand", *, namespace: str, context: "AdmissionContext"
) -> str:
    """Return the annotation of a note that is not signed yet, with its signature.

    The signature is the last member of the object, so it is appended to the encoded text.
    """
    content = _encode(note)
    signature = _signature_of(content, demand, namespace=namespace, context=context)
    return (b'%b,"seal":%b}' % (content[:-1], _encode(signature))).decode()


def is_signed(
    note: "ReservationNote", demand: "Demand", *, namespace: str, context: "AdmissionContext"
) -> bool:
    """Say whether a replica of this control plane wrote the note for this demand and namespace."""
    content = _encode(msgspec.structs.replace(note, signature=""))
    signature = _signature_of(content, demand, namespace=namespace, context=context)
    # In constant time: any client that reaches the port can send notes.
    is_ours = hmac.compare_digest(note.signature.encode("utf-8", "replace"), signature.encode())
    return is_ours and note.signature == signature


def _signature_of(
    content: bytes, demand: "Demand", *, namespace: str, context: "AdmissionContext"
) -> str:
    shares = [(share.name, share.role, share.units) for share in demand.containers]
    return context.sign(_encode((namespace, demand.resource, shares, msgspec.Raw(content))))
