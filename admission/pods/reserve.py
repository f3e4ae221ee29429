"""Reservation of units for a pod at admission, and the annotation that describes it.

`request.uid` is new at every call, so only the id in the annotation tells a reinvocation (after another mutator)
from a new pod. An id that the ledger does not have as a reservation of this namespace without uid is forged, or
copied from an older pod.
"""

import datetime as dt
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from admission.decision import Admitted, Denied
from admission.pods.capacity_denial import exceeds
from admission.pods.patch import annotate, gate, ungate
from admission.pods.signature import is_signed, signed_text
from api.annotations import ReservationNote, decode_reservation
from api.kinds.gpupool import WhenExhausted
from api.names import CAPACITY_GATE, RESERVATION_ANNOTATION, ReservationId
from api.text import units
from pool.admission_planner import Exhausted
from pool.admission_rules import Deferral, IncomingPod
from pool.index.cache_fit import fits_no_device
from pool.reservations.reservation import PlacementRequest, Reservation, ReservationPhase
from pool.reservations.restore import note_of
from telemetry.reasons import RefusalReason

if TYPE_CHECKING:
    from admission.context import AdmissionContext
    from admission.decision import Decision
    from admission.pods.request import PodRequest, PoolPod
    from api.clock import Instant
    from pool.model import Capacity, PoolFacts
    from pool.placement.planner import Placed
    from pool.refusal import CacheIncompatibility

DRY_RUN_ID: Final = ReservationId("dry-run")
"""Stands for the id of a dry run, which reserves nothing."""

_SAME_EXPIRY: Final = dt.timedelta(seconds=1)
"""Expiry is kept on the monotonic clock; converted back to UTC it differs by rounding."""


class _Planned(msgspec.Struct, frozen=True):
    """Units for a pod, or what it waits for."""

    placed: "Placed | None" = None
    warnings: tuple[str, ...] = ()
    awaits_capacity: bool = False


_NOTHING: Final = _Planned()


def reserve(pod: "PoolPod", context: "AdmissionContext") -> "Decision":
    """Reserve units for the pod, or keep its reservation; the decision's patch writes the annotation.

    A dry run plans and reserves nothing. A replica that does not lead reserves nothing either, but admits
    or denies by its caches. A gated pod gets a reservation without units: its gate (a queue, a quota) may
    stay for hours, and reserved devices would be idle for the TTL and then be released.

    Where no node has units and the pool scales, the pod gets the gate of autoscaling and no units: kube-scheduler and
    node autoscalers do not see it until units are reserved for it. A pod with gates of others gets none of ours: once
    theirs are gone it is an ordinary waiting pod, for which autoscaling asks for a node.
    """
    now = context.now()
    request = pod.request
    existing = _existing_reservation(request, context)
    if existing is not None and not request.is_dry_run:
        if (existing.pool, existing.demand) == (pod.pool.name, pod.demand):
            return _with_current_annotation(pod, existing, context, now=now)
        context.allocation_state.withdraw(existing.id)
    planned = _plan(pod, context)
    if isinstance(planned, Denied):
        return planned
    if request.is_dry_run:
        note = ReservationNote(id=DRY_RUN_ID, pool=pod.pool.name)
        planned = replace(planned, placed=None)
        return _admitted(pod, note, note.encode(), planned=planned)
    placement = PlacementRequest(
        id=context.new_id(),
        pool=pod.pool,
        demand=pod.demand,
        namespace=request.namespace,
        name=request.pod.metadata.name,
        peer=pod.constraints.peer,
    )
    reservation = context.allocation_state.reserve(
        placement, planned.placed if context.may_reserve() else None, now
    )
    note = note_of(reservation, now)
    annotation = _annotation_of(note, reservation, context)
    return _admitted(pod, note, annotation, planned=planned)


