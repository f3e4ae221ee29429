"""Informers that fill the stores of this replica, and the permissions that they need.

Pods of pools are not among them: `server.leadership.bound_pods` stands between their informer and their sink.
"""

from typing import TYPE_CHECKING, Any, Final

from api.foreign.core import Namespace, Node
from api.foreign.karpenter import NodeClaim, NodePool
from api.foreign.nodefeature import NodeFeature
from api.foreign.workload_kinds import ConfigMap, DaemonSet
from api.kinds.gkmcache import ClusterGKMCache, GKMCache
from api.kinds.gkmcachenode import ClusterGKMCacheNode, GKMCacheNode
from api.kinds.gpudevice import GPUDevice
from api.kinds.gpunodeinventory import GPUNodeInventory
from api.kinds.gpupool import GPUPool
from api.kinds.nvidia.clusterpolicy import ClusterPolicy
from api.kinds.nvidia.nvidiadriver import NVIDIADriver
from kube import resources
from kube.informer import Informer, Selection
from pool.facts import node_facts
from reconciler.sinks import (
    device,
    gkm_cache,
    gkm_cache_node,
    karpenter,
    live_workloads,
    namespace,
    node,
    node_feature,
    operand_pod_sink,
    pod,
    scale_signal,
)
from reconciler.sinks import (
    pool as pool_sink,
)
from reconciler.sinks.operand_pod import OperandParameters, OperandPodObject, projection

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.clock import Clock
    from kube.client import KubeClient
    from kube.sink import KubeObject, Sink
    from reconciler.informer_stores import InformerStores
    from server.settings import Settings

OPERANDS: Final = "operand pods"
"""The second informer of pods, and what its metrics call it."""
SCALE_SIGNALS: Final = "scale signals"
"""The third one."""
RBAC: Final = (
    *pool_sink.RBAC,
    *device.RBAC,
    *node.RBAC,
    *namespace.RBAC,
    *pod.RBAC,
    *operand_pod_sink.RBAC,
    *node_feature.RBAC,
    *karpenter.RBAC,
    *gkm_cache.RBAC,
)
"""ClusterPolicies and NVIDIADrivers are watched under `operator_objects.RBAC`, which a server has that serves them;
ConfigMaps and DaemonSets under the permissions of `pool.workloads`, inventories under those of
`node.inventory`."""


