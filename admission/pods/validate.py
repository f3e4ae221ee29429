"""Pod validation: checks of the final pod.

A pod of a pool must have passed mutation. Its reservation gets the pod's name and uid, which are final now. Only
CREATE is validated: a pod's demand cannot change later, and its labels and finalizers must stay changeable, also
after the rules here have changed.
"""

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from msgspec import structs

from admission.decision import NOT_READY, Admitted, Decision, Denied
from admission.pods.baseline import baseline_denial, baseline_warnings
from admission.pods.patch import WRITTEN_LATER
from admission.pods.request import node_preset_denial
from admission.pods.signature import is_signed
from admission.pods.size_limits import size_denial
from api.annotations import decode_reservation
from api.names import (
    POOL_LABEL,
    RESERVATION_ANNOTATION,
    PodUid,
    ReservationId,
)
from api.text import truncate
from pool.model import Demand, PodFacts, PodPhase
from pool.placement.planner import Placed
from pool.reservations.conflicts import conflicts
from pool.reservations.reservation import PlacementRequest
from pool.reservations.restore import restored_reservation
from telemetry.reasons import RefusalReason

if TYPE_CHECKING:
    from admission.context import AdmissionContext
    from admission.pods.request import PodRequest
    from api.annotations import ReservationNote

_MUTATED_LATER: Final = (
    "another mutating webhook changed the pod after gpu-control-plane's; let its configuration sort before"
    " the one of gpu-control-plane, or leave pool resources and gpu.deckhouse.io annotations to the"
    " pod's author"
)


def validate(request: "PodRequest", context: "AdmissionContext") -> Decision:
    """Admit the pod as it will be stored, or deny it. Idempotent for a uid.

    A mirror pod is left alone, as by the webhook's condition for pods without the pool's label.
    """
    if request.is_mirror:
        return Admitted()
    annotations = request.pod.metadata.annotations or {}
    for key in WRITTEN_LATER:
        if key in annotations:
            text = f"annotation {key} is written by gpu-control-plane alone; {_MUTATED_LATER}"
            return Denied(RefusalReason.FORGED_ANNOTATION, text)
    demand = request.demand()
    match demand:
        case None:
            return Admitted()
        case Denied():
            return demand
        case Demand():  # pragma: no branch  # mypy proves that no case is missing
            decision = (
                node_preset_denial(request.pod)
                or size_denial(request.pod, demand)
                or _admit(request, demand, context)
            )
            return structs.replace(decision, facts={"units": demand.units, **decision.facts})


def _admit(request: "PodRequest", demand: Demand, context: "AdmissionContext") -> Decision:
    if not context.is_ready():
        return NOT_READY
    served = context.served_pool(demand.resource)
    note = decode_reservation(request.pod.metadata.annotation(RESERVATION_ANNOTATION))
    if served is None or note is None or note.pool != served[0].name:
        text = (
            f"the pod asks for {truncate(demand.resource)}, but carries no reservation for it,"
            f" so that it was not admitted as it is: {_MUTATED_LATER}"
        )
        return Denied(RefusalReason.NOT_ADMITTED, text)
    facts, pool = served
    if request.pod.metadata.label(POOL_LABEL) != pool.name:
        text = f"label {POOL_LABEL} must be {pool.name}, as admission set it: {_MUTATED_LATER}"
        return Denied(RefusalReason.NOT_ADMITTED, text)
    denied = baseline_denial(request, pool)  # by a later webhook
    if denied is not None:
        return denied
    refusal = None if request.is_dry_run else _tie(request, demand, note, context=context)
    if refusal is not None:
        return refusal
    return Admitted(
        warnings=baseline_warnings(request, pool),
        facts={"pool": facts.name, "reservation": note.id, "node": note.node},
    )


def _tie(
    request: "PodRequest", demand: Demand, note: "ReservationNote", *, context: "AdmissionContext"
) -> Denied | None:
    """Give the reservation the pod's uid, or return why it is not this pod's."""
    meta = request.pod.metadata
    if not meta.uid or not meta.name:
        return Denied(
            RefusalReason.MALFORMED_REQUEST,
            "metadata.name and metadata.uid are final at validation, but one of them is missing",
        )
    id_ = ReservationId(note.id)
    reservation = context.reader.ledger.get(id_)
    if reservation is None:
        return _adopt(request, demand, note, context=context)
    if reservation.namespace != request.namespace:
        return _not_admitted(note, "belongs to a pod of another namespace")
    if (reservation.pool, reservation.demand) != (note.pool, demand):
        return _not_admitted(note, f"is for other resources: {_MUTATED_LATER}")
    if not context.allocation_state.tie(id_, PodUid(meta.uid), name=meta.name, now=context.now()):
        return _not_admitted(note, "belongs to another pod; create the pod without its annotation")
    return None


def _adopt(
    request: "PodRequest", demand: Demand, note: "ReservationNote", *, context: "AdmissionContext"
) -> Denied | None:
    """Take over a reservation of another replica while its units are free; deny one that no replica made.

    Where nothing is left of it, its time included, the pod is admitted without units: the clocks of two replicas may
    differ by more than a short TTL. The time is no guard against a replayed annotation, and need not be: mutation
    replaces a pod's annotation, and a reservation without units never ends.
    """
    now = context.now()
    text = request.pod.metadata.annotation(RESERVATION_ANNOTATION) or ""
    if not is_signed(text, demand, namespace=request.namespace, context=context):
        return _not_admitted(note, "was not made for this pod; create the pod again")
    pool = context.index.pool_of(demand.resource)
    if pool is None or not context.may_reserve():
        return None
    meta = request.pod.metadata
    facts = PodFacts(
        uid=PodUid(meta.uid),
        namespace=request.namespace,
        name=meta.name,
        demand=demand,
        phase=PodPhase.PENDING,
        reservation=note,
    )
    reservation = restored_reservation(facts, context.index, now)
    if (
        reservation is not None
        and reservation.node is not None
        and not conflicts(reservation, context.index)
    ):
        left_s = math.ceil(reservation.expires_at - now.monotonic)
        placement = PlacementRequest(
            id=reservation.id,
            pool=replace(pool, ttl_s=left_s),
            demand=demand,
            namespace=request.namespace,
            name=meta.name,
        )
        context.allocation_state.reserve(
            placement, Placed(pool.name, reservation.node, reservation.devices), now
        )
        context.allocation_state.tie(reservation.id, facts.uid, name=meta.name, now=now)
    return None


def _not_admitted(note: "ReservationNote", cause: str) -> Denied:
    text = f"reservation {truncate(note.id)} in annotation {RESERVATION_ANNOTATION} {cause}"
    return Denied(RefusalReason.NOT_ADMITTED, text)