def _admitted(
    pod: "PoolPod", note: ReservationNote, annotation: str, *, planned: _Planned
) -> Admitted:
    placed, spec = planned.placed, pod.request.pod.spec
    facts: dict[str, object] = {
        "pool": pod.pool.name,
        "reservation": note.id,
        "node": note.node,
    }
    if placed is not None:
        facts["strategy"] = pod.pool.strategy.value
        if placed.value_lost is not None:
            facts["value_lost"] = placed.value_lost
    if planned.awaits_capacity:
        facts["gate"] = CAPACITY_GATE
    gating = gate(spec) if planned.awaits_capacity else ungate(spec)
    return Admitted(
        patch=(*annotate(pod.request.pod.metadata, annotation), *gating),
        warnings=planned.warnings,
        audit={"pool": pod.pool.name, "reservation": note.id},
        facts=facts,
    )


def _plan(pod: "PoolPod", context: "AdmissionContext") -> "_Planned | Denied":
    """Choose units, or return why the pod waits or is denied."""
    pool, demand = pod.pool, pod.demand
    if pod.request.is_gated:
        return exceeds(pool, demand, context) or _NOTHING
    incoming = IncomingPod(
        namespace=pod.request.namespace,
        priority=pod.request.pod.spec.priority or 0,
        now=context.now().monotonic,
    )
    plan = context.reader.admission.plan(pool, demand, pod.constraints, incoming=incoming)
    if not isinstance(plan, Exhausted):
        return _Planned(placed=plan)
    if plan.deferral is not None:
        is_behind = plan.deferral is Deferral.WAITING_PODS  # other deferrals end within moments
        return _Planned(
            warnings=_deferral_warnings(pool, plan.deferral),
            awaits_capacity=is_behind and _awaits_capacity(pod, context),
        )
    exceeding = exceeds(pool, demand, context)
    if exceeding is not None:
        return exceeding
    match pool.when_exhausted:
        case WhenExhausted.PEND:
            awaits_capacity = _awaits_capacity(pod, context)
            incompatibility = fits_no_device(context.index, pool.name, demand)
            text = (
                _waiting_text(pool, plan)
                if incompatibility is None
                else _incompatibility_text(pool, incompatibility)
            )
            if awaits_capacity:
                text = f"{text}; Events of the pod say which node comes"
            return _Planned(warnings=(text,), awaits_capacity=awaits_capacity)
        case WhenExhausted.REJECT:  # pragma: no branch  # mypy proves that no case is missing
            incompatibility = fits_no_device(context.index, pool.name, demand)
            return (
                _insufficient(pool, plan)
                if incompatibility is None
                else _incompatible(pool, incompatibility)
            )


def _awaits_capacity(pod: "PoolPod", context: "AdmissionContext") -> bool:
    """Say whether autoscaling is to find units for a pod that has to wait.

    A pod that could preempt others goes to kube-scheduler, which alone may evict them; where it does not, the pod
    waits in its queue and counts for autoscaling all the same. So does a pod that was not compared with every node.
    """
    if not pod.pool.scales:
        return False
    required, spec = pod.constraints.required, pod.request.pod.spec
    if required is not None and required.is_exhausted:
        return False
    could_preempt = context.reader.pods.could_preempt(pod.pool.resource, spec.priority or 0)
    return not (could_preempt and spec.preemption_policy != "Never")


def _existing_reservation(
    request: "PodRequest", context: "AdmissionContext"
) -> "Reservation | None":
    """Return the reservation of an earlier call for the same pod."""
    note = decode_reservation(request.pod.metadata.annotation(RESERVATION_ANNOTATION))
    if note is None:
        return None
    reservation = context.reader.ledger.get(ReservationId(note.id))
    if reservation is None or reservation.phase is not ReservationPhase.HELD:
        return None
    return reservation if reservation.namespace == request.namespace else None


