"""Writer of the node's GKMCacheNodes and of its ClusterGKMCacheNode: each on a difference only.

An object is made for the first cache of its namespace, with the Node as its owner; a finalizer for each cache keeps it
while the node has one; the object is deleted with the last. Of a namespace that fails the others are written all the
same, and it is tried again.
"""

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, NoReturn, final

import structlog
from msgspec import structs

from agent.kernelcache.node_status import finalizers_of, node_status
from api.foreign.core import Node
from api.kinds.gkmcachenode import ClusterGKMCacheNode, GKMCacheNode
from api.well_known_labels import HOSTNAME_LABEL
from kube.backoff import Backoff
from kube.errors import AlreadyExists, Conflict, KubeError, NotFound, one_line
from kube.event_recorder import ObjectReference
from kube.resources import CLUSTER_GKM_CACHE_NODES, GKM_CACHE_NODES, NODES
from telemetry.metrics import TASK_FAILURES
from telemetry.reasons import CacheNodeEvent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agent.kernelcache.cache_objects import CacheObjects
    from agent.kernelcache.node_status import CacheFacts
    from api.clock import Clock
    from api.kinds.gkmcachenode import GKMCacheNodeStatus, NodeGPUs
    from api.names import NodeName
    from kube.client import KubeClient
    from kube.event_recorder import EventRecorder
    from kube.resources import Resource

TASK: Final = "agent.kernelcache.objects"
GATHER_S: Final = 0.2
"""Pods of a job come together."""
_ACTION: Final = "ReportCaches"

_log = structlog.get_logger()


