"""bind: named devices for a pod on the node that kube-scheduler chose, with one API write.

  plan → commit, one synchronous step → one POST → outcome:
      written           the commitment stays until the watch shows the pod bound
      refused           released; after a 409 only after a read, since an earlier write may have bound the pod
      anything else     in doubt: the units stay reserved until a read of the pod resolves it

Where kubelet chooses the NUMA nodes of devices, it chooses by what is free to it, so a pod is planned there once its
choice for every pod before is reported. Nothing is held while a call waits for that, and all is decided afterwards.

A cancelled or failed call releases nothing. From the moment the Binding may have been sent, only knowledge of
the pod ends a commitment: the watch, a retry of bind, or `bind_recovery`. A repeated bind of the same uid and
node is the same bind; it writes at most the same Binding, and succeeds without a write only where a read shows the
pod bound. The binder bounds the time of each call, below
kube-scheduler's `httpTimeout`.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from api.annotations import encode_devices
from api.clock import Instant
from api.names import DEVICES_ANNOTATION, LEADER_ANNOTATION, POOL_LABEL, owner_of
from pool.allocation_reader import AlreadyBound
from pool.errors import InvariantViolatedError
from pool.model import PodPhase
from pool.placement.planner import Placed, PlacementRefused
from pool.reservations.reservation import PlacementRequest, ReservationPhase
from scheduler.bind_recovery import RecoveryOutcome, apply_read, pod_of, write_may_land
from scheduler.outcome import NOT_READY, Outcome
from scheduler.pod_demand import ImpossibleDemand, NoDemand, UnitDemand, binding_text, recall_pod
from scheduler.ports import (
    BindRefused,
    BindUnknown,
    BindWritten,
    BoundReading,
    FailedReading,
    MissingReading,
    PendingReading,
    PodBinding,
)
from telemetry.reasons import node_refusal_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from api.names import PodUid
    from pool.reservations.reservation import Reservation
    from scheduler.codec import BindRequest
    from scheduler.context import ExtenderContext
    from scheduler.ports import PodReading, PodRef


@dataclass(frozen=True, slots=True)
class Bound:
    """Outcome of a bind; kube-scheduler takes an empty error for success."""

    outcome: Outcome
    error: str = ""
    reservation: "Reservation | None" = None
    """The commitment that the call worked on, if any."""
    value_lost: int | None = None
    """Milli of devices by which the pod lowers the value of its node, where this call planned by that."""


async def bind_pod(request: "BindRequest", context: "ExtenderContext") -> Bound:
    """Bind a pod, or return why it is not bound."""
    pod = request.pod
    awaited = await context.reports.wait(partial(_unreported, request, context))
    if awaited:
        text = (
            f"pod {pod} is not bound yet: kubelet on node {request.node} chooses devices by what is free, and the node"
            f" agent has not reported its choice for pod {', '.join(awaited.values())}; the next attempt may succeed"
        )
        return Bound(Outcome.AWAITING_REPORT, text)
    objection = _global_refusal(pod, context)
    if objection is not None:
        return objection
    bound = context.reader.bound_to(pod.uid)
    if bound is not None:
        return await _bind_again(bound, request, context)
    asked = recall_pod(pod, context)
    match asked:
        case None:
            return Bound(
                Outcome.UNKNOWN_POD,
                f"pod {pod} (uid {pod.uid}) was shown neither by the watch nor to filter yet; "
                "the next attempt will know it",
            )
        case NoDemand():
            return await _bind_plain(request, context)
        case ImpossibleDemand(text=text):
            return Bound(Outcome.IMPOSSIBLE, text)
        case UnitDemand():
            return await _bind_units(asked, request, context)


async def _bind_units(
    asked: UnitDemand, request: "BindRequest", context: "ExtenderContext"
) -> Bound:
    pod = request.pod
    planned = context.reader.plan_bind(request.node, asked.pool, asked.demand, uid=pod.uid)
    match planned:
        case AlreadyBound():
            return await _bind_again(planned, request, context)
        case PlacementRefused(refusal=refusal):
            return Bound(Outcome.REFUSED, node_refusal_text(refusal, asked.pool.name))
        case Placed():
            placement = PlacementRequest(
                id=context.new_id(),
                pool=asked.pool,
                demand=asked.demand,
                namespace=pod.namespace,
                name=pod.name,
            )
            now = context.now()
            reservation = context.allocation_state.commit(placement, planned, uid=pod.uid, now=now)
            bound = await _send(reservation, context, is_retry=False)
            return replace(bound, value_lost=planned.value_lost)


async def _bind_again(
    bound: AlreadyBound, request: "BindRequest", context: "ExtenderContext"
) -> Bound:
    """Answer for a pod whose Binding was sent before: kube-scheduler timed out, or two of them run."""
    pod, node = request.pod, request.node
    reservation = bound.reservation
    if bound.node != node:
        text = f"pod {pod} cannot be bound to node {node}: {binding_text(bound)}"
        return Bound(Outcome.BOUND_ELSEWHERE, text, reservation)
    if reservation is None or reservation.phase is ReservationPhase.BOUND:
        return await _confirm(bound, pod, context)
    retried = context.allocation_state.retry(pod.uid)
    if retried is None:
        return Bound(Outcome.UNDER_WAY, f"pod {pod}: {binding_text(bound)}", reservation)
    return await _send(retried, context, is_retry=True)


async def _confirm(bound: AlreadyBound, pod: "PodRef", context: "ExtenderContext") -> Bound:
    """Answer success only for what is stored: etcd may have been restored since the pod was seen as bound."""
    reservation = bound.reservation
    reading = await context.binder.read(pod)
    if reservation is not None and context.reader.ledger.get(reservation.id) is reservation:
        apply_read(reservation, reading, context, may_land=False)
    match reading:
        case BoundReading(node=node) if node == bound.node:
            return Bound(Outcome.ALREADY_BOUND, reservation=reservation)
        case BoundReading(node=node):
            text = f"pod {pod} cannot be bound to node {bound.node}: it is bound to node {node}"
            return Bound(Outcome.BOUND_ELSEWHERE, text, reservation)
        case FailedReading(message=message):
            return Bound(Outcome.IN_DOUBT, _unknown_outcome_text(pod, message), reservation)
        case PendingReading() | MissingReading():
            if isinstance(reading, PendingReading):
                # Nothing else makes a bound pod pending under its UID, also where no Lease was renewed since the backup.
                context.on_restore("a bound pod is pending again")
            text = f"pod {pod} was bound to node {bound.node}, but the API server does not show it bound"
            return Bound(Outcome.REFUSED, text, reservation)


async def _send(reservation: "Reservation", context: "ExtenderContext", *, is_retry: bool) -> Bound:
    """Send a commitment's Binding, and move the commitment by the outcome."""
    pod = pod_of(reservation)
    reading: PodReading | None = None
    try:
        outcome = await context.binder.bind(_binding_of(reservation, context))
        # A refused retry says nothing about the first write, which may still land.
        if isinstance(outcome, BindRefused) and (outcome.is_conflict or is_retry):
            reading = await context.binder.read(pod, within_s=outcome.left_s)
    except BaseException:
        context.allocation_state.mark_doubtful(pod.uid, context.now())
        raise
    match outcome:
        case BindWritten():
            context.allocation_state.written(pod.uid)
            return Bound(Outcome.BOUND, reservation=reservation)
        case BindUnknown(message=message):
            context.allocation_state.mark_doubtful(pod.uid, context.now())
            return Bound(Outcome.IN_DOUBT, _unknown_outcome_text(pod, message), reservation)
        case BindRefused(message=message) if reading is None:
            context.allocation_state.release(pod.uid)
            return Bound(Outcome.REFUSED, message, reservation)
        case BindRefused(message=message):
            return _after_read(reservation, reading, context, message=message, is_retry=is_retry)


