"""Signatures of reservations, and reservations that another replica made.

Mutation and validation of one pod may be answered by different replicas: leadership may change between the two
calls, and an open connection keeps asking the earlier leader. The validating replica then lacks the
reservation in its ledger. The signature proves that the annotation is from a replica of this control plane,
for this demand in this namespace, and unchanged.
"""

from typing import TYPE_CHECKING, Final

import msgspec

from admission.signed_annotation import has_signature, with_signature

if TYPE_CHECKING:
    from admission.context import AdmissionContext
    from api.annotations import ReservationNote
    from pool.model import Demand

_encode: Final = msgspec.json.Encoder().encode


def signed_text(
    note: "ReservationNote", demand: "Demand", *, namespace: str, context: "AdmissionContext"
) -> str:
    """Return the annotation of a note that is not signed yet, with its signature."""
    return with_signature(_encode(note), _about(demand, namespace), context.sign)


def is_signed(text: str, demand: "Demand", *, namespace: str, context: "AdmissionContext") -> bool:
    """Say whether a replica of this control plane wrote the annotation for this demand and namespace."""
    return has_signature(text, _about(demand, namespace), context.sign)


def _about(demand: "Demand", namespace: str) -> tuple[object, ...]:
    shares = [(share.name, share.role, share.units) for share in demand.containers]
    return namespace, demand.resource, shares