def _with_current_annotation(
    pod: "PoolPod", reservation: "Reservation", context: "AdmissionContext", *, now: "Instant"
) -> Admitted:
    """Keep the annotation while it is true, which another client may have changed."""
    request = pod.request
    current = note_of(reservation, now)
    text = request.pod.metadata.annotation(RESERVATION_ANNOTATION)
    note = decode_reservation(text)
    if (
        text is None
        or note is None
        or not _agree(note, current)
        or not is_signed(text, pod.demand, namespace=request.namespace, context=context)
    ):
        text = _annotation_of(current, reservation, context)
    planned = _Planned(awaits_capacity=_is_gated_still(pod, reservation))
    return _admitted(pod, current, text, planned=planned)


def _is_gated_still(pod: "PoolPod", reservation: "Reservation") -> bool:
    """Say whether an earlier call has gated the pod, which has no units."""
    gates = pod.request.pod.spec.scheduling_gates or ()
    return not reservation.has_units and any(item.name == CAPACITY_GATE for item in gates)


def _agree(note: ReservationNote, current: ReservationNote) -> bool:
    if (note.pool, note.node, note.devices) != (current.pool, current.node, current.devices):
        return False
    if note.expires_at is None or current.expires_at is None:
        return note.expires_at is current.expires_at
    return abs(note.expires_at - current.expires_at) <= _SAME_EXPIRY


def _annotation_of(
    note: ReservationNote, reservation: "Reservation", context: "AdmissionContext"
) -> str:
    return signed_text(note, reservation.demand, namespace=reservation.namespace, context=context)


def _insufficient(pool: "PoolFacts", exhausted: Exhausted) -> Denied:
    text = (
        f"pool {pool.name} cannot reserve {units(exhausted.requested)} on one node{_set_text(pool)} for the pod"
        " now:"
        f" {_figures(exhausted.capacity)}, and its largest node has {exhausted.largest_node};"
        " try again later, or ask for fewer (the pool refuses pods that would have to wait)"
    )
    return Denied(RefusalReason.INSUFFICIENT_CAPACITY, text)


def _incompatibility_text(pool: "PoolFacts", incompatibility: "CacheIncompatibility") -> str:
    return f"the pod waits: {incompatibility.subject} no device of GPU pool {pool.name}: {incompatibility.reason}"


def _incompatible(pool: "PoolFacts", incompatibility: "CacheIncompatibility") -> Denied:
    text = (
        f"{incompatibility.subject} no device of pool {pool.name}: {incompatibility.reason}; use another pool, or an image with kernels"
        " for these devices (the pool refuses pods that would have to wait)"
    )
    return Denied(RefusalReason.INSUFFICIENT_CAPACITY, text)


def _deferral_warnings(pool: "PoolFacts", deferral: Deferral) -> tuple[str, ...]:
    """Warn about waiting pods ahead; the other reasons end by themselves within moments."""
    if deferral is not Deferral.WAITING_PODS:
        return ()
    return (f"the pod waits: pods ahead of it wait for the free units of GPU pool {pool.name}",)


def _waiting_text(pool: "PoolFacts", exhausted: Exhausted) -> str:
    capacity = exhausted.capacity
    if not capacity.total:
        return f"the pod waits: GPU pool {pool.name} has no devices yet"
    if capacity.available < exhausted.requested:
        return (
            f"the pod waits: GPU pool {pool.name} has {capacity.available} of {capacity.total}"
            f" free, {exhausted.requested} wanted"
        )
    return (
        f"the pod waits: no node of GPU pool {pool.name} that it may go to has"
        f" {exhausted.requested} free{_set_text(pool)}"
    )


def _set_text(pool: "PoolFacts") -> str:
    return " on devices that it may have together" if pool.constrains_sets else ""


def _figures(capacity: "Capacity") -> str:
    text = (
        f"{capacity.available} available, {capacity.reserved} reserved, {capacity.used} used"
        f" of {capacity.total}"
    )
    return f"{text} ({capacity.unhealthy} unhealthy)" if capacity.unhealthy else text
