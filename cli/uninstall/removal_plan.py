"""From what was found to steps, in the order of the table. Pure."""

from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, final

from api import driver_upgrade
from api.foreign.karpenter import DO_NOT_DISRUPT_ANNOTATION
from api.names import (
    AGENT_NOT_READY_TAINT,
    GKM_GROUP,
    KEEP_UNTIL_ANNOTATION,
    POOL_NODE_LABEL_PREFIX,
    POOL_TAINTS_ANNOTATION,
)
from api.text import listed
from api.text import units as counted
from cli.uninstall.own_kinds import RemovalStage, is_our_finalizer, is_ours
from kube.resources import LEASES, NODES
from manifests import constants
from operands.nvidia.deploy_labels import deploy_labels
from operands.nvidia.label_change import Hold, LabelChange, LabelledNode
from operands.upgrade.idle_states import OUR_ANNOTATIONS
from pool.model import PodPhase
from reconciler.pool.node_labels import taints_of

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kube.resources import Resource
    from pool.model import NodeFacts, PodFacts

HOLDER: Final = f"{constants.NAME}-uninstall"
"""Holds the Lease while the control plane is removed."""
POLICY_PAUSE_S: Final = 2.0
"""API servers read deleted policies once a second. One that still validates pods when the mutating
webhook is gone would refuse pods of pools."""


class RemovalAction(Enum):
    """What is said of a step before and after it, and its verb."""

    DELETE = ("delete", "deleted {}", "delete")
    PATCH = ("patch", "cleaned {}", "patch")
    SCALE = ("scale to 0", "scaled {} to 0", "patch")
    HOLD = ("hold", "holding {}: no replica leads any more", "update")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FoundObject:
    """An object of the control plane at the API server."""

    resource: "Resource"
    name: str
    namespace: str | None = None
    uid: str = ""
    resource_version: str = ""
    is_being_deleted: bool = False
    finalizers: tuple[str, ...] = ()
    helm_release: str = ""
    """Helm deletes the object with this release."""
    is_named: bool = False
    """It was read by its name: rights may be limited to that."""

    @property
    def text(self) -> str:
        is_of_a_user = self.resource.group == GKM_GROUP and self.namespace
        place = f"{self.namespace}/" if is_of_a_user else ""
        return f"{self.resource.kind} {place}{self.name}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FoundNode:
    """A Node, and which of its labels the control plane wrote."""

    facts: "NodeFacts"
    annotations: tuple[str, ...] = ()
    """Keys of annotations that the control plane wrote."""
    written_labels: frozenset[str] = frozenset()
    """Keys of labels that a field manager of the control plane owns."""
    owns_cordon: bool = False
    """An upgrade of the driver cordoned it."""


