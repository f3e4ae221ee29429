"""What informers fill in one replica, leading or not: the allocation state, the catalog and stores of whole objects, with their sinks."""

from typing import TYPE_CHECKING, final

from api.foreign.workload_kinds import ConfigMap, DaemonSet
from kernelcache.cache_index import CacheIndex
from reconciler.sinks.device import DeviceSink
from reconciler.sinks.gkm_cache import GKMCacheSink
from reconciler.sinks.gkm_cache_node import GKMCacheNodeSink
from reconciler.sinks.inventory import InventorySink
from reconciler.sinks.karpenter import NodeClaimSink, node_pool_store
from reconciler.sinks.live_workloads import live_workloads
from reconciler.sinks.namespace import NamespaceSink
from reconciler.sinks.node import NodeSink
from reconciler.sinks.node_feature import NodeFeatureSink
from reconciler.sinks.operand_pod_sink import OperandPodSink
from reconciler.sinks.operator_objects import OperatorObjects
from reconciler.sinks.pool import PoolSink
from reconciler.sinks.scale_signal import scale_signal_store

if TYPE_CHECKING:
    from kube.event_recorder import EventRecorder
    from pool.allocation_state import AllocationState
    from pool.catalog import Catalog


@final
class InformerStores:
    """Sinks and stores that informers fill. Pods of pools are elsewhere: `reconciler.sinks.pod`."""

    def __init__(
        self,
        allocation_state: "AllocationState",
        catalog: "Catalog",
        kernel_caches: CacheIndex,
        *,
        recorder: "EventRecorder | None" = None,
    ) -> None:
        """`kernel_caches` are the resolved caches, and where they are warm: those of the index, for placement."""
        self.index = index = allocation_state.index
        self.allocation_state = allocation_state
        self.reader = allocation_state.reader
        self.catalog = catalog
        self.pool_sink = PoolSink(index, catalog)
        self.node_sink = NodeSink(index)
        self.namespace_sink = NamespaceSink(catalog)
        self.device_sink = DeviceSink(index)
        self.devices = self.device_sink.store
        self.inventory_sink = InventorySink(allocation_state, recorder)
        self.inventories = self.inventory_sink.store
        self.features = NodeFeatureSink()
        self.operands = OperandPodSink()
        self.operator_objects = OperatorObjects()
        self.config_maps = live_workloads(ConfigMap)
        self.daemon_sets = live_workloads(DaemonSet)
        self.node_claims = NodeClaimSink()
        self.node_pools = node_pool_store()
        self.scale_signals = scale_signal_store()
        self.kernel_caches = kernel_caches
        self.gkm_caches = GKMCacheSink(kernel_caches)
        self.gkm_cache_nodes = GKMCacheNodeSink(kernel_caches)
