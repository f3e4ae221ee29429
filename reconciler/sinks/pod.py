"""`pod.index`: pods that request a pool's resource, and what other pods take of their nodes, into the allocation state.

All pods of the cluster are watched, not only labelled ones: a pod that requests units counts however it was
created, and a node whose CPU is in use takes no pod with units. `pool.facts.observed_pod` projects each pod when it is
decoded.
"""

from typing import TYPE_CHECKING, Final, final

import structlog

from api.names import NodeName, PodUid
from api.text import units as counted
from kube.batches import steps
from kube.event_recorder import ObjectReference
from kube.resources import PODS
from manifests.install.rbac import PolicyRule
from pool.errors import InvariantViolatedError
from pool.model import PodPhase, UnitlessPod
from telemetry.reasons import EventReason

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from api.clock import Instant
    from api.names import UnitId
    from kube.event_recorder import EventRecorder
    from kube.unread_objects import UnreadObject
    from pool.allocation_reader import AllocationReader
    from pool.allocation_state import AllocationState
    from pool.model import AnyPod, PodFacts

ACTION: Final = "Reserving"
"""Action of Events about reservations and bound pods."""
_log = structlog.get_logger()


RBAC: Final = (PolicyRule(resources=("pods",), verbs=("list", "watch")),)


@final
class PodSink:
    """Keeps the pods of the allocation state equal to the API server's."""

    def __init__(
        self,
        allocation_state: "AllocationState",
        now: "Callable[[], Instant]",
        recorder: "EventRecorder | None" = None,
    ) -> None:
        self._allocation_state = allocation_state
        self._reader = allocation_state.reader
        self._now = now
        self._recorder = recorder

    def replace_all(self, items: "Sequence[AnyPod]") -> None:
        """Take over a full list; pods that are not in it are removed.

        Bound pods come first, so that a reservation restored from an annotation cannot take their units.
        """
        for _ in self.replace_in_steps(items):
            pass

    def replace_in_steps(self, items: "Sequence[AnyPod]") -> "Iterator[None]":
        """Take over a full list in steps: removed, ended, bound, then pending pods.

        Earlier ones free units that later ones may use.
        """
        yield from self._replace_unitless_in_steps(
            [item for item in items if isinstance(item, UnitlessPod)]
        )
        pods = [item for item in items if not isinstance(item, UnitlessPod)]
        uids = {facts.uid for facts in pods}
        for gone in steps([pod.uid for pod in self._reader.pods.all() if pod.uid not in uids]):
            for uid in gone:
                self._allocation_state.discard_pod(uid)
            yield
        for item in steps(sorted(pods, key=lambda pod: pod.phase.observe_order)):
            for facts in item:
                self._observe(facts)
            yield

    def _replace_unitless_in_steps(self, items: "Sequence[UnitlessPod]") -> "Iterator[None]":
        uids = {pod.uid for pod in items}
        for gone in steps([item for item in self._reader.unitless_pods() if item not in uids]):
            for uid in gone:
                self._allocation_state.discard_unitless(uid)
            yield
        for item in steps(items):
            for pod in item:
                self._allocation_state.observe_unitless(pod)
            yield

    def last_read(self, unread: "UnreadObject") -> "AnyPod | None":
        """Return the last known state of the pod; none of one that was pending and is bound by now."""
        uid = PodUid(unread.uid)
        pod = self._reader.pods.get(uid) or self._reader.unitless_pod(uid)
        return pod if pod is None or unread.node in {"", pod.node} else None

    def replace_unread(self, unread: "Collection[UnreadObject]") -> None:
        """Take over the pods of which nothing is known: those that are bound may have any unit of their node."""
        bound = {PodUid(item.uid): NodeName(item.node) for item in unread if item.node}
        self._allocation_state.index.replace_unread_pods(bound)

    def upsert(self, item: "AnyPod") -> None:
        if isinstance(item, UnitlessPod):
            self._allocation_state.observe_unitless(item)
        elif self._observe(item):
            _log.info(
                "pod bound",
                pod=item.ref,
                uid=item.uid,
                node=item.node,
                devices=item.devices,
                resource=item.demand.resource,
            )

    def discard(self, item: "AnyPod") -> None:
        if isinstance(item, UnitlessPod):
            self._allocation_state.discard_unitless(item.uid)
        else:
            self._allocation_state.discard_pod(item.uid)

    def _observe(self, pod: "PodFacts") -> bool:
        """Take over a pod; say whether it is newly bound, or bound again after an end that was undone."""
        before = self._reader.pods.get(pod.uid)
        self._allocation_state.observe_pod(pod, self._now())
        is_newly_bound = pod.phase is PodPhase.BOUND and (
            before is None or before.phase is not PodPhase.BOUND
        )
        if is_newly_bound:
            self._check_accounted(pod)
        if is_newly_bound or (before is not None and before.devices != pod.devices):
            report_shared_units(self._reader, pod, self._recorder)
        if pod.finalizers and (before is None or before.finalizers != pod.finalizers):
            self._warn_finalizers(pod)
        return is_newly_bound

    def _warn_finalizers(self, pod: "PodFacts") -> None:
        """Report a pod that kubelet will never show as ended where its machine is gone."""
        finalizers = ", ".join(pod.finalizers)
        _log.warning(
            "finalizers keep a pod and its units", pod=pod.ref, uid=pod.uid, finalizers=finalizers
        )
        if self._recorder is None:
            return
        note = (
            f"the pod is deleted and its phase is terminal, but its containers are shown running and finalizers keep it"
            f" ({finalizers}): its units on node {pod.node} stay in use until its status says that the containers ended,"
            f" or the finalizers are removed"
        )
        self._recorder.warning(
            ObjectReference.to(PODS, pod), EventReason.UNITS_KEPT, note, action=ACTION
        )

    def _check_accounted(self, pod: "PodFacts") -> None:
        for resource, units in self._reader.unaccounted_units(pod):
            if units:
                _log.warning(
                    "pod runs on unknown devices",
                    pod=pod.ref,
                    uid=pod.uid,
                    node=pod.node,
                    resource=resource,
                    units=units,
                )
                self._warn_unaccounted(pod, resource, units)

    def _warn_unaccounted(self, pod: "PodFacts", resource: str, units: int) -> None:
        if self._recorder is None:
            return
        note = (
            f"devices for {counted(units)} of {resource} are unknown because the pod was not bound by"
            f" gpu-control-plane; node {pod.node} accepts no pods of this resource until it terminates"
        )
        self._recorder.warning(
            ObjectReference.to(PODS, pod), EventReason.POD_UNACCOUNTED, note, action=ACTION
        )