@final
@dataclass(frozen=True, slots=True)
class FoundLease:
    holder: str
    """Empty: released."""
    valid_until: "dt.datetime | None" = None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalSurvey:
    """All that is left of the control plane."""

    objects_by_stage: "Mapping[RemovalStage, Sequence[FoundObject]]"
    """Objects by stage in the order in which they go."""
    nodes: tuple[FoundNode, ...] = ()
    running_deployments: tuple[FoundObject, ...] = ()
    """Those with replicas."""
    lease: FoundLease | None = None
    namespace: FoundObject | None = None
    namespace_labels: tuple[str, ...] = ()
    """Those of the Namespace that the server wrote, so that it admits privileged pods."""
    served_from: frozenset[str] = frozenset()
    """Namespaces of the Services that our webhooks call."""
    pods: "tuple[PodFacts, ...]" = ()
    cache_pods: tuple[str, ...] = ()
    """Pods on a node that have a volume of a kernel cache, as namespace/name."""
    kept: "tuple[FoundObject, ...]" = ()
    """Custom resources and definitions that stay."""
    unread: tuple[str, ...] = ()
    """Kind and name of each object that this version cannot read: a pod among them may use units."""

    def of(self, stage: RemovalStage) -> "Sequence[FoundObject]":
        return self.objects_by_stage.get(stage, ())


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One write."""

    stage: RemovalStage
    action: RemovalAction
    target: FoundObject
    body: "Mapping[str, object] | None" = None
    """Body of a patch."""

    @property
    def text(self) -> str:
        return f"{self.action.value[0]} {self.target.text}"

    @property
    def past_text(self) -> str:
        return self.action.value[1].format(self.target.text)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalPlan:
    steps: tuple[Step, ...]
    being_deleted: tuple[FoundObject, ...]
    """Being deleted already: to be awaited."""

    def of(self, stage: RemovalStage) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if step.stage is stage)


def plan_removal(found: RemovalSurvey, *, keeps_lease: bool = False) -> RemovalPlan:
    """Return the steps in order; none if nothing is left to do.

    With `keeps_lease` the server's Lease and its Namespace stay: a server that outlives the removal would lead
    again as soon as it is gone.
    """
    by_stage: dict[RemovalStage, list[Step]] = {stage: [] for stage in RemovalStage}
    being_deleted: list[FoundObject] = []
    for stage in RemovalStage:
        for item in found.of(stage):
            if item.helm_release and stage in {RemovalStage.APPLIED, RemovalStage.NAMESPACE}:
                continue
            if keeps_lease and (item.resource == LEASES or stage is RemovalStage.NAMESPACE):
                continue
            if stage is RemovalStage.FINALIZERS:
                by_stage[stage] += _without_our_finalizers(item)
            elif item.is_being_deleted:
                being_deleted.append(item)
            else:
                by_stage[stage].append(Step(stage=stage, action=RemovalAction.DELETE, target=item))
    if found.of(RemovalStage.OBJECTS):
        # A definition would wait for its objects, and could then not be made again meanwhile.
        by_stage[RemovalStage.DEFINITIONS] = []
    by_stage[RemovalStage.SERVER] += _server_steps(found)
    by_stage[RemovalStage.NODES] += [step for node in found.nodes if (step := _node_step(node))]
    if found.namespace and found.namespace_labels and not by_stage[RemovalStage.NAMESPACE]:
        labels = {"metadata": {"labels": dict.fromkeys(found.namespace_labels)}}
        step = _patch(RemovalStage.NAMESPACE_LABELS, found.namespace, labels)
        by_stage[RemovalStage.NAMESPACE_LABELS].append(step)
    return RemovalPlan(
        steps=tuple(step for steps in by_stage.values() for step in steps),
        being_deleted=tuple(being_deleted),
    )


def _server_steps(found: RemovalSurvey) -> "Iterator[Step]":
    if found.lease is not None and found.lease.holder != HOLDER:
        for item in found.of(RemovalStage.STATE):
            if item.resource == LEASES and item.name != constants.SCHEDULER_LEASE_NAME:
                yield Step(stage=RemovalStage.SERVER, action=RemovalAction.HOLD, target=item)
    for deployment in found.running_deployments:
        yield Step(stage=RemovalStage.SERVER, action=RemovalAction.SCALE, target=deployment)


def _without_our_finalizers(found: FoundObject) -> "Iterator[Step]":
    left = [name for name in found.finalizers if not is_our_finalizer(name)]
    if len(left) < len(found.finalizers):
        # The list is written whole, so nobody may have changed it since.
        metadata = {"resourceVersion": found.resource_version, "finalizers": left or None}
        yield _patch(RemovalStage.FINALIZERS, found, {"metadata": metadata})


def _patch(stage: RemovalStage, target: FoundObject, body: "Mapping[str, object]") -> Step:
    return Step(stage=stage, action=RemovalAction.PATCH, target=target, body=body)


def _node_step(node: FoundNode) -> Step | None:
    """Remove what the control plane wrote; labels and a cordon of the operator stay."""
    facts = node.facts
    labels = [
        key
        for key in facts.labels
        if key.startswith(POOL_NODE_LABEL_PREFIX) or (is_ours(key) and key in node.written_labels)
    ]
    operands = _without_operands(facts)
    labels += [key for key in operands.labels if key not in labels]
    ours = {
        *(POOL_TAINTS_ANNOTATION, KEEP_UNTIL_ANNOTATION),
        driver_upgrade.UNITS_WITHHELD_ANNOTATION,
        *operands.annotations,
    }
    if driver_upgrade.UPGRADE_RECORD_ANNOTATION in node.annotations:
        ours.update(OUR_ANNOTATIONS)
        labels += [key for key in facts.labels if key == driver_upgrade.UPGRADE_STATE_LABEL]
    if KEEP_UNTIL_ANNOTATION in node.annotations:
        ours.add(DO_NOT_DISRUPT_ANNOTATION)
    annotations = [key for key in node.annotations if key in ours]
    # Nobody else removes the startup taint, without which the autoscaler does not take the node for initialized.
    taints = [taint for taint in taints_of(facts, ())[0] if taint.key != AGENT_NOT_READY_TAINT]
    metadata: dict[str, object] = {}
    spec: dict[str, object] = {}
    if labels:
        metadata["labels"] = dict.fromkeys(sorted(labels))
    if annotations:
        metadata["annotations"] = dict.fromkeys(sorted(annotations))
    if tuple(taints) != facts.taints:
        spec["taints"] = taints or None
    if node.owns_cordon:
        spec["unschedulable"] = None
    body: dict[str, object] = {"metadata": metadata}
    if spec:
        # The list of taints is written whole, and a cordon may be another's by now: nobody may have changed them since.
        metadata["resourceVersion"] = facts.resource_version
        body["spec"] = spec
    if not metadata:
        return None
    target = FoundObject(resource=NODES, name=facts.name, uid=facts.uid)
    return _patch(RemovalStage.NODES, target, body)


def _without_operands(facts: "NodeFacts") -> LabelChange:
    """Return the removal of the labels and annotations for a ClusterPolicy's operands that are ours."""
    node = LabelledNode(
        labels=facts.labels, recorded=facts.deploy_labels, upgrade_enabled=facts.upgrade_enabled
    )
    return deploy_labels(node, None, expired=(Hold.POLICY,))