@final
class NodeObjectWriter:
    """Keeps the objects equal to what `report` was given last."""

    def __init__(
        self,
        client: "KubeClient",
        objects: "CacheObjects",
        *,
        events: "EventRecorder",
        clock: "Clock",
        node: "NodeName",
    ) -> None:
        self._client = client
        self._objects = objects
        self._events = events
        self._clock = clock
        self._node = node
        self._backoff = Backoff()
        self._caches: Mapping[str, Mapping[str, CacheFacts]] | None = None
        self._gpus: tuple[NodeGPUs, ...] = ()
        self._changed = asyncio.Event()
        self._last_error = ""
        TASK_FAILURES.labels(TASK)

    def report(
        self, caches: "Mapping[str, Mapping[str, CacheFacts]]", gpus: "tuple[NodeGPUs, ...]"
    ) -> None:
        """Show these from now on: namespace -> name -> cache; each cache has a digest."""
        self._caches, self._gpus = caches, gpus
        self._changed.set()

    async def run(self) -> NoReturn:
        """Write until cancelled."""
        while True:
            await self._changed.wait()
            await asyncio.sleep(GATHER_S)
            self._changed.clear()
            error = await self.reconcile()
            if error is None:
                self._backoff.succeed()
                self._last_error = ""
                continue
            TASK_FAILURES.labels(TASK).inc()
            text = one_line(str(error))
            if text != self._last_error and not isinstance(error, Conflict):
                self._last_error = text
                _log.warning("node object of caches not written", error=text)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._backoff.fail()):
                    await self._changed.wait()
            self._changed.set()

    async def reconcile(self) -> KubeError | None:
        """Write what differs; return the last failure."""
        if self._caches is None:
            return None
        failure = None
        for namespace in sorted({*self._caches, *self._objects.node_objects()}):
            try:
                await self._reconcile(namespace, self._caches.get(namespace, {}))
            except KubeError as error:
                failure = error
        return failure

    async def _reconcile(self, namespace: str, caches: "Mapping[str, CacheFacts]") -> None:
        if any(name.namespace == namespace for name in self._objects.unread()):
            # Which content and which finalizers are of a cache that cannot be read is unknown: all stay.
            return
        current = self._objects.node_objects().get(namespace)
        if current is not None and (not caches or current.metadata.deletion_timestamp is not None):
            # An object that is being deleted takes no new finalizer: it goes, and is made again.
            await self._delete(current)
            current = None
        if not caches:
            return
        if current is None:
            current = await self._create(namespace, caches)
        else:
            current = await self._keep(current, set(caches) | set(current.status.caches or {}))
        status = node_status(
            self._node, self._gpus, caches, current=current, now=self._clock.utc_now()
        )
        if status != current.status:
            before, current = current, await self._write_status(current, status)
            self._record(before, current)
        # The finalizer of a cache goes after the cache.
        await self._keep(current, set(caches))

    async def _create(self, namespace: str, caches: "Mapping[str, CacheFacts]") -> GKMCacheNode:
        node = await self._client.get(NODES, Node, self._node)
        resource = _resource_of(namespace)
        owner = {
            "apiVersion": NODES.api_version,
            "kind": NODES.kind,
            "name": self._node,
            "uid": node.metadata.uid,
        }
        body = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {
                "name": self._node,
                **({"namespace": namespace} if namespace else {}),
                "labels": {HOSTNAME_LABEL: node.metadata.label(HOSTNAME_LABEL) or self._node},
                "finalizers": finalizers_of((), caches),
                "ownerReferences": [owner],
            },
        }
        try:
            answer = await self._client.create(resource, body)
        except AlreadyExists:
            # Of an earlier process, and the watch has not delivered it yet.
            made = await self._client.get(
                resource, _kind_of(namespace), self._node, namespace=namespace or None
            )
        else:
            made = answer.decode(_kind_of(namespace))
            self._event(made, CacheNodeEvent.CREATED, "The node has its first kernel cache here")
        self._objects.wrote(made)
        return made

    async def _keep(self, current: GKMCacheNode, caches: "set[str]") -> GKMCacheNode:
        """Write the finalizers where they differ."""
        metadata = current.metadata
        desired = finalizers_of(metadata.finalizers or (), caches)
        if sorted(desired) == sorted(metadata.finalizers or ()):
            return current
        await self._patch_finalizers(current, desired)
        resource = _resource_of(metadata.namespace)
        made = await self._client.get(
            resource,
            _kind_of(metadata.namespace),
            self._node,
            namespace=metadata.namespace or None,
        )
        self._objects.wrote(made)
        return made

    async def _patch_finalizers(self, current: GKMCacheNode, finalizers: list[str]) -> None:
        metadata = current.metadata
        version = {"resourceVersion": metadata.resource_version, "uid": metadata.uid}
        await self._client.merge_patch(
            _resource_of(metadata.namespace),
            {"metadata": {**version, "finalizers": finalizers}},
            name=metadata.name,
            namespace=metadata.namespace or None,
        )

    async def _write_status(
        self, current: GKMCacheNode, status: "GKMCacheNodeStatus"
    ) -> GKMCacheNode:
        metadata = current.metadata
        resource = _resource_of(metadata.namespace)
        body = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {
                "name": metadata.name,
                **({"namespace": metadata.namespace} if metadata.namespace else {}),
                "uid": metadata.uid,
                "resourceVersion": metadata.resource_version,
            },
            "status": status,
        }
        answer = await self._client.replace(resource, body, subresource="status")
        made = answer.decode(_kind_of(metadata.namespace))
        self._objects.wrote(made)
        return made

    async def _delete(self, current: GKMCacheNode) -> None:
        metadata = current.metadata
        resource = _resource_of(metadata.namespace)
        namespace = metadata.namespace or None
        self._record(
            current, structs.replace(current, status=structs.replace(current.status, caches=None))
        )
        self._event(current, CacheNodeEvent.DELETING, "The node has none of these kernel caches")
        with contextlib.suppress(NotFound):
            if metadata.finalizers:
                await self._patch_finalizers(current, finalizers_of(metadata.finalizers, ()))
            if metadata.deletion_timestamp is None:
                await self._client.delete(
                    resource, metadata.name, namespace=namespace, uid=metadata.uid
                )
        self._objects.deleted(current)

    def _record(self, before: GKMCacheNode, after: GKMCacheNode) -> None:
        """Emit Events about digests whose first pod came, or whose last one went."""
        for name in sorted({*(before.status.caches or {}), *(after.status.caches or {})}):
            was, now = before.digests_of(name), after.digests_of(name)
            for digest in sorted({*was, *now}):
                had = bool((use := was.get(digest)) and use.pods)
                has = bool((use := now.get(digest)) and use.pods)
                if has and not had:
                    note = f"Pods use kernel cache {name} ({digest})"
                    self._event(after, CacheNodeEvent.CACHE_USED, note)
                elif had and not has:
                    note = f"No pod uses kernel cache {name} ({digest}) any more"
                    self._event(after, CacheNodeEvent.CACHE_RELEASED, note)

    def _event(self, about: GKMCacheNode, reason: CacheNodeEvent, note: str) -> None:
        regarding = ObjectReference.to(_resource_of(about.metadata.namespace), about.metadata)
        self._events.normal(regarding, reason, note, action=_ACTION)


def _resource_of(namespace: str) -> "Resource":
    return GKM_CACHE_NODES if namespace else CLUSTER_GKM_CACHE_NODES


def _kind_of(namespace: str) -> type[GKMCacheNode]:
    return GKMCacheNode if namespace else ClusterGKMCacheNode
