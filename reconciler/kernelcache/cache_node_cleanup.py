"""`cachenode.cleanup`: the objects of nodes that do not exist any more, whose agents cannot remove them.

Their finalizers would keep each cache that the node had. The watch may be behind the node's agent, which writes as
soon as it starts: the API server is asked for the Node before anything is removed.
"""

import re
from typing import TYPE_CHECKING, Final, final

import structlog

from api.meta import PartialObjectMetadata
from api.names import GKM_GROUP
from kube.errors import Conflict, Invalid, NotFound
from kube.resources import CLUSTER_GKM_CACHE_NODES, GKM_CACHE_NODES, NODES
from manifests.install.rbac import PolicyRule
from reconciler.controller_spec import ControllerSpec, Trigger
from reconciler.pool.index_changes import NODES as INDEX_NODES

if TYPE_CHECKING:
    from api.names import NodeName
    from kube.client import KubeClient
    from pool.index.figures import IndexFigures
    from reconciler.sinks.gkm_cache_node import CacheNodeFacts, GKMCacheNodeSink

RBAC: Final = (
    PolicyRule(resources=(NODES.plural,), verbs=("get",)),
    PolicyRule(
        group=GKM_CACHE_NODES.group,
        resources=(GKM_CACHE_NODES.plural, CLUSTER_GKM_CACHE_NODES.plural),
        verbs=("patch", "delete"),
    ),
)
RETRY_S: Final = 1.0
"""The watch shows within this what another writer did."""
_FINALIZER: Final = re.compile(rf"{re.escape(GKM_GROUP)}\..+/finalizer")
"""`gkm.io.<cache>/finalizer`, of the node's agent."""

_log = structlog.get_logger()


@final
class CacheNodeCleanup:
    """Removes the objects of one node."""

    def __init__(
        self, client: "KubeClient", index: "IndexFigures", objects: "GKMCacheNodeSink"
    ) -> None:
        self._client = client
        self._index = index
        self._objects = objects

    async def reconcile(self, node: "NodeName") -> float | None:
        """Remove what is left of a node that is gone."""
        left = [item for item in self._objects.of_node(node) if _is_to_go(item)]
        if not left or node in self._index.nodes or await self._exists(node):
            return None
        again = [item for item in left if not await self._remove(item)]
        return RETRY_S if again else None

    async def _exists(self, node: "NodeName") -> bool:
        try:
            await self._client.get(NODES, PartialObjectMetadata, node)
        except NotFound:
            return False
        return True

    async def _remove(self, found: "CacheNodeFacts") -> bool:
        """Remove the agent's finalizers and the object; return False where another writer was first."""
        namespace, name = found.key.namespace or None, found.key.node
        resource = GKM_CACHE_NODES if namespace else CLUSTER_GKM_CACHE_NODES
        kept = [finalizer for finalizer in found.finalizers if not _FINALIZER.fullmatch(finalizer)]
        try:
            if len(kept) < len(found.finalizers):
                patch = [
                    {"op": "test", "path": "/metadata/uid", "value": found.uid},
                    {"op": "test", "path": "/metadata/finalizers", "value": [*found.finalizers]},
                    {"op": "replace", "path": "/metadata/finalizers", "value": kept},
                ]
                await self._client.json_patch(resource, patch, name=name, namespace=namespace)
            if not found.is_deleting:
                await self._client.delete(resource, name, namespace=namespace, uid=found.uid)
        except NotFound:
            return True
        except (Conflict, Invalid):
            return False
        _log.info("node object of caches removed", node=name, namespace=namespace)
        return True


def _is_to_go(found: "CacheNodeFacts") -> bool:
    """Say whether there is something to remove: one that is deleted, and has others' finalizers, waits for them."""
    return not found.is_deleting or any(
        _FINALIZER.fullmatch(finalizer) for finalizer in found.finalizers
    )


SPEC: Final = ControllerSpec(
    name="cachenode.cleanup",
    rbac=RBAC,
    triggers=(
        Trigger(source=lambda context: context.stores.gkm_cache_nodes.nodes),
        INDEX_NODES,
    ),
    initial=lambda context: context.stores.gkm_cache_nodes.node_names(),
    is_enabled=lambda settings: settings.is_serving_caches,
    build=lambda context: (
        CacheNodeCleanup(context.client, context.index, context.stores.gkm_cache_nodes).reconcile
    ),
)