def pods_in_use(pods: "Iterable[PodFacts]", now: "dt.datetime") -> "list[PodFacts]":
    """Return the pods that have units: bound and not ended, or waiting with a reservation."""
    return [pod for pod in pods if pod.phase is PodPhase.BOUND or _is_reserved(pod, now)]


def _is_reserved(pod: "PodFacts", now: "dt.datetime") -> bool:
    note = pod.reservation
    return (
        pod.phase is PodPhase.PENDING
        and note is not None
        and bool(note.node)
        and (note.expires_at is None or note.expires_at > now)
    )


def refusal_text(users: "Sequence[PodFacts]", cache_pods: "Sequence[str]") -> str:
    """Return why nothing is removed, in one line; empty where no pod needs the control plane."""
    reasons = []
    if users:
        texts = listed(_pod_text(pod) for pod in users)
        reasons.append(f"{_counted(users, 'pod uses', 'pods use')} units of pools: {texts}")
    if cache_pods:
        mount = _counted(cache_pods, "pod mounts", "pods mount")
        reasons.append(
            f"{mount} kernel caches, which kubelet cannot unmount without a node agent: {listed(cache_pods)}"
        )
    if not reasons:
        return ""
    them = "it" if len({*(pod.ref for pod in users), *cache_pods}) == 1 else "them"
    return f"{'; '.join(reasons)}. Delete {them}, or let {them} run on with --force"


def unread_text(objects: "Sequence[str]") -> str:
    """Return why nothing is removed, in one line."""
    return (
        f"{listed(objects)} cannot be read by this version, so that it is unknown what they use: run the command of the"
        " version that wrote them, or go on without them with --force"
    )


def _pod_text(pod: "PodFacts") -> str:
    what = f"{counted(pod.demand.units)} of {pod.demand.resource}"
    place = f"on {pod.node}" if pod.node else "reserved"
    return f"{pod.ref} ({what}, {place})"


def left_texts(found: RemovalSurvey) -> "Iterator[str]":
    """Yield what stays in the cluster, a line each."""
    if running := [pod.ref for pod in found.pods if pod.phase is PodPhase.BOUND]:
        keep = _counted(running, "pod keeps its", "pods keep their")
        yield f"{keep} devices: {listed(running)}"
    if waiting := [pod.ref for pod in found.pods if pod.phase is PodPhase.PENDING]:
        stay = _counted(waiting, "pod of a pool stays", "pods of pools stay")
        yield f"{stay} Pending until a control plane is installed again: {listed(waiting)}"
    if found.cache_pods:
        keep = _counted(found.cache_pods, "pod keeps its", "pods keep their")
        yield (
            f"{keep} kernel caches mounted: {listed(found.cache_pods)}. Without a node agent kubelet cannot unmount"
            " them: a pod that is deleted then stays Terminating until a control plane is installed again"
        )
    if found.kept:
        kinds = Counter(item.resource.kind for item in found.kept)
        counts = ", ".join(f"{count} {kind}s" for kind, count in sorted(kinds.items()))
        yield f"{counts}: --delete-crds deletes them"
    by_release = Counter(
        item.helm_release
        for stage in (RemovalStage.APPLIED, RemovalStage.NAMESPACE)
        for item in found.of(stage)
        if item.helm_release
    )
    for release, count in sorted(by_release.items()):
        yield f"{count} objects of the Helm release {release}: helm uninstall deletes them"


def server_elsewhere(found: RemovalSurvey, now: "dt.datetime") -> str:
    """Return the holder of a valid Lease that no Deployment in the namespace runs; else nothing."""
    lease = found.lease
    if lease is None or lease.valid_until is None or found.running_deployments:
        return ""
    return lease.holder if lease.valid_until > now and lease.holder != HOLDER else ""


def _counted(items: "Sequence[object]", singular: str, plural: str) -> str:
    return f"{len(items)} {singular if len(items) == 1 else plural}"
