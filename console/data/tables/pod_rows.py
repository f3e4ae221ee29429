"""Rows of single pods and reservations."""

from typing import TYPE_CHECKING, final

import msgspec

from api.names import RESOURCE_PREFIX, owner_of
from console.rows import ReservationRow, WaitingRow
from pool.model import PodPhase
from telemetry.explanation_texts import CACHES_NOT_READ

if TYPE_CHECKING:
    from api.names import PodUid, ReservationId
    from console.data.explanations.waits import ExplainedWait
    from console.data.state.cluster import ClusterState
    from console.data.state.watched_pods import WatchedPod
    from pool.model import PodFacts
    from pool.what_if.explanation import AnyRemedy


@final
class WaitEntry(msgspec.Struct, frozen=True):
    """A row without its remedies, whose texts depend on who reads them."""

    row: WaitingRow
    remedies: "tuple[AnyRemedy, ...]" = ()
    explained_at: float = 0.0
    """Clock.monotonic(), from which the deadlines in the remedies count."""


@final
class SharePart(msgspec.Struct, frozen=True, gc=False):
    """What one pod has, or waits for."""

    namespace: str
    pool: str
    used: int = 0
    reserved: int = 0
    waiting: int = 0


def pool_name_of(cluster: "ClusterState", pod: "PodFacts") -> str:
    """Return the pool that serves a pod, or whose name its resource has."""
    pool = cluster.index.pool_of(pod.demand.resource)
    return (
        owner_of(pool.name)
        if pool is not None
        else pod.demand.resource.removeprefix(RESOURCE_PREFIX)
    )


def waits(cluster: "ClusterState", pod: "PodFacts") -> bool:
    """Say whether a pod waits for units: pods that gates of others hold back do not."""
    return (
        pod.phase is PodPhase.PENDING
        and not pod.is_gated
        and cluster.reader.ledger.of_pod(pod.uid) is None
    )


def wait_entry(
    cluster: "ClusterState", seen: "WatchedPod", explained: "ExplainedWait | None", *, position: int
) -> WaitEntry:
    """Return the row of a pod that waits; until it is explained, with what the leader says of it."""
    pod = seen.facts
    condition = pod.units_condition
    reason, message = "", ""
    if explained is not None:
        reason, message = explained.reason, explained.message
        if pod.demand.caches:
            message = f"{message}; {CACHES_NOT_READ}"
    elif condition is not None and not condition.is_true:
        reason, message = condition.reason, condition.message
    row = WaitingRow(
        namespace=pod.namespace,
        name=pod.name,
        pool=pool_name_of(cluster, pod),
        units=pod.demand.units,
        created=pod.created,
        position=position if cluster.is_exact else 0,
        priority=pod.priority,
        reason=reason,
        message=message,
        scheduler=seen.scheduler,
    )
    if explained is None:
        return WaitEntry(row)
    return WaitEntry(row, explained.remedies, explained.at)


def reservation_row(cluster: "ClusterState", id_: "ReservationId") -> ReservationRow | None:
    """Return the row of a live reservation."""
    reservation = cluster.reader.ledger.get(id_)
    if reservation is None or not reservation.has_units:
        return None
    pod = cluster.reader.pods.get(reservation.uid) if reservation.uid is not None else None
    expires = reservation.phase.is_uncommitted
    return ReservationRow(
        namespace=reservation.namespace,
        pod=reservation.name,
        pool=owner_of(reservation.pool),
        node=reservation.node or "",
        units=reservation.demand.units,
        created=pod.created if pod is not None else "",
        expires=cluster.moments.text(reservation.expires_at) if expires else "",
    )


def units_of_pod(cluster: "ClusterState", uid: "PodUid") -> SharePart | None:
    """Return what a pod has; None once it has ended."""
    pod = cluster.reader.pods.get(uid)
    if pod is None or pod.phase is PodPhase.ENDED:
        return None
    units = pod.demand.units
    share = SharePart(pod.namespace, pool_name_of(cluster, pod))
    if pod.phase is PodPhase.BOUND:
        return msgspec.structs.replace(share, used=units)
    if cluster.reader.ledger.of_pod(uid) is not None:
        return msgspec.structs.replace(share, reserved=units)
    return msgspec.structs.replace(share, waiting=units)
