"""Readiness of DaemonSets of the node software, with pods and ControllerRevisions where their status is not enough.

Neither kind is watched: pods are listed by the selector of a DaemonSet that is not ready, and not more often than its
status changes, or every `CHECK_S`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from api.foreign.reported_containers import ReportedCondition, ReportedContainer
from api.meta import Model, ObjectMeta
from api.well_known_labels import REVISION_LABEL
from kube.resources import CONTROLLER_REVISIONS, PODS
from manifests.install.rbac import PolicyRule
from operands.nvidia import daemon_set_readiness

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.clock import Instant
    from kube.client import KubeClient

Json = dict[str, Any]

NAMESPACED_RBAC: Final = (
    PolicyRule(resources=("pods",), verbs=("list",)),
    PolicyRule(group="apps", resources=("controllerrevisions",), verbs=("list",)),
)
CHECK_S: Final = 15.0
"""Reasons of pods change while the status of their DaemonSet does not: within this they are shown."""
_USUAL: Final = frozenset({"PodInitializing"})


class _FieldTerm(Model, frozen=True):
    match_fields: list[Json] | None = None


class _RequiredTerms(Model, frozen=True):
    node_selector_terms: list[_FieldTerm] | None = None


class _NodeAffinity(Model, frozen=True):
    required: _RequiredTerms | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class _Affinity(Model, frozen=True):
    node_affinity: _NodeAffinity | None = None


class _PodSpec(Model, frozen=True):
    node_name: str = ""
    affinity: _Affinity | None = None


class _PodStatus(Model, frozen=True):
    phase: str = ""
    conditions: list[ReportedCondition] | None = None
    init_container_statuses: list[ReportedContainer] | None = None
    container_statuses: list[ReportedContainer] | None = None


class OperandPodStatus(Model, frozen=True):
    """The part of a pod that shows how far it is."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


class _Revision(Model, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    revision: int = 0


def daemon_pod(pod: OperandPodStatus) -> daemon_set_readiness.DaemonPod:
    """Return the facts of a pod."""
    meta, status = pod.metadata, pod.status
    owner = next(
        (reference.uid for reference in meta.owner_references or () if reference.controller), ""
    )
    containers = status.container_statuses or ()
    is_ready = (
        meta.deletion_timestamp is None
        and status.phase == "Running"
        and bool(containers)
        and all(container.ready for container in containers)
        and not _is_held_unready(status)
    )
    return daemon_set_readiness.DaemonPod(
        node=pod.spec.node_name or _meant_for(pod.spec),
        owner=owner,
        revision=meta.label(REVISION_LABEL) or "",
        is_ready=is_ready,
        reason="" if is_ready else _reason(pod),
    )


def _is_held_unready(status: _PodStatus) -> bool:
    """Say whether the pod counts as not ready: of a dead node only this condition changes, never its containers."""
    return any(item.type == "Ready" and item.status == "False" for item in status.conditions or ())


def _meant_for(spec: _PodSpec) -> str:
    """Return the node of a pod that is not bound yet: the DaemonSet controller writes it as affinity."""
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    terms = affinity.required.node_selector_terms if affinity and affinity.required else None
    for term in terms or ():
        for field in term.match_fields or ():
            if field.get("key") == "metadata.name" and field.get("values"):
                return str(field["values"][0])
    return "of a pod that is not bound"


def _reason(pod: OperandPodStatus) -> str:
    status = pod.status
    if pod.metadata.deletion_timestamp is not None:
        return "its pod is being deleted"
    for item in (*(status.init_container_statuses or ()), *(status.container_statuses or ())):
        waiting, ended = item.state.waiting, item.state.terminated
        if item.ready or (ended is not None and ended.exit_code == 0):
            continue
        failed = item.last_state.terminated or ended
        message = (
            " ".join(failed.message.split()) if failed is not None and failed.exit_code else ""
        )
        if waiting is not None and waiting.reason not in _USUAL:
            words = (waiting.reason, message or " ".join(waiting.message.split()))
        else:
            words = (
                "has not succeeded"
                if item in (status.init_container_statuses or ())
                else "is not ready",
                message,
            )
        return ": ".join(filter(None, (f"container {item.name}", *words)))
    for condition in status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            return f"its pod cannot be scheduled: {' '.join(condition.message.split())}"
    if status.container_statuses and all(item.ready for item in status.container_statuses):
        return "the node is not ready"
    return f"its pod is {status.phase or 'Pending'}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class _PodReading:
    version: str
    until: float
    found: daemon_set_readiness.DaemonSetReadiness


@final
class DaemonSetRollouts:
    """Reads how far DaemonSets of one namespace are."""

    def __init__(self, client: "KubeClient", namespace: str, now: "Callable[[], Instant]") -> None:
        self._client = client
        self._namespace = namespace
        self._now = now
        self._readings: dict[str, _PodReading] = {}
        # uid of a DaemonSet that is not ready -> the last reading of its pods

    async def readiness(
        self, daemon_sets: "Sequence[Json]", labels_by_node: Mapping[str, Mapping[str, str]]
    ) -> tuple[daemon_set_readiness.DaemonSetReadiness, ...]:
        """Return the readiness of each.

        Raises:
            KubeError: pods or revisions cannot be read.
        """
        return tuple([await self._readiness_of(live, labels_by_node) for live in daemon_sets])

    async def _readiness_of(
        self, live: Json, labels_by_node: Mapping[str, Mapping[str, str]]
    ) -> daemon_set_readiness.DaemonSetReadiness:
        reported = daemon_set_readiness.by_status(live)
        uid, version = live["metadata"]["uid"], live["metadata"].get("resourceVersion", "")
        if reported.is_ready or not version:
            # Without a version it was written a moment ago.
            self._readings.pop(uid, None)
            return reported
        now, reading = self._now().monotonic, self._readings.get(uid)
        if reading is not None and reading.version == version and now < reading.until:
            return reading.found
        selector = ",".join(
            f"{key}={value}" for key, value in live["spec"]["selector"]["matchLabels"].items()
        )
        pods = await self._client.list_as(
            PODS, OperandPodStatus, daemon_pod, namespace=self._namespace, label_selector=selector
        )
        found = daemon_set_readiness.by_pods(
            live,
            pods.items,
            newest_revision=await self._newest_revision(uid, selector),
            nodes=daemon_set_readiness.selected_nodes(live, labels_by_node),
        )
        self._readings[uid] = _PodReading(version=version, until=now + CHECK_S, found=found)
        return found

    async def _newest_revision(self, uid: str, selector: str) -> str:
        listing = await self._client.list_(
            CONTROLLER_REVISIONS,
            _Revision,
            namespace=self._namespace,
            label_selector=selector,
        )
        owned = [
            item
            for item in listing.items
            if any(owner.uid == uid for owner in item.metadata.owner_references or ())
        ]
        newest = max(owned, key=lambda item: item.revision, default=None)
        return (newest.metadata.label(REVISION_LABEL) or "") if newest is not None else ""
