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
_SEAL: Final = ',"seal":'


def signed_text(
    note: "ReservationNote", demand: "Demand", *, namespace: str, context: "AdmissionContext"
) -> str:
    """Return the annotation of a note that is not signed yet, with its signature.

    The signature is the last member of the object, so it is appended to the encoded text.
    """
    content = _encode(note)
    signature = _signature_of(content, demand, namespace=namespace, context=context)
    return f"{content[:-1].decode()}{_SEAL}{_encode(signature).decode()}}}"


def is_signed(text: str, demand: "Demand", *, namespace: str, context: "AdmissionContext") -> bool:
    """Say whether a replica of this control plane wrote the annotation for this demand and namespace.

    The text is verified as it is, not the note that this version reads in it: one of another version has more fields.
    """
    content, separator, seal = text.rpartition(_SEAL)
    if not separator:
        return False
    signed = content.encode("utf-8", "replace") + b"}"
    signature = _signature_of(signed, demand, namespace=namespace, context=context)
    # In constant time: any client that reaches the port can send notes.
    return hmac.compare_digest(seal.encode("utf-8", "replace"), _encode(signature) + b"}")


def _signature_of(
    content: bytes, demand: "Demand", *, namespace: str, context: "AdmissionContext"
) -> str:
    shares = [(share.name, share.role, share.units) for share in demand.containers]
    about = _encode((namespace, demand.resource, shares))
    return context.sign(b"%b,%b]" % (about[:-1], content))
