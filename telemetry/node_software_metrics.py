"""Metrics of the node software that a ClusterPolicy and NVIDIADrivers describe.

Those with the prefix `gpu_operator_` have the names and values of NVIDIA's GPU Operator, so that dashboards and alerts of
its users keep working; those of OpenShift are left out. `reconciler.operator_gauges` owns all of them: it
shows them on the replica that leads, where node software is on, and nowhere else.
"""

from typing import TYPE_CHECKING, Final, final

from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from telemetry.metric_declaration import MetricDeclarations
from telemetry.metrics import REGISTRY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client import Metric


@final
class HiddenFamilies(Collector):
    """The families of a registry, hidden at first, as a collector of another one.

    A gauge without labels reads 0 from the start, which would be a statement: `gpu_operator_reconciliation_status` 0 is
    an alert. On a replica that does not lead, and where the component is switched off, they are therefore absent.
    """

    def __init__(self, hidden: CollectorRegistry, *, visible_by: CollectorRegistry) -> None:
        self._hidden = hidden
        self._is_visible = False
        visible_by.register(self)

    def show(self) -> None:
        self._is_visible = True

    def hide(self) -> None:
        self._is_visible = False

    def describe(self) -> "Iterable[Metric]":
        """Return no name: families that come and go are checked by the registry that holds them."""
        return ()

    def collect(self) -> "Iterable[Metric]":
        return self._hidden.collect() if self._is_visible else ()


OPERATOR_REGISTRY: Final = CollectorRegistry()
NODE_SOFTWARE_PAGE: Final = HiddenFamilies(OPERATOR_REGISTRY, visible_by=REGISTRY)
_declarations: Final = MetricDeclarations(OPERATOR_REGISTRY)

GPU_NODES = _declarations.gauge("gpu_operator_gpu_nodes_total", "Nodes with a GPU.")
RECONCILIATION_STATUS = _declarations.gauge(
    "gpu_operator_reconciliation_status",
    "Outcome of the last reconcile of the ClusterPolicy: 1 ready, 0 a state is not ready, -1 there is no ClusterPolicy,"
    " -2 it failed.",
)
RECONCILIATION_LAST_SUCCESS = _declarations.gauge(
    "gpu_operator_reconciliation_last_success_ts_seconds",
    "Unix time of the last reconcile after which every state was ready; 0: none yet.",
)
RECONCILIATIONS = _declarations.counter(
    "gpu_operator_reconciliation_total", "Reconciles of the ClusterPolicy."
)
RECONCILIATIONS_FAILED = _declarations.counter(
    "gpu_operator_reconciliation_failed_total", "Reconciles of the ClusterPolicy that failed."
)
HAS_NFD_LABELS = _declarations.gauge(
    "gpu_operator_reconciliation_has_nfd_labels",
    "1 where a node has labels of Node Feature Discovery, 0 where none has.",
)
AUTO_UPGRADE_ENABLED = _declarations.gauge(
    "gpu_operator_driver_auto_upgrade_enabled",
    "1 where a ClusterPolicy or NVIDIADriver has its driver upgraded, 0 where none has.",
)
UPGRADES_IN_PROGRESS = _declarations.gauge(
    "gpu_operator_nodes_upgrades_in_progress", "Nodes whose driver is being upgraded."
)
UPGRADES_DONE = _declarations.gauge(
    "gpu_operator_nodes_upgrades_done", "Nodes whose driver is up to date."
)
UPGRADES_FAILED = _declarations.gauge(
    "gpu_operator_nodes_upgrades_failed", "Nodes whose upgrade failed."
)
UPGRADES_AVAILABLE = _declarations.gauge(
    "gpu_operator_nodes_upgrades_available", "Nodes whose upgrade could start now."
)
UPGRADES_PENDING = _declarations.gauge(
    "gpu_operator_nodes_upgrades_pending", "Nodes whose driver is to be upgraded."
)
STATE_READY = _declarations.gauge(
    "gpu_operand_state_ready",
    "Whether a state of the ClusterPolicy is ready (1) or not (0); a state that is switched off has no series.",
    ["state"],
)
UPGRADE_NODES = _declarations.gauge(
    "gpu_driver_upgrade_nodes",
    "Nodes by state of the driver's upgrade, as their label nvidia.com/gpu-driver-upgrade-state has it.",
    ["state"],
)
UPGRADE_OVERDUE_NODES = _declarations.gauge(
    "gpu_driver_upgrade_overdue_nodes",
    "Nodes that are in a state of the driver's upgrade for longer than it should last, by state.",
    ["state"],
)
