"""A fake DaemonSet controller: a bound pod on every node that the template allows, in one namespace.

A pod is named for its DaemonSet and its node. A changed template is not rolled out, and no status is written.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

import msgspec
import structlog

from api.foreign.core import Node, PodSpec, Toleration
from api.foreign.workload_kinds import DaemonSet
from api.meta import PartialObjectMetadata
from kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from kube.informer import Informer, Selection
from kube.resources import DAEMON_SETS, NODES, PODS
from kube.store import Store
from pool.facts import node_facts
from pool.model import Constraints
from pool.placement.planner import may_go_to

if TYPE_CHECKING:
    from api.clock import Clock
    from kube.client import KubeClient

RETRY_S: Final = 1.0
_TOLERATED: Final = (
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/unschedulable",
)
"""Taints that the DaemonSet controller lets every pod of its own tolerate, among others."""

_log = structlog.get_logger()


@final
class FakeDaemonSets:
    """Creates and deletes the pods of all DaemonSets of a namespace."""

    def __init__(self, client: "KubeClient", clock: "Clock", *, namespace: str) -> None:
        self._client = client
        self._clock = clock
        self._namespace = namespace
        self._nodes: Store[Node] = Store()
        self._sets: Store[DaemonSet] = Store()
        self._pods: Store[PartialObjectMetadata] = Store()
        self._changed = asyncio.Event()

    async def run(self) -> NoReturn:
        client, clock, within = self._client, self._clock, Selection(namespace=self._namespace)
        informers: tuple[Informer[Any], ...] = (
            Informer(client, NODES, Node, sink=self._nodes, clock=clock),
            Informer(
                client, DAEMON_SETS, DaemonSet, sink=self._sets, clock=clock, selection=within
            ),
            Informer(
                client, PODS, PartialObjectMetadata, sink=self._pods, clock=clock, selection=within
            ),
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
        wanted = self._wanted()
        for name, pod in list(self._pods.by_name.items()):
            owner = _owner_of(pod)
            if owner and (name not in wanted or wanted[name][0].metadata.uid != owner):
                await self._delete(pod)
        for name in sorted(wanted.keys() - self._pods.by_name.keys()):
            await self._create(name, *wanted[name])

    def _wanted(self) -> dict[str, tuple[DaemonSet, str]]:
        """Return DaemonSet and node of every pod that should be there, by the pod's name."""
        return {
            f"{name}-{node}": (found, node)
            for name, found in sorted(self._sets.by_name.items())
            if found.metadata.deletion_timestamp is None
            for node in self._nodes_of(found)
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
        body: dict[str, Any] = {
            "apiVersion": PODS.api_version,
            "kind": PODS.kind,
            "metadata": {
                "name": name,
                "namespace": self._namespace,
                "labels": meta.get("labels") or {},
                "annotations": meta.get("annotations") or {},
                "ownerReferences": [reference],
            },
            "spec": {**template["spec"], "nodeName": node},
        }
        try:
            await self._client.create(PODS, body)
        except AlreadyExists:
            return  # the watch has yet to show it

    async def _delete(self, pod: PartialObjectMetadata) -> None:
        meta = pod.metadata
        if meta.deletion_timestamp is not None:
            return
        try:
            await self._client.delete(PODS, meta.name, namespace=meta.namespace, uid=meta.uid)
        except (NotFound, Conflict):
            return  # likewise, or another pod has the name


def _owner_of(pod: PartialObjectMetadata) -> str:
    """Return the uid of the pod's DaemonSet; empty of a pod that is none's."""
    for owner in pod.metadata.owner_references or ():
        if owner.kind == DAEMON_SETS.kind and owner.controller:
            return owner.uid
    return ""