def _after_read(
    reservation: "Reservation",
    reading: "PodReading",
    context: "ExtenderContext",
    *,
    message: str,
    is_retry: bool,
) -> Bound:
    """Settle a commitment whose write was refused and whose pod was then read."""
    pod, now = pod_of(reservation), context.now()
    may_land = is_retry and write_may_land(reservation, now)
    outcome = apply_read(reservation, reading, context, may_land=may_land)
    if outcome in {RecoveryOutcome.STILL_OPEN, RecoveryOutcome.UNSEEN}:
        # The doubt is about the first write, where there was one; its time goes on.
        since = Instant(reservation.observe_by, now.utc) if is_retry else now
        context.allocation_state.mark_doubtful(pod.uid, since)
        return Bound(Outcome.IN_DOUBT, _unknown_outcome_text(pod, message), reservation)
    if not isinstance(reading, BoundReading):
        return Bound(Outcome.REFUSED, message, reservation)
    if reading.node == reservation.node:
        return Bound(Outcome.ALREADY_BOUND, reservation=reservation)
    text = (
        f"pod {pod} cannot be bound to node {reservation.node}: it is bound to node {reading.node}"
    )
    return Bound(Outcome.BOUND_ELSEWHERE, text, reservation)


async def _bind_plain(request: "BindRequest", context: "ExtenderContext") -> Bound:
    """Bind a pod that names no pool: with this extender configured, no other component binds it."""
    pod, node = request.pod, request.node
    outcome = await context.binder.bind(PodBinding(pod.namespace, pod.name, pod.uid, node, {}))
    match outcome:
        case BindWritten():
            return Bound(Outcome.BOUND)
        case BindUnknown(message=message):
            return Bound(Outcome.IN_DOUBT, _unknown_outcome_text(pod, message))
        case BindRefused(message=message, is_conflict=is_conflict, left_s=left_s):
            reading = await context.binder.read(pod, within_s=left_s) if is_conflict else None
            if isinstance(reading, BoundReading) and reading.node == node:
                return Bound(Outcome.ALREADY_BOUND)
            return Bound(Outcome.REFUSED, message)