def build_informers(
    stores: "InformerStores", client: "KubeClient", settings: "Settings", *, clock: "Clock"
) -> "dict[str, Informer[Any]]":
    """Return the informers by the name that readiness and metrics know them by."""
    operand_parameters = OperandParameters(
        namespaces=frozenset({settings.namespace, *settings.bootstrap.namespaces})
    )
    found: dict[str, Informer[Any]] = {
        resources.GPU_POOLS.plural: Informer(
            client, resources.GPU_POOLS, GPUPool, sink=stores.pool_sink, clock=clock
        ),
        resources.GPU_DEVICES.plural: Informer(
            client,
            resources.GPU_DEVICES,
            GPUDevice,
            sink=stores.device_sink,
            clock=clock,
            project=device.observe_device,
        ),
        resources.GPU_NODE_INVENTORIES.plural: Informer(
            client,
            resources.GPU_NODE_INVENTORIES,
            GPUNodeInventory,
            sink=stores.inventory_sink,
            clock=clock,
        ),
        resources.NODES.plural: Informer(
            client, resources.NODES, Node, sink=stores.node_sink, clock=clock, project=node_facts
        ),
        resources.NAMESPACES.plural: Informer(
            client, resources.NAMESPACES, Namespace, sink=stores.namespace_sink, clock=clock
        ),
        # Watched where we run no device plugins, too: of an earlier setting some may be left.
        resources.CONFIG_MAPS.plural: Informer(
            client,
            resources.CONFIG_MAPS,
            ConfigMap,
            sink=stores.config_maps,
            clock=clock,
            selection=live_workloads.selection(settings.namespace),
        ),
        resources.DAEMON_SETS.plural: Informer(
            client,
            resources.DAEMON_SETS,
            DaemonSet,
            sink=stores.daemon_sets,
            clock=clock,
            selection=live_workloads.selection(settings.namespace),
        ),
        OPERANDS: Informer(
            client,
            resources.PODS,
            OperandPodObject,
            sink=stores.operands,
            clock=clock,
            project=projection(operand_parameters),
            selection=Selection(label_selector=operand_parameters.label_selector),
            name=OPERANDS,
        ),
        SCALE_SIGNALS: Informer(
            client,
            resources.PODS,
            scale_signal.SignalPod,
            sink=stores.scale_signals,
            clock=clock,
            project=scale_signal.observe_signal,
            selection=scale_signal.selection(settings.namespace),
            name=SCALE_SIGNALS,
        ),
        resources.NODE_CLAIMS.plural: Informer(
            client,
            resources.NODE_CLAIMS,
            NodeClaim,
            sink=stores.node_claims,
            clock=clock,
            project=karpenter.observe_claim,
            is_optional=True,
        ),
        resources.NODE_POOLS.plural: Informer(
            client,
            resources.NODE_POOLS,
            NodePool,
            sink=stores.node_pools,
            clock=clock,
            project=karpenter.observe_node_pool,
            is_optional=True,
        ),
        # Where their definition is not installed, labels are the only source.
        resources.NODE_FEATURES.plural: Informer(
            client,
            resources.NODE_FEATURES,
            NodeFeature,
            sink=stores.features,
            clock=clock,
            project=node_feature.observe_feature,
            is_optional=True,
        ),
    }
    if settings.kernel_caches.enabled:
        found |= build_cache_informers(stores, client, clock=clock)
    if settings.node_software.enabled:
        found |= build_operator_informers(stores, client, clock=clock)
    return found


def build_operator_informers(
    stores: "InformerStores", client: "KubeClient", *, clock: "Clock"
) -> "dict[str, Informer[Any]]":
    """Return those of ClusterPolicies and NVIDIADrivers; an installation may have only the first kind."""
    objects = stores.operator_objects
    parts: tuple[tuple[resources.Resource, type[KubeObject], Sink[Any]], ...] = (
        (resources.CLUSTER_POLICIES, ClusterPolicy, objects.policy_store),
        (resources.NVIDIA_DRIVERS, NVIDIADriver, objects.driver_store),
    )
    return {
        resource.plural: Informer(client, resource, kind, sink=sink, clock=clock, is_optional=True)
        for resource, kind, sink in parts
    }


def build_cache_informers(
    stores: "InformerStores", client: "KubeClient", *, clock: "Clock"
) -> "dict[str, Informer[Any]]":
    """Return those of the kinds of kernel caches, whose definitions an upgrade may not have installed."""
    observe_cache, observe_node = (
        gkm_cache.observe_cache,
        gkm_cache_node.observe_cache_node,
    )
    stored, on_nodes = stores.gkm_caches, stores.gkm_cache_nodes
    parts: tuple[
        tuple[resources.Resource, type[KubeObject], Sink[Any], Callable[[Any], Any]], ...
    ] = (
        (resources.GKM_CACHES, GKMCache, stored.namespaced, observe_cache),
        (resources.CLUSTER_GKM_CACHES, ClusterGKMCache, stored.cluster, observe_cache),
        (resources.GKM_CACHE_NODES, GKMCacheNode, on_nodes.namespaced, observe_node),
        (resources.CLUSTER_GKM_CACHE_NODES, ClusterGKMCacheNode, on_nodes.cluster, observe_node),
    )
    return {
        resource.plural: Informer(
            client, resource, kind, sink=sink, clock=clock, project=observe, is_optional=True
        )
        for resource, kind, sink, observe in parts
    }
