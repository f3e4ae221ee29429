"""Alerts on the node software of a ClusterPolicy, under the names that NVIDIA's GPU Operator gives them on OpenShift.

The four of nodes ask for the metrics of its node status exporter, which a ClusterPolicy switches on. Where the metrics
are absent no alert is raised.
"""

from typing import Final

from manifests.monitoring.alert import Alert, Severity

NODE_SOFTWARE_ALERTS: Final = (
    Alert(
        "GPUOperatorReconciliationFailed",
        Severity.WARNING,
        "gpu_operator_reconciliation_status != 1",
        "1h",
        "the node software of the ClusterPolicy is not ready for over an hour",
    ),
    Alert(
        "GPUOperatorReconciliationFailedNfdLabelsMissing",
        Severity.WARNING,
        "gpu_operator_reconciliation_status != 1 and gpu_operator_reconciliation_has_nfd_labels == 0",
        "30m",
        "the node software is not ready, and no node has labels of Node Feature Discovery",
    ),
    Alert(
        "GPUOperatorDriverAutoUpgradeFailures",
        Severity.WARNING,
        "gpu_operator_driver_auto_upgrade_enabled == 1 and gpu_operator_nodes_upgrades_failed > 0",
        "30m",
        "upgrades of the driver failed on nodes",
    ),
    Alert(
        "GPUDriverUpgradeOverdue",
        Severity.WARNING,
        "max by (cluster, state) (gpu_driver_upgrade_overdue_nodes) > 0",
        "15m",
        "nodes stay in state {{ $labels.state }} of the driver's upgrade for longer than it should last",
    ),
    Alert(
        "GPUOperatorNodeDeploymentFailed",
        Severity.WARNING,
        "gpu_operator_node_device_plugin_devices_total == 0",
        "30m",
        "node {{ $labels.node }} offers no device to kubelet",
    ),
    Alert(
        "GPUOperatorNodeDeploymentDriverFailed",
        Severity.WARNING,
        "gpu_operator_node_driver_validation == 0",
        "30m",
        "the driver of node {{ $labels.node }} does not pass its validation",
    ),
    Alert(
        "GPUOperatorNodeDeploymentToolkitFailed",
        Severity.WARNING,
        "gpu_operator_node_toolkit_ready == 0 and gpu_operator_node_driver_validation == 1",
        "30m",
        "the container toolkit of node {{ $labels.node }} is not ready, and its driver is",
    ),
    Alert(
        "GPUOperatorNodeDeploymentCudaFailed",
        Severity.WARNING,
        "gpu_operator_node_cuda_ready == 0 and gpu_operator_node_driver_validation == 1",
        "30m",
        "CUDA does not work on node {{ $labels.node }}, and its driver is ready",
    ),
)
