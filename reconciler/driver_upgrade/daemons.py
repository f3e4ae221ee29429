"""Driver DaemonSets: which nodes they select, what their pods are compared with, and the facts of those pods. Pure."""

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, final

from api.driver_upgrade import (
    AGENT_DEPLOY_LABEL,
    DEPLOYED,
    DRIVER_DEPLOY_LABEL,
    PAUSED_FOR_UPGRADE,
)
from api.names import ADOPTED_ANNOTATION, NodeName, PodUid
from api.status_conditions import parse_time
from api.text import listed, truncate
from api.well_known_labels import APP_COMPONENT_LABEL, REVISION_LABEL
from operands.nvidia.drivers.config_digest import DIGEST_VARIABLE
from operands.upgrade.facts import DriverPod, DriverRevision, ValidatorPod
from pool.compute_resources import NOTHING, ComputeResources
from pool.model import Constraints
from reconciler.driver_upgrade.objects import (
    DRIVER_COMPONENT,
)

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from api.foreign.core import Node, Taint
    from api.foreign.reported_containers import ReportedContainer
    from reconciler.driver_upgrade.objects import (
        ControllerRevision,
        UpgradeDaemonSet,
        UpgradePod,
        UpgradePodSpec,
    )

_TOLERATED_BY_DAEMON_SETS: Final = "node.kubernetes.io/"
"""Prefix of the taints that the DaemonSet controller has all of its pods tolerate."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DriverDaemon:
    """A driver DaemonSet."""

    name: str
    uid: str
    revision: str = ""
    """Hash of its newest revision; empty where it has none yet."""
    equal_revisions: frozenset[str] = frozenset()
    """Hashes of older ones, of a driver that was taken over, that differ from it in tolerations alone."""
    digest: str = ""
    constraints: Constraints = field(default_factory=Constraints)
    requests: ComputeResources = NOTHING
    """What a pod of it requests."""

    def selects(self, node: "NodeName", labels: "Mapping[str, str]") -> bool:
        """Return whether it selects a node, whatever the node's taints: they come and go while its driver stays."""
        return self.constraints.select(node, labels)

    def obstacle(self, taints: "Iterable[Taint]") -> str:
        """Return which taint of a node that it selects keeps its pods away, with the cure; empty where none does."""
        taint = untolerated(self.constraints, taints)
        if taint is None:
            return ""
        return (
            f"DaemonSet {self.name} does not tolerate taint {taint} of the node: give its pods the toleration, or take"
            " the taint away"
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDaemon:
    """A DaemonSet of this control plane whose pods leave a node before its driver is unloaded."""

    name: str
    spec: "UpgradePodSpec"
    is_leaving: bool = False
    """It is being deleted."""

    def selects(self, node: "Node") -> bool:
        """Return whether it makes a pod on a node unless the upgrade of its driver keeps that away."""
        meta = node.metadata
        labels = {**(meta.labels or {})}
        if labels.get(AGENT_DEPLOY_LABEL) == PAUSED_FOR_UPGRADE:
            del labels[AGENT_DEPLOY_LABEL]
        constraints = Constraints(
            node_selector=self.spec.node_selector,
            affinity=self.spec.affinity,
            tolerations=self.spec.tolerations or (),
        )
        return (
            not self.is_leaving
            and constraints.select(NodeName(meta.name), labels)
            and untolerated(constraints, node.spec.taints or ()) is None
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedDriver:
    """A driver pod; of thousands no more is kept."""

    node: NodeName
    owner: str
    """UID of its controller; empty without one."""
    created: "dt.datetime | None"
    """Time of creation by the API server's clock."""
    started: "dt.datetime | None"
    """Time of start by the node's clock, by which checks end, too; before kubelet has said it, the time of its
    creation."""
    fact: DriverPod


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedValidator:
    node: NodeName
    created: "dt.datetime | None"
    """Time of creation by the API server's clock."""
    checked: "dt.datetime | None"
    """When the first of its checks ended, by the node's clock."""
    fact: ValidatorPod
    """Whatever driver it checked."""


def untolerated(constraints: Constraints, taints: "Iterable[Taint]") -> "Taint | None":
    """Return the first taint for which a DaemonSet makes no pod; None where it tolerates all."""
    return next(
        (
            taint
            for taint in taints
            if taint.effect != "PreferNoSchedule"
            and not taint.key.startswith(_TOLERATED_BY_DAEMON_SETS)
            and not constraints.tolerated.cover(taint)
        ),
        None,
    )


def driver_daemons(
    daemon_sets: "Iterable[UpgradeDaemonSet]", revisions: "Iterable[ControllerRevision]"
) -> dict[str, DriverDaemon]:
    """Return the driver DaemonSets that are not being deleted, by UID."""
    revisions_of: defaultdict[str, list[ControllerRevision]] = defaultdict(list)
    for item in sorted(revisions, key=lambda revision: revision.revision):
        for owner in item.metadata.owner_references or ():
            if owner.controller:
                revisions_of[owner.uid].append(item)
    found = sorted(daemon_sets, key=lambda set_: set_.metadata.name)
    return {
        item.metadata.uid: DriverDaemon(
            name=item.metadata.name,
            uid=item.metadata.uid,
            revision=_newest_of(revisions_of[item.metadata.uid], item),
            equal_revisions=_equal_revisions(revisions_of[item.metadata.uid], item),
            digest=digest_of(item.spec.template.spec),
            constraints=Constraints(
                node_selector=item.spec.template.spec.node_selector,
                affinity=item.spec.template.spec.affinity,
                tolerations=item.spec.template.spec.tolerations or (),
            ),
            requests=item.spec.template.spec.requests,
        )
        for item in found
        if item.spec.template.metadata.label(APP_COMPONENT_LABEL) == DRIVER_COMPONENT
        and item.metadata.deletion_timestamp is None
    }


def agent_daemons(daemon_sets: "Iterable[UpgradeDaemonSet]") -> dict[str, AgentDaemon]:
    """Return by UID the DaemonSets whose pods leave nodes by `api.driver_upgrade.AGENT_DEPLOY_LABEL`.

    Their pods do not show it: the DaemonSet controller puts the name of the node in the place of the affinity's terms.
    """
    return {
        set_.metadata.uid: AgentDaemon(
            name=set_.metadata.name,
            spec=set_.spec.template.spec,
            is_leaving=set_.metadata.deletion_timestamp is not None,
        )
        for set_ in daemon_sets
        if set_.spec.template.spec.affinity is not None
        and set_.spec.template.spec.affinity.requires(AGENT_DEPLOY_LABEL)
    }


def daemon_of(
    node: "NodeName",
    labels: "Mapping[str, str]",
    daemons: "Mapping[str, DriverDaemon]",
    *,
    owners: "Collection[str]",
) -> DriverDaemon | None:
    """Return the DaemonSet for a node: the one that selects it, first an owner of a pod there; None where none does."""
    selecting = [daemon for daemon in daemons.values() if daemon.selects(node, labels)]
    return min(selecting, key=lambda item: (item.uid not in owners, item.name), default=None)


def unselected(
    labels: "Mapping[str, str]", daemons: "Mapping[str, DriverDaemon]", *, owners: "Collection[str]"
) -> str:
    """Return why no driver DaemonSet makes a pod on a node that none selects."""
    text = "no driver DaemonSet selects the node"
    for daemon in (daemons[uid] for uid in sorted(owners) if uid in daemons):
        desired = sorted((daemon.constraints.node_selector or {}).items())
        missing = [f"{key}={value}" for key, value in desired if labels.get(key) != value]
        cause = f"has not label {listed(missing)}" if missing else "does not match its affinity"
        return f"{text}: for {daemon.name} the node {cause}"
    return text


def is_selected(labels: "Mapping[str, str]", daemon: DriverDaemon | None) -> bool:
    """Return whether a driver is to be on the node: also while its DaemonSet is replaced by another one."""
    return daemon is not None or labels.get(DRIVER_DEPLOY_LABEL) == DEPLOYED


def observed_driver(
    pod: "UpgradePod", daemons: "Mapping[str, DriverDaemon]"
) -> ObservedDriver | None:
    """Return a driver pod; None where neither the pod nor its DaemonSet says for which node it is."""
    node = node_of(pod)
    if node is None:
        return None
    created = parse_time(pod.metadata.creation_timestamp or "")
    return ObservedDriver(
        node=node,
        owner=owner_uid(pod),
        created=created,
        started=parse_time(pod.status.start_time or "") or created,
        fact=driver_pod(pod, daemons),
    )


def owner_uid(pod: "UpgradePod") -> str:
    """Return the UID of the pod's controller; empty without one."""
    owners = pod.metadata.owner_references or ()
    return next((owner.uid for owner in owners if owner.controller), "")


def node_of(pod: "UpgradePod") -> NodeName | None:
    """Return the pod's node, or the one that its DaemonSet made it for."""
    if pod.spec.node_name:
        return NodeName(pod.spec.node_name)
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    required = affinity.required if affinity is not None else None
    for term in (required.node_selector_terms or ()) if required is not None else ():
        for item in term.match_fields or ():
            if item.key == "metadata.name" and item.values:
                return NodeName(item.values[0])
    return None


def driver_pod(pod: "UpgradePod", daemons: "Mapping[str, DriverDaemon]") -> DriverPod:
    statuses = pod.status.container_statuses or []
    return DriverPod(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=PodUid(pod.metadata.uid),
        revision=_revision_of(pod, daemons),
        is_ready=pod.status.phase == "Running"
        and bool(statuses)
        and all(item.ready for item in statuses),
        is_scheduled=bool(pod.spec.node_name),
        is_terminating=pod.is_terminating,
        restarts=max((item.restart_count for item in _unready(pod)), default=0),
        config_digest=digest_of(pod.spec),
        message=_cause_of(pod),
    )


def observed_validator(pod: "UpgradePod") -> ObservedValidator | None:
    """Return a validator pod; None while it is on no node."""
    if not pod.spec.node_name:
        return None
    is_ready = pod.condition("Ready").status == "True" and not pod.is_terminating
    return ObservedValidator(
        node=NodeName(pod.spec.node_name),
        created=parse_time(pod.metadata.creation_timestamp or ""),
        checked=_checked_at(pod),
        fact=ValidatorPod(
            namespace=pod.metadata.namespace,
            name=pod.metadata.name,
            uid=PodUid(pod.metadata.uid),
            is_ready=is_ready,
            message="" if is_ready else _cause_of(pod),
        ),
    )


def validator_pod(
    validator: ObservedValidator, drivers: "Iterable[ObservedDriver]"
) -> ValidatorPod:
    """Return the facts of a validator; its checks count if they were made after the newest driver pod began.

    Each comparison is on one clock. A validator that was created after the driver pod has checked that one, so that no
    more than one is deleted for a driver pod, however wrong the node's clock is.
    """
    fact, checked, began = validator.fact, validator.checked, list(drivers)
    created = max((pod.created for pod in began if pod.created is not None), default=None)
    started = max((pod.started for pod in began if pod.started is not None), default=None)
    is_newer = created is not None and validator.created is not None and validator.created > created
    if not fact.is_ready or started is None or checked is None or checked >= started or is_newer:
        return fact
    message = "it passed before the driver pod started"
    return replace(fact, is_ready=False, is_outdated=True, message=message)


def digest_of(spec: "UpgradePodSpec") -> str:
    """Return the digest of the driver's configuration, as the first container that has the variable says."""
    for container in (*(spec.init_containers or ()), *(spec.containers or ())):
        for variable in container.env or ():
            if variable.name == DIGEST_VARIABLE and variable.value:
                digest: str = variable.value
                return digest
    return ""


def _newest_of(revisions: "Sequence[ControllerRevision]", daemon_set: "UpgradeDaemonSet") -> str:
    return _hash_of(revisions[-1], daemon_set) if revisions else ""


def _equal_revisions(
    revisions: "Sequence[ControllerRevision]", daemon_set: "UpgradeDaemonSet"
) -> frozenset[str]:
    if not daemon_set.metadata.annotation(ADOPTED_ANNOTATION):
        return frozenset()
    newest = revisions[-1].without_tolerations if revisions else {}
    return frozenset(
        _hash_of(item, daemon_set)
        for item in revisions[:-1]
        if item.data is not None and item.without_tolerations == newest
    )


def _hash_of(revision: "ControllerRevision", daemon_set: "UpgradeDaemonSet") -> str:
    label = revision.metadata.label(REVISION_LABEL)
    return label or revision.metadata.name.removeprefix(f"{daemon_set.metadata.name}-")


def _revision_of(pod: "UpgradePod", daemons: "Mapping[str, DriverDaemon]") -> DriverRevision:
    daemon = daemons.get(owner_uid(pod))
    if daemon is None:
        return DriverRevision.ORPHAN
    label = pod.metadata.label(REVISION_LABEL)
    if not label or not daemon.revision:
        return DriverRevision.UNKNOWN
    is_current = label in {daemon.revision, *daemon.equal_revisions}
    return DriverRevision.CURRENT if is_current else DriverRevision.OUTDATED


def _unready(pod: "UpgradePod") -> "list[ReportedContainer]":
    status = pod.status
    every = (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
    return [item for item in every if not item.ready]


def _cause_of(pod: "UpgradePod") -> str:
    """Return why the pod is not scheduled or not ready, as the scheduler or kubelet says."""
    if not pod.spec.node_name:
        return _line(pod.condition("PodScheduled").message)
    for item in _unready(pod):
        state = item.state
        if state.waiting is not None and state.waiting.reason not in {"", "PodInitializing"}:
            text = f"container {item.name}: {state.waiting.reason} {state.waiting.message}"
            return _line(text)
        if state.terminated is not None and state.terminated.exit_code:
            ended = state.terminated
            text = (
                f"container {item.name} ended with {ended.exit_code} {ended.reason} {ended.message}"
            )
            return _line(text)
    return ""


def _line(text: str) -> str:
    return truncate(" ".join(text.split()))


def _checked_at(pod: "UpgradePod") -> "dt.datetime | None":
    """Return when the first of its checks ended; where it has none, when the pod started."""
    ended = [
        item.state.terminated.finished_at or ""
        for item in pod.status.init_container_statuses or ()
        if item.state.terminated is not None
    ]
    times = [time for item in ended if (time := parse_time(item)) is not None]
    started = parse_time(pod.status.start_time or pod.metadata.creation_timestamp or "")
    return min(times, default=started)
