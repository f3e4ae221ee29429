"""A fake DaemonSet controller: a bound pod on every node that the template allows, in one namespace.

A pod is named for its DaemonSet and its node. A changed template makes a ControllerRevision; with strategy RollingUpdate
its pods are replaced one by one, with OnDelete when they are deleted. The status counts pods as a real one's.
"""

import asyncio
import hashlib
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

import msgspec
import structlog

from api.foreign.core import Node, PodSpec, Toleration
from api.foreign.workload_kinds import DaemonSet
from api.meta import Condition, Model, ObjectMeta
from api.well_known_labels import REVISION_LABEL
from kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from kube.informer import Informer, Selection
from kube.resources import CONTROLLER_REVISIONS, DAEMON_SETS, NODES, PODS
from kube.store import Store
from pool.facts import node_facts
from pool.model import Constraints
from pool.placement.planner import may_go_to

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from api.clock import Clock
    from kube.client import KubeClient

Json = dict[str, Any]

_DIGITS: Final = 10


def revision_hash(template: "Mapping[str, Any]") -> str:
    """Return the hash of a pod template."""
    content = msgspec.json.encode(template, order="deterministic")
    return hashlib.sha256(content).hexdigest()[:_DIGITS]


def revision_body(owner: "Mapping[str, Any]", labels: "Mapping[str, str]", *, hash_: str) -> Json:
    """Return a revision, without its number.

    Args:
        owner: metadata of the DaemonSet: name, namespace and uid.
        labels: of its template.
        hash_: of its template.
    """
    reference = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "name": owner["name"],
        "uid": owner["uid"],
        "controller": True,
    }
    return {
        "apiVersion": CONTROLLER_REVISIONS.api_version,
        "kind": CONTROLLER_REVISIONS.kind,
        "metadata": {
            "name": f"{owner['name']}-{hash_}",
            "namespace": owner["namespace"],
            "labels": {**labels, REVISION_LABEL: hash_},
            "ownerReferences": [reference],
        },
    }


RETRY_S: Final = 1.0
_TOLERATED: Final = (
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/unschedulable",
)
"""Taints that the DaemonSet controller lets every pod of its own tolerate, among others."""

_log = structlog.get_logger()


class _PodStatus(Model, frozen=True):
    conditions: list[Condition] | None = None