def report_shared_units(
    reader: "AllocationReader", pod: "PodFacts", recorder: "EventRecorder | None"
) -> None:
    """Log and record every other bound pod that has units of this one."""
    shared: dict[PodUid, list[UnitId]] = {}
    for unit, owners in reader.shared_units().items():
        for owner in owners - {pod.uid} if pod.uid in owners else ():
            shared.setdefault(owner, []).append(unit)
    for uid, units in sorted(shared.items()):
        other = reader.holder(uid)
        if other is None:
            raise InvariantViolatedError(f"pod uid {uid} has units and is unknown")
        _log.error(
            "two pods have the same units",
            pod=pod.ref,
            uid=pod.uid,
            node=pod.node,
            other=other.ref,
            other_uid=uid,
            units=sorted(units),
        )
        if recorder is not None:
            _warn_shared(recorder, pod, other, units=units)
            _warn_shared(recorder, other, pod, units=units)


def _warn_shared(
    recorder: "EventRecorder", pod: "PodFacts", other: "PodFacts", *, units: "Sequence[UnitId]"
) -> None:
    note = (
        f"pod {other.ref} on node {other.node} has the same units: {', '.join(sorted(units))};"
        " they stay in use until both pods are gone: delete one of them"
    )
    recorder.warning(
        ObjectReference.to(PODS, pod), EventReason.UNITS_HELD_TWICE, note, action=ACTION
    )
