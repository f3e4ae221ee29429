"""What the watches of this replica have shown, leader or not: the books, the catalog, and whole objects."""

from typing import TYPE_CHECKING, Any, Final, final

from api.foreign.core import Namespace, Node
from api.foreign.nodefeature import NodeFeature
from api.foreign.workloads import ConfigMap, DaemonSet
from api.kinds.gpudevice import GPUDevice
from api.kinds.gpunodeinventory import GPUNodeInventory
from api.kinds.gpupool import GPUPool
from kube.informer import Informer, Selection
from kube.resources import (
    CONFIG_MAPS,
    DAEMON_SETS,
    GPU_DEVICES,
    GPU_NODE_INVENTORIES,
    GPU_POOLS,
    NAMESPACES,
    NODE_FEATURES,
    NODES,
    PODS,
)
from pool.facts import node_facts
from reconciler.pool import workloads as pool_workloads
from reconciler.pool.workloads import LiveWorkloads
from reconciler.sinks.devices import DeviceSink, observe_device
from reconciler.sinks.inventories import InventorySink
from reconciler.sinks.namespaces import NamespaceSink
from reconciler.sinks.node_features import NodeFeatureSink, observe_feature
from reconciler.sinks.nodes import NodeSink
from reconciler.sinks.operand_pod import OperandPodObject, OperandTerms, projection
from reconciler.sinks.operand_pods import OperandPodSink
from reconciler.sinks.pools import PoolSink

if TYPE_CHECKING:
    from collections.abc import Mapping

    from api.clock import Clock
    from kube.client import KubeClient
    from pool.allocation_state import AllocationState
    from pool.catalog import Catalog
    from pool.index.device_index import DeviceIndex
    from reconciler.sinks.pods import BoundPodWarnings
    from server.settings import Settings

OPERANDS: Final = "operand pods"
"""The second informer of pods, and what its metrics call it."""


@final
class Caches:
    """Feeds and stores, and the informers that fill them; pods that ask for a pool are not among them."""

    def __init__(
        self,
        index: "DeviceIndex",
        allocation_state: "AllocationState",
        catalog: "Catalog",
        *,
        warnings: "BoundPodWarnings | None" = None,
    ) -> None:
        self.index = index
        self.allocation_state = allocation_state
        self.reader = allocation_state.reader
        self.catalog = catalog
        self.device_sink = DeviceSink(index)
        self.devices = self.device_sink.store
        self.inventory_sink = InventorySink(allocation_state, warnings)
        self.inventories = self.inventory_sink.store
        self.features = NodeFeatureSink()
        self.operands = OperandPodSink()
        self.config_maps: LiveWorkloads[ConfigMap] = LiveWorkloads()
        self.daemon_sets: LiveWorkloads[DaemonSet] = LiveWorkloads()

    def build_informers(
        self, client: "KubeClient", settings: "Settings", clock: "Clock"
    ) -> "Mapping[str, Informer[Any]]":
        """Return the informers by the name that readiness and metrics know them by."""
        index = self.index
        operand_terms = OperandTerms(
            namespaces=frozenset({settings.namespace, *settings.bootstrap.namespaces})
        )
        found: dict[str, Informer[Any]] = {
            GPU_POOLS.plural: Informer(
                client, GPU_POOLS, GPUPool, sink=PoolSink(index, self.catalog), clock=clock
            ),
            GPU_DEVICES.plural: Informer(
                client,
                GPU_DEVICES,
                GPUDevice,
                sink=self.device_sink,
                clock=clock,
                project=observe_device,
            ),
            GPU_NODE_INVENTORIES.plural: Informer(
                client,
                GPU_NODE_INVENTORIES,
                GPUNodeInventory,
                sink=self.inventory_sink,
                clock=clock,
            ),
            NODES.plural: Informer(
                client, NODES, Node, sink=NodeSink(index), clock=clock, project=node_facts
            ),
            NAMESPACES.plural: Informer(
                client, NAMESPACES, Namespace, sink=NamespaceSink(self.catalog), clock=clock
            ),
            # Watched where we run no device plugins, too: of an earlier setting some may be left.
            CONFIG_MAPS.plural: Informer(
                client,
                CONFIG_MAPS,
                ConfigMap,
                sink=self.config_maps,
                clock=clock,
                selection=pool_workloads.selection(settings.namespace),
            ),
            DAEMON_SETS.plural: Informer(
                client,
                DAEMON_SETS,
                DaemonSet,
                sink=self.daemon_sets,
                clock=clock,
                selection=pool_workloads.selection(settings.namespace),
            ),
            OPERANDS: Informer(
                client,
                PODS,
                OperandPodObject,
                sink=self.operands,
                clock=clock,
                project=projection(operand_terms),
                selection=Selection(label_selector=operand_terms.label_selector),
                name=OPERANDS,
            ),
        }
        if settings.inventory.node_features:
            found[NODE_FEATURES.plural] = Informer(
                client,
                NODE_FEATURES,
                NodeFeature,
                sink=self.features,
                clock=clock,
                project=observe_feature,
                is_optional=True,
            )
        return found
