"""Events about reservations and devices, on the pool and on the pod, through the recorder."""

from typing import TYPE_CHECKING, Final, final

from api.names import API_VERSION
from kube.events import Event, ObjectReference
from manifests.install.rbac import PolicyRule
from telemetry.metrics import ALLOCATION_MISMATCHES
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.names import UnitId
    from kube.events import EventRecorder
    from pool.catalog import Catalog
    from pool.model import PodFacts
    from pool.pods.reported import AllocationMismatch
    from pool.reservations.reservation import Reservation

ACTION: Final = "Reserving"


RBAC: Final = (PolicyRule(group="events.k8s.io", resources=("events",), verbs=("create", "patch")),)


@final
class ReservationEvents:
    """Writes warnings; silent where this replica does not lead."""

    def __init__(self, recorder: "EventRecorder", catalog: "Catalog") -> None:
        self._recorder = recorder
        self._catalog = catalog
        self.is_leading = False

    def warn_pool(self, reservation: "Reservation", reason: "EventReason", note: str) -> None:
        """Put a warning on the reservation's pool."""
        pool = self._catalog.pools.get(reservation.pool)
        if pool is not None:
            regarding = ObjectReference(
                api_version=API_VERSION, kind="GPUPool", name=pool.name, uid=pool.metadata.uid
            )
            self._emit(regarding, reason, note)

    def warn_pod(self, reservation: "Reservation", reason: "EventReason", note: str) -> None:
        """Put a warning on the reservation's pod, if it is known."""
        if reservation.uid is not None:
            regarding = ObjectReference(
                api_version="v1",
                kind="Pod",
                name=reservation.name,
                namespace=reservation.namespace,
                uid=reservation.uid,
            )
            self._emit(regarding, reason, note)

    def warn_unaccounted(self, pod: "PodFacts", resource: str, units: int) -> None:
        """Put a warning on a pod that was bound past us."""
        note = (
            f"nobody knows which devices stand for {units} of its {resource}: it was not "
            f"bound by the GPU control plane. Until it ends, node {pod.node} takes no pod of that "
            "resource"
        )
        self._emit(_reference_to(pod), EventReason.POD_UNACCOUNTED, note)

    def warn_double(self, pod: "PodFacts", other: "PodFacts", units: "Sequence[UnitId]") -> None:
        """Put a warning on a pod that shares units with another one."""
        note = (
            f"pod {other.ref} on node {other.node} has the same units: {', '.join(sorted(units))}. "
            "They stay taken until both pods are gone; delete one of them"
        )
        self._emit(_reference_to(pod), EventReason.UNITS_HELD_TWICE, note)

    def warn_mismatch(self, found: "AllocationMismatch") -> None:
        """Put a warning on a pod that has other units than it was bound with, and count it."""
        if self.is_leading and found.pool is not None:
            ALLOCATION_MISMATCHES.labels(found.pool).inc()
        pod = found.pod
        units = ", ".join(sorted(found.unassigned))
        promised = sorted({unit for some in (pod.devices or {}).values() for unit in some})
        note = (
            f"kubelet on node {pod.node} gave it {units}, and it was bound with {', '.join(promised)}: "
            "what it has counts as used, what it did not get is free"
        )
        self._emit(_reference_to(pod), EventReason.ALLOCATION_MISMATCH, note)

    def _emit(self, regarding: ObjectReference, reason: "EventReason", note: str) -> None:
        if self.is_leading:
            self._recorder.emit(
                Event(
                    regarding=regarding,
                    type="Warning",
                    reason=reason.value,
                    action=ACTION,
                    note=note,
                )
            )


def _reference_to(pod: "PodFacts") -> ObjectReference:
    return ObjectReference(
        api_version="v1", kind="Pod", name=pod.name, namespace=pod.namespace, uid=pod.uid
    )
