"""Ended reservations: a metric and a log line for each, Events for those that expired."""

from typing import TYPE_CHECKING, Final

import structlog

from api.meta import ObjectMeta
from api.names import owner_of
from api.text import units as counted
from kube.event_recorder import ObjectReference
from kube.resources import GPU_POOLS, PODS
from pool.reservations.reservation import End
from telemetry.metrics import RESERVATIONS_ENDED
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    from kube.event_recorder import EventRecorder
    from pool.catalog import Catalog
    from pool.reservations.reservation import Ended, Reservation

ACTION: Final = "Reserving"

_log = structlog.get_logger()

for _end in End:
    RESERVATIONS_ENDED.labels(_end.value)


def record_end(ended: "Ended", *, recorder: "EventRecorder", catalog: "Catalog") -> None:
    """Count and log an ended reservation; warn on its pool and pod where it expired.

    The allocation state calls this in the middle of a transition, so it only records.
    """
    reservation = ended.reservation
    RESERVATIONS_ENDED.labels(ended.end.value).inc()
    _log.info(
        "reservation ended",
        end=ended.end.value,
        reservation=reservation.id,
        pool=reservation.pool,
        pod=reservation.pod,
        node=reservation.node,
        units=reservation.demand.units,
    )
    if ended.end is End.EXPIRED:
        _warn_expired(reservation, recorder, catalog)


def _warn_expired(
    reservation: "Reservation", recorder: "EventRecorder", catalog: "Catalog"
) -> None:
    units = f"{counted(reservation.demand.units)} on node {reservation.node}"
    pool = catalog.pools.get(owner_of(reservation.pool))
    if pool is not None:
        recorder.warning(
            ObjectReference.to(GPU_POOLS, pool.metadata),
            EventReason.RESERVATION_EXPIRED,
            f"reservation of {units} for pod {reservation.pod} expired: the pod was not bound in time;"
            " the units are free again",
            action=ACTION,
        )
    if reservation.uid is not None:
        pod = ObjectMeta(
            name=reservation.name, namespace=reservation.namespace, uid=reservation.uid
        )
        recorder.warning(
            ObjectReference.to(PODS, pod),
            EventReason.RESERVATION_EXPIRED,
            f"reservation of {units} of GPU pool {reservation.pool} expired; the pod is scheduled when"
            " units are free",
            action=ACTION,
        )
