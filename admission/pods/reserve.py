"""Reservation of units for a pod at admission, and the annotation that describes it.

`request.uid` is new at every call, so only the id in the annotation tells a reinvocation (after another mutator)
from a new pod. An id that the ledger does not have as a reservation of this namespace without uid is forged, or
copied from an older pod.
"""

import datetime as dt
from typing import TYPE_CHECKING, Final

from admission.decision import Admitted, Denied
from admission.pods.pod_patch import annotate
from admission.pods.signature import is_signed, signed_text
from api.annotations import ReservationNote, decode_reservation
from api.kinds.gpupool import DeviceTopology, SlicePlacement, WhenExhausted
from api.names import RESERVATION_ANNOTATION, ReservationId
from api.text import units
from pool.admission_planner import Exhausted
from pool.admission_rules import Deferral, IncomingPod
from pool.allocation_state import PlacementRequest
from pool.placement.same_device import Unservable, groups_of, is_valid_size, nearest_sizes
from pool.placement.unit_request import request_by_containers
from pool.reservations.reservation import ReservationPhase
from telemetry.reasons import RefusalReason

if TYPE_CHECKING:
    from admission.context import AdmissionContext
    from admission.decision import Decision
    from admission.pods.request import PodRequest, PoolPod
    from pool.model import Capacity, Demand, Instant, PoolFacts
    from pool.placement.planner import Placed
from pool.reservations.reservation import Reservation

DRY_RUN_ID: Final = ReservationId("dry-run")
"""Stands for the id of a dry run, which reserves nothing."""

_SAME_EXPIRY: Final = dt.timedelta(seconds=1)
"""Expiry is kept on the monotonic clock; converted back to UTC it differs by rounding."""


def reserve(pod: "PoolPod", context: "AdmissionContext") -> "Decision":
    """Reserve units for the pod, or keep its reservation; the decision's patch writes the annotation.

    A dry run plans and reserves nothing. A replica that does not lead reserves nothing either, but admits
    or denies by its caches. A gated pod gets a reservation without units: its gate (a queue, a quota) may
    stay for hours, and reserved devices would be idle for the TTL and then be released.
    """
    now = context.now()
    request = pod.request
    existing = _existing_reservation(request, context)
    if existing is not None and not request.is_dry_run:
        if (existing.pool, existing.demand) == (pod.pool.name, pod.demand):
            return _kept(pod, existing, context, now=now)
        context.allocation_state.withdraw(existing.id)
    planned = _plan(pod, context)
    if isinstance(planned, Denied):
        return planned
    placed, warnings = planned
    if request.is_dry_run:
        note = ReservationNote(id=DRY_RUN_ID, pool=pod.pool.name)
        return _admitted(pod, note, note.encode(), warnings=warnings)
    placement = PlacementRequest(
        id=context.new_id(),
        pool=pod.pool,
        demand=pod.demand,
        namespace=request.namespace,
        name=request.pod.metadata.name,
    )
    reservation = context.allocation_state.reserve(
        placement, placed if context.may_reserve() else None, now
    )
    note = _note_of(reservation, now)
    annotation = _annotation_of(note, reservation, context)
    return _admitted(pod, note, annotation, warnings=warnings, placed=placed)


def _admitted(
    pod: "PoolPod",
    note: ReservationNote,
    annotation: str,
    *,
    warnings: tuple[str, ...] = (),
    placed: "Placed | None" = None,
) -> Admitted:
    facts: dict[str, object] = {
        "pool": pod.pool.name,
        "reservation": note.id,
        "node": note.node,
    }
    if placed is not None:
        facts["strategy"] = pod.pool.strategy.value
        if placed.value_lost is not None:
            facts["value_lost"] = placed.value_lost
    return Admitted(
        patch=tuple(annotate(pod.request.pod.metadata, annotation)),
        warnings=warnings,
        audit={"pool": pod.pool.name, "reservation": note.id},
        facts=facts,
    )


def _plan(
    pod: "PoolPod", context: "AdmissionContext"
) -> "tuple[Placed | None, tuple[str, ...]] | Denied":
    """Choose units, or return why the pod waits or is denied."""
    pool, demand = pod.pool, pod.demand
    if pod.request.is_gated:
        return exceeds(pool, demand, context) or (None, ())
    incoming = IncomingPod(
        namespace=pod.request.namespace,
        priority=pod.request.pod.spec.priority or 0,
        now=context.now().monotonic,
    )
    plan = context.reader.plan_reservation(pool, demand, pod.constraints, incoming=incoming)
    if not isinstance(plan, Exhausted):
        return plan, ()
    if plan.deferral is not None:
        return None, _deferral_warnings(pool, plan.deferral)
    exceeding = exceeds(pool, demand, context)
    if exceeding is not None:
        return exceeding
    match pool.when_exhausted:
        case WhenExhausted.PEND:
            return None, (_waiting_text(pool, plan),)
        case WhenExhausted.REJECT:  # pragma: no branch  # mypy proves that no case is missing
            return _insufficient(pool, plan)


