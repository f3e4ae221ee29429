"""`pool.removed-backends`: what pools bought by backends that are served no more is given back.

CapacityBuffers get 0 replicas once a term, and a static NodePool of a pool whose spec still names karpenter-static has
no more replicas than nodes in use. The rights for it are those of the removed backends, rendered where the setting
`autoscaling.backends` names them; nothing is written without.
"""

from collections import Counter
from typing import TYPE_CHECKING, Final, final

from api.foreign.karpenter import NODE_POOL_LABEL
from api.kinds.autoscaling import REMOVED_BACKENDS, ScalingBackend
from api.meta import PartialObjectMetadata
from api.names import SCALING_POOL_LABEL, PoolName
from autoscaling.parameters import scaling_parameters
from autoscaling.warm_nodes import keep_nodes
from kube.errors import Invalid, NotFound
from kube.resources import CAPACITY_BUFFERS, NODE_POOLS
from manifests.install.rbac import PolicyRule
from reconciler.controller_spec import ControllerContext, ControllerSpec
from reconciler.pool.validation_cache import POOLS

if TYPE_CHECKING:
    from autoscaling.scaling_model import ScalingParameters

BUFFER_RBAC: Final = (
    PolicyRule(
        group=CAPACITY_BUFFERS.group, resources=("capacitybuffers",), verbs=("list", "patch")
    ),
)
"""Rights in our namespace."""
REPLICAS_RBAC: Final = (
    PolicyRule(group=NODE_POOLS.group, resources=("nodepools/scale",), verbs=("patch",)),
)
NO_POOL: Final = PoolName("")
"""Key of the buffers: those of pools that are gone too."""
RECHECK_AFTER_S: Final = 60.0
"""Seconds between two checks of a static NodePool: pods that end change no node."""


@final
class RemovedBackends:
    """Lowers the replicas of CapacityBuffers and static NodePools; it raises none."""

    def __init__(self, context: ControllerContext) -> None:
        self._client = context.client
        self._catalog = context.catalog
        self._index = context.index
        self._node_pools = context.stores.node_pools
        self._namespace = context.settings.workloads.namespace
        self._named = context.settings.scaling_backends

    async def reconcile(self, name: PoolName) -> float | None:
        if name == NO_POOL:
            if ScalingBackend.CAPACITY_BUFFER in self._named:
                await self._empty_buffers()
            return None
        pool, facts = self._catalog.pools.get(name), self._index.pool(name)
        parameters = (
            scaling_parameters(pool, facts) if pool is not None and facts is not None else None
        )
        if parameters is None or parameters.backend not in self._named & {
            ScalingBackend.KARPENTER_STATIC
        }:
            return None
        await self._lower_replicas(parameters)
        return RECHECK_AFTER_S

    async def _empty_buffers(self) -> None:
        """Set the replicas of all buffers to 0, by which Karpenter lets their nodes go; a deleted buffer keeps them."""
        try:
            found = await self._client.list_(
                CAPACITY_BUFFERS,
                PartialObjectMetadata,
                label_selector=SCALING_POOL_LABEL,
                namespace=self._namespace,
            )
        except NotFound:
            if await self._client.serves(CAPACITY_BUFFERS):
                raise
            return
        for buffer in found.items:
            patch = {"spec": {"replicas": 0}}
            await self._client.merge_patch(
                CAPACITY_BUFFERS, patch, name=buffer.metadata.name, namespace=self._namespace
            )

    async def _lower_replicas(self, parameters: "ScalingParameters") -> None:
        in_use = self._nodes_in_use(parameters)
        for name in sorted({shape.node_pool for shape in parameters.shapes}):
            facts = self._node_pools.get(name)
            if facts is None or facts.replicas is None or facts.replicas <= in_use[name]:
                continue
            patch = [
                {"op": "test", "path": "/spec/replicas", "value": facts.replicas},
                {"op": "replace", "path": "/spec/replicas", "value": in_use[name]},
            ]
            try:
                await self._client.json_patch(NODE_POOLS, patch, name=name, subresource="scale")
            except (NotFound, Invalid):
                continue  # another client changed the replicas; the watch is about to show it

    def _nodes_in_use(self, parameters: "ScalingParameters") -> "Counter[str]":
        """Return for each NodePool how many nodes pods of any pool use, minUnits and warmUnits need, or are upgraded."""
        kept = keep_nodes(parameters, self._index.state(parameters.pool.name).nodes())
        return Counter(
            node.labels.get(NODE_POOL_LABEL, "")
            for name, node in self._index.nodes.items()
            if name in kept
            or node.is_in_upgrade
            or any(
                figures.used or figures.reserved or figures.unconfirmed or figures.unaccounted
                for pool in self._index.pools_on(name)
                if (figures := self._index.state(pool).node(name)) is not None
            )
        )


SPEC: Final = ControllerSpec(
    name="pool.removed-backends",
    triggers=(POOLS,),
    initial=lambda _context: [NO_POOL],
    is_enabled=lambda settings: not REMOVED_BACKENDS.isdisjoint(settings.scaling_backends),
    build=lambda context: RemovedBackends(context).reconcile,
)
