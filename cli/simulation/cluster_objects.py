"""Objects of a cluster, as files or an API server have them, reduced to what a snapshot needs.

Each kind is decoded and projected by the same types and functions as in the server's informers.
"""

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

from api.foreign.core import Namespace, Node, Pod
from api.kinds.gkmcache import ClusterGKMCache, GKMCache
from api.kinds.gkmcachenode import ClusterGKMCacheNode, GKMCacheNode
from api.kinds.gpudevice import GPUDevice
from api.kinds.gpunodeinventory import GPUNodeInventory
from api.kinds.gpupool import GPUPool
from api.meta import PartialObjectMetadata
from kube import resources
from pool.facts import node_facts, observed_pod
from reconciler.sinks.device import ObservedDevice, observe_device
from reconciler.sinks.gkm_cache import observe_cache
from reconciler.sinks.gkm_cache_node import CacheNodeFacts, observe_cache_node

if TYPE_CHECKING:
    from collections.abc import Callable

    from pool.model import AnyPod, NodeFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedKind:
    """A kind that a snapshot is made of."""

    resource: "resources.Resource"
    item_type: "type[Any]"
    project: "Callable[[Any], object | None]"
    without: str
    """What the snapshot assumes, or cannot say, where the list is missing."""
    is_needed: bool = False
    """Nothing can be said without the list."""
    is_optional: bool = False
    """A cluster may not serve the kind, and then has no object of it."""


_NO_CACHES: Final = "whether kernel caches of pods fit devices is unknown: they count as fitting"
_NO_WARM_NODES: Final = "no node counts as having a kernel cache"


def _limit_of_namespace(kind: str, item: PartialObjectMetadata) -> tuple[str, str]:
    namespace, name = item.metadata.namespace, item.metadata.name
    return namespace, f"{kind} {namespace}/{name}"


LISTED: Final = (
    ListedKind(
        resource=resources.GPU_POOLS,
        item_type=GPUPool,
        project=lambda pool: pool,
        without="no pool is known",
        is_needed=True,
    ),
    ListedKind(
        resource=resources.GPU_DEVICES,
        item_type=GPUDevice,
        project=observe_device,
        without="no device is known",
        is_needed=True,
    ),
    ListedKind(
        resource=resources.NODES,
        item_type=Node,
        project=node_facts,
        without="every node with devices counts as ready, without taints and with no label but its"
        " hostname, and its CPU and memory are unknown",
    ),
    ListedKind(
        resource=resources.GPU_NODE_INVENTORIES,
        item_type=GPUNodeInventory,
        project=lambda inventory: inventory,
        without="kubelet's topology policies and actual allocations are unknown",
    ),
    ListedKind(
        resource=resources.NAMESPACES,
        item_type=Namespace,
        project=lambda namespace: namespace,
        without="no spec.access.namespaceSelector of a pool matches",
    ),
    ListedKind(
        resource=resources.GKM_CACHES,
        item_type=GKMCache,
        project=observe_cache,
        without=_NO_CACHES,
        is_optional=True,
    ),
    ListedKind(
        resource=resources.CLUSTER_GKM_CACHES,
        item_type=ClusterGKMCache,
        project=observe_cache,
        without=_NO_CACHES,
        is_optional=True,
    ),
    ListedKind(
        resource=resources.GKM_CACHE_NODES,
        item_type=GKMCacheNode,
        project=observe_cache_node,
        without=_NO_WARM_NODES,
        is_optional=True,
    ),
    ListedKind(
        resource=resources.CLUSTER_GKM_CACHE_NODES,
        item_type=ClusterGKMCacheNode,
        project=observe_cache_node,
        without=_NO_WARM_NODES,
        is_optional=True,
    ),
    *(
        ListedKind(
            resource=resource,
            item_type=PartialObjectMetadata,
            project=functools.partial(_limit_of_namespace, resource.kind),
            without=f"whether a {resource.kind} of the pod's namespace {does} is unknown",
            is_optional=True,
        )
        for resource, does in (
            (resources.RESOURCE_QUOTAS, "refuses it"),
            (resources.LIMIT_RANGES, "changes it"),
        )
    ),
    ListedKind(
        resource=resources.PODS,
        item_type=Pod,
        project=observed_pod,
        without="units in use and reserved are unknown: every unit counts as free",
    ),
)
"""Kinds in the order in which the server takes them over: pods last, since their reservations name devices."""


@final
@dataclass(slots=True)
class ClusterObjects:
    """What was read of a cluster, and what was not."""

    origin: str
    """Where the objects are from, for texts."""
    pools: list[GPUPool] = field(default_factory=list)
    devices: list[ObservedDevice] = field(default_factory=list)
    nodes: "list[NodeFacts]" = field(default_factory=list)
    inventories: list[GPUNodeInventory] = field(default_factory=list)
    namespaces: list[Namespace] = field(default_factory=list)
    gkm_caches: list[GKMCache] = field(default_factory=list)
    """Those of namespaces, and those of the cluster."""
    gkm_cache_nodes: list[CacheNodeFacts] = field(default_factory=list)
    """Objects of both kinds."""
    limits: list[tuple[str, str]] = field(default_factory=list)
    """Namespace and name of each ResourceQuota and LimitRange, by which the API server refuses and changes pods."""
    pods: "list[AnyPod]" = field(default_factory=list)
    are_pods_whole: bool = True
    """Whether all pods of the nodes are read, those without units included."""
    gaps: list[str] = field(default_factory=list)
    """Why the snapshot is partial, one line each."""

    def of(self, kind: ListedKind) -> "list[Any]":
        """Return the list that projected objects of the kind are kept in."""
        lists: dict[str, list[Any]] = {
            resources.GPU_POOLS.plural: self.pools,
            resources.GPU_DEVICES.plural: self.devices,
            resources.NODES.plural: self.nodes,
            resources.GPU_NODE_INVENTORIES.plural: self.inventories,
            resources.NAMESPACES.plural: self.namespaces,
            resources.GKM_CACHES.plural: self.gkm_caches,
            resources.CLUSTER_GKM_CACHES.plural: self.gkm_caches,
            resources.GKM_CACHE_NODES.plural: self.gkm_cache_nodes,
            resources.CLUSTER_GKM_CACHE_NODES.plural: self.gkm_cache_nodes,
            resources.RESOURCE_QUOTAS.plural: self.limits,
            resources.LIMIT_RANGES.plural: self.limits,
            resources.PODS.plural: self.pods,
        }
        return lists[kind.resource.plural]