def _existing_reservation(
    request: "PodRequest", context: "AdmissionContext"
) -> "Reservation | None":
    """Return the reservation of an earlier call for the same pod."""
    note = decode_reservation(request.pod.metadata.annotation(RESERVATION_ANNOTATION))
    if note is None:
        return None
    reservation = context.reader.reservation(ReservationId(note.id))
    if reservation is None or reservation.phase is not ReservationPhase.HELD:
        return None
    return reservation if reservation.namespace == request.namespace else None


def _kept(
    pod: "PoolPod", reservation: "Reservation", context: "AdmissionContext", *, now: "Instant"
) -> Admitted:
    """Keep the annotation while it is true, which another client may have changed."""
    request = pod.request
    current = _note_of(reservation, now)
    text = request.pod.metadata.annotation(RESERVATION_ANNOTATION)
    note = decode_reservation(text)
    if (
        text is None
        or note is None
        or not _agree(note, current)
        or not is_signed(note, pod.demand, namespace=request.namespace, context=context)
    ):
        text = _annotation_of(current, reservation, context)
    return _admitted(pod, current, text)


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


def _note_of(reservation: "Reservation", now: "Instant") -> ReservationNote:
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


def exceeds(pool: "PoolFacts", demand: "Demand", context: "AdmissionContext") -> Denied | None:
    """Deny a demand that no node can ever serve. A pool without units may still get large nodes.

    A temporary lack of units, while devices are partitioned or drivers start, is no reason to deny.
    """
    unservable = _unservable(pool, demand)
    if unservable is not None:
        return unservable
    state = context.index.state(pool.name)
    largest_node, largest = state.largest_node(), state.largest_possible()
    if not largest_node or demand.units <= largest:
        return _unalignable(pool, demand, context)
    text = (
        f"the pod asks for {units(demand.units)} of {pool.resource}, but the largest node of pool"
        f" {pool.name} {'has' if largest == largest_node else 'can have'} {largest}, and the units of a pod"
        f" come from one node; ask for at most {largest}"
    )
    return Denied(RefusalReason.EXCEEDS_CAPACITY, text)


def _unservable(pool: "PoolFacts", demand: "Demand") -> Denied | None:
    """Deny a container's number of slices that is no part of a device and no number of devices."""
    if pool.slice_placement is not SlicePlacement.SAME_DEVICE:
        return None
    slices = pool.slices_per_device
    groups = groups_of(request_by_containers(demand).containers, slices)
    if not isinstance(groups, Unservable):
        return None
    container = demand.containers[groups.container]
    rule = (
        f"in pool {pool.name} a container gets up to {slices} slices of one device, or whole devices of"
        f" {slices} slices"
    )
    if is_valid_size(container.units, slices):
        text = (
            f"container {container.name} asks for {units(container.units)} of {pool.resource} and would reuse some of"
            f" those of the init containers before it, which are not on one device with the others; {rule}: let the"
            " init containers ask for as many, or for none"
        )
    else:
        sizes = " or ".join(map(str, nearest_sizes(container.units, slices)))
        text = (
            f"container {container.name} asks for {units(container.units)} of {pool.resource}, but {rule}; ask for"
            f" {sizes}"
        )
    return Denied(RefusalReason.BAD_QUANTITY, text)


def _unalignable(pool: "PoolFacts", demand: "Demand", context: "AdmissionContext") -> Denied | None:
    """Deny a demand for which no node has, or may yet have, an aligned set of devices."""
    if pool.device_topology is not DeviceTopology.REQUIRED:
        return None
    state = context.index.state(pool.name)
    largest = state.largest_alignable(state.request_of(demand))
    if largest is None:
        return None
    text = (
        f"the pod asks for {units(demand.units)} of {pool.resource}, and pool {pool.name} requires the devices of a pod"
        " to be on one NUMA node or connected by NVLink (spec.scheduling.deviceTopology), but no node has more than"
        f" {largest} so; ask for at most {largest}, or use another pool"
    )
    return Denied(RefusalReason.EXCEEDS_CAPACITY, text)


def _insufficient(pool: "PoolFacts", exhausted: Exhausted) -> Denied:
    text = (
        f"pool {pool.name} cannot reserve {units(exhausted.wanted)} on one node{_together(pool)} for the pod"
        " now:"
        f" {_figures(exhausted.capacity)}, and its largest node has {exhausted.largest_node};"
        " try again later, or ask for fewer (the pool refuses pods that would have to wait)"
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
    if capacity.available < exhausted.wanted:
        return (
            f"the pod waits: GPU pool {pool.name} has {capacity.available} of {capacity.total}"
            f" free, {exhausted.wanted} wanted"
        )
    return (
        f"the pod waits: no node of GPU pool {pool.name} that it may go to has"
        f" {exhausted.wanted} free{_together(pool)}"
    )


def _together(pool: "PoolFacts") -> str:
    return " on devices that it may have together" if pool.constrains_sets else ""


def _figures(capacity: "Capacity") -> str:
    text = (
        f"{capacity.available} available, {capacity.reserved} reserved, {capacity.used} used"
        f" of {capacity.total}"
    )
    return f"{text} ({capacity.unhealthy} unhealthy)" if capacity.unhealthy else text