class _DaemonPod(Model, frozen=True):
    """What counts of a pod."""

    metadata: ObjectMeta = ObjectMeta()
    status: _PodStatus = _PodStatus()

    @property
    def is_going(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def is_ready(self) -> bool:
        conditions = self.status.conditions or ()
        return not self.is_going and any(
            (condition.type, condition.status) == ("Ready", "True") for condition in conditions
        )

    @property
    def owner(self) -> str:
        """Uid of its DaemonSet; empty of a pod that is none's."""
        for reference in self.metadata.owner_references or ():
            if reference.kind == DAEMON_SETS.kind and reference.controller:
                return reference.uid
        return ""


@final
@dataclass(slots=True)
class _Revisions:
    """Revisions of one DaemonSet."""

    numbers: dict[str, int]
    """Numbers by hash."""
    newest: str = ""


@final
class FakeDaemonSets:
    """Creates and deletes the pods of all DaemonSets of a namespace."""

    def __init__(self, client: "KubeClient", clock: "Clock", *, namespace: str) -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._nodes: Store[Node] = Store()
        self._sets: Store[DaemonSet] = Store()
        self._pods: Store[_DaemonPod] = Store()
        self._changed = asyncio.Event()
        self._revisions: dict[str, tuple[str, _Revisions]] = {}
        # uid of a DaemonSet -> its name and revisions
        self._reported: dict[str, dict[str, int]] = {}
        # uid of a DaemonSet -> the status that was written last

    async def run(self) -> NoReturn:
        client, clock, within = self._client, self._clock, Selection(namespace=self._namespace)
        informers: tuple[Informer[Any], ...] = (
            Informer(client, NODES, Node, sink=self._nodes, clock=clock),
            Informer(
                client, DAEMON_SETS, DaemonSet, sink=self._sets, clock=clock, selection=within
            ),
            Informer(client, PODS, _DaemonPod, sink=self._pods, clock=clock, selection=within),
        )
        for store in (self._nodes, self._sets, self._pods):
            store.changes.subscribe(lambda _name: self._changed.set())
        async with asyncio.TaskGroup() as group:
            for informer in informers:
                group.create_task(informer.run(), name="daemon sets/informer")
            for informer in informers:
                await informer.synced.wait()
            while True:
                await self._changed.wait()
                self._changed.clear()
                try:
                    await self._reconcile()
                except KubeError as error:
                    _log.warning("pods of DaemonSets not written", error=str(error))
                    await asyncio.sleep(RETRY_S)
                    self._changed.set()
        raise AssertionError("a task group of endless tasks ended")

    async def _reconcile(self) -> None:
        live = {
            item.metadata.uid: item
            for _, item in sorted(self._sets.by_name.items())
            if item.metadata.deletion_timestamp is None
        }
        await self._keep_revisions(live)
        desired = self._desired(live)
        for name, pod in list(self._pods.by_name.items()):
            if pod.owner and (name not in desired or desired[name][0].metadata.uid != pod.owner):
                await self._delete(pod)
        for name in sorted(desired.keys() - self._pods.by_name.keys()):
            await self._create(name, *desired[name])
        pods: defaultdict[str, list[_DaemonPod]] = defaultdict(list)
        for name, pod in sorted(self._pods.by_name.items()):
            if name in desired:
                pods[pod.owner].append(pod)
        for uid, item in live.items():
            total = sum(owner.metadata.uid == uid for owner, _ in desired.values())
            await self._replace_one(item, pods[uid])
            await self._write_status(item, pods[uid], total)

    async def _keep_revisions(self, live: dict[str, DaemonSet]) -> None:
        for uid in self._revisions.keys() - live.keys():
            name, revisions = self._revisions.pop(uid)
            self._reported.pop(uid, None)
            for hash_ in revisions.numbers:
                await self._delete_revision(f"{name}-{hash_}")
        for uid, item in live.items():
            name, revisions = self._revisions.setdefault(uid, (item.metadata.name, _Revisions({})))
            hash_ = revision_hash(item.spec["template"])
            if hash_ != revisions.newest:
                await self._add_revision(item, revisions, hash_)
                revisions.newest = hash_

    async def _add_revision(self, owner: DaemonSet, revisions: _Revisions, hash_: str) -> None:
        number = max(revisions.numbers.values(), default=0) + 1
        meta = owner.metadata
        identity = {"name": meta.name, "namespace": self._namespace, "uid": meta.uid}
        labels = owner.spec["template"]["metadata"].get("labels") or {}
        body = revision_body(identity, labels, hash_=hash_) | {"revision": number}
        await self._client.apply(CONTROLLER_REVISIONS, body, field_manager="daemonset-controller")
        revisions.numbers[hash_] = number

    async def _delete_revision(self, name: str) -> None:
        try:
            await self._client.delete(CONTROLLER_REVISIONS, name, namespace=self._namespace)
        except NotFound:
            return

    def _desired(self, live: dict[str, DaemonSet]) -> dict[str, tuple[DaemonSet, str]]:
        """Return DaemonSet and node of every pod that should be there, by the pod's name."""
        return {
            f"{item.metadata.name}-{node}": (item, node)
            for item in live.values()
            for node in self._nodes_of(item)
        }

    def _nodes_of(self, found: DaemonSet) -> list[str]:
        spec = msgspec.convert(found.spec["template"]["spec"], PodSpec)
        own = [Toleration(key=key, operator="Exists") for key in _TOLERATED]
        constraints = Constraints(
            node_selector=spec.node_selector,
            affinity=spec.affinity,
            tolerations=(*(spec.tolerations or ()), *own),
        )
        nodes = sorted(self._nodes.by_name.items())
        return [name for name, node in nodes if may_go_to(node_facts(node), constraints)]

    async def _create(self, name: str, owner: DaemonSet, node: str) -> None:
        template = owner.spec["template"]
        meta = template["metadata"]
        reference = {
            "apiVersion": DAEMON_SETS.api_version,
            "kind": DAEMON_SETS.kind,
            "name": owner.metadata.name,
            "uid": owner.metadata.uid,
            "controller": True,
        }
        _, revisions = self._revisions[owner.metadata.uid]
        body: dict[str, Any] = {
            "apiVersion": PODS.api_version,
            "kind": PODS.kind,
            "metadata": {
                "name": name,
                "namespace": self._namespace,
                "labels": {**(meta.get("labels") or {}), REVISION_LABEL: revisions.newest},
                "annotations": meta.get("annotations") or {},
                "ownerReferences": [reference],
            },
            "spec": {
                **template["spec"],
                "affinity": _affinity_to(node, template["spec"].get("affinity") or {}),
                "nodeName": node,
            },
        }
        try:
            await self._client.create(PODS, body)
        except AlreadyExists:
            return  # the watch has yet to show it

    async def _delete(self, pod: _DaemonPod) -> None:
        meta = pod.metadata
        if pod.is_going:
            return
        try:
            await self._client.delete(PODS, meta.name, namespace=meta.namespace, uid=meta.uid)
        except (NotFound, Conflict):
            return  # likewise, or another pod has the name

    async def _replace_one(self, owner: DaemonSet, pods: "Sequence[_DaemonPod]") -> None:
        """Roll a changed template out: delete one pod of an older one, unless another one is away."""
        strategy = (owner.spec.get("updateStrategy") or {}).get("type")
        outdated = [pod for pod in pods if not self._is_updated(owner, pod)]
        if strategy == "OnDelete" or not outdated:
            return
        # A pod that is not ready goes first: nothing is lost with it.
        broken = [item for item in outdated if not item.is_ready]
        if broken:
            await self._delete(broken[0])
        elif all(pod.is_ready for pod in pods):
            await self._delete(outdated[0])

    def _is_updated(self, owner: DaemonSet, pod: _DaemonPod) -> bool:
        _, revisions = self._revisions[owner.metadata.uid]
        return pod.metadata.label(REVISION_LABEL) == revisions.newest

    async def _write_status(
        self, owner: DaemonSet, pods: "Sequence[_DaemonPod]", total: int
    ) -> None:
        """Write the status where it has changed."""
        meta = owner.metadata
        ready = sum(pod.is_ready for pod in pods)
        status = {
            "observedGeneration": meta.generation,
            "desiredNumberScheduled": total,
            "currentNumberScheduled": len(pods),
            "numberMisscheduled": 0,
            "updatedNumberScheduled": sum(self._is_updated(owner, pod) for pod in pods),
            "numberReady": ready,
            "numberAvailable": ready,
            "numberUnavailable": max(0, total - ready),
        }
        if self._reported.get(meta.uid) == status:
            return
        try:
            await self._client.merge_patch(
                DAEMON_SETS,
                {"status": status},
                name=meta.name,
                namespace=self._namespace,
                subresource="status",
            )
        except NotFound:
            return
        self._reported[meta.uid] = status


def _affinity_to(node: str, affinity: "Mapping[str, Any]") -> dict[str, Any]:
    """Return the affinity of a pod for the node: its name is the one term, whatever the template has."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {**affinity, "nodeAffinity": {**(affinity.get("nodeAffinity") or {}), **required}}