def _binding_of(reservation: "Reservation", context: "ExtenderContext") -> PodBinding:
    pod = pod_of(reservation)
    if reservation.node is None:
        raise InvariantViolatedError(f"reservation {reservation.id} is committed to no node")
    annotations = {DEVICES_ANNOTATION: encode_devices(reservation.devices)}
    leader = context.leader()
    if leader is not None:
        annotations[LEADER_ANNOTATION] = leader
    return PodBinding(
        pod.namespace,
        pod.name,
        pod.uid,
        reservation.node,
        annotations,
        # A pod that bypassed the webhooks has no label, and the next leader lists by it.
        labels={POOL_LABEL: owner_of(reservation.pool)},
        is_fenced=leader is not None,
    )


def _unreported(request: "BindRequest", context: "ExtenderContext") -> "Mapping[PodUid, str]":
    """Return the pods whose devices must be known before a pod is bound, where kubelet chooses the NUMA nodes."""
    kubelet = context.index.kubelet_on(request.node)
    if kubelet is None or not kubelet.knows_numa_nodes or not context.is_ready():
        return {}
    asked = recall_pod(request.pod, context)
    if not isinstance(asked, UnitDemand) or context.reader.bound_to(request.pod.uid) is not None:
        return {}
    if not context.index.device_rules(asked.pool.name, request.node).is_kubelets_choice:
        return {}
    return context.reader.unreported(asked.pool, request.node)


def _global_refusal(pod: "PodRef", context: "ExtenderContext") -> Bound | None:
    """Return why the pod cannot be bound to any node."""
    if not context.is_ready():
        return Bound(Outcome.NOT_READY, NOT_READY)
    current = context.reader.pods.get(pod.uid)
    if current is None:
        return None
    if current.ref != str(pod):
        return Bound(Outcome.MALFORMED, f"uid {pod.uid} is of pod {current.ref}, not of {pod}")
    if current.phase is PodPhase.ENDED and current.node is None:
        return Bound(Outcome.REFUSED, f"pod {pod} has ended")
    return None


def _unknown_outcome_text(pod: "PodRef", message: str) -> str:
    return f"it is not known whether the API server bound pod {pod}: {message}"
