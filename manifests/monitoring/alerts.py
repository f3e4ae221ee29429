"""Alert rules, rendered as one PrometheusRule.

docs/operations.md lists the same alerts and expressions, with their causes and cures. Where one Prometheus has series
of several clusters, their label `cluster` keeps them apart; where there is no such label, grouping by it changes nothing.
"""

from typing import TYPE_CHECKING, Any, Final

from manifests import constants
from manifests.monitoring.alert import Alert, Severity
from manifests.monitoring.node_software_alerts import NODE_SOFTWARE_ALERTS
from manifests.monitoring.objectives import OBJECTIVE_ALERTS
from manifests.monitoring.scaling_alerts import RECORDING_RULES, SCALING_ALERTS

if TYPE_CHECKING:
    from collections.abc import Mapping

PAGE: Final = "docs/operations.md"
"""Has an anchor for each alert."""


def _slow(histogram: str, selector: str = "") -> str:
    buckets = f"sum by (cluster, le) (rate({histogram}_bucket{selector}[5m]))"
    return f"histogram_quantile(0.99, {buckets})"


ALERTS: Final = (
    Alert(
        "GPUControlPlaneNoLeader",
        Severity.CRITICAL,
        "(sum by (cluster) (gpu_leading) or 0 * max by (cluster) (last_over_time(gpu_leading[1d]))) < 1"
        " or absent(gpu_leading)",
        "1m",
        "no replica of the GPU control plane leads: pods that request a GPU pool can be neither created nor bound",
    ),
    Alert(
        "GPUControlPlaneConfigRefused",
        Severity.WARNING,
        'max by (cluster, cause) (gpu_control_plane_config_problem{cause!="RestartNeeded"}) > 0',
        "5m",
        "the GPUControlPlaneConfig is deleted or has an invalid setting: earlier settings stay in force",
    ),
    Alert(
        "GPUControlPlaneMultipleLeaders",
        Severity.CRITICAL,
        "sum by (cluster) (gpu_leading) > 1",
        "1m",
        "more than one replica of the GPU control plane acts as the leader",
    ),
    Alert(
        "GPUUnitAllocatedTwice",
        Severity.CRITICAL,
        "max by (cluster) (gpu_units_held_twice) > 0",
        "0m",
        "one unit of a GPU pool is allocated to two bound pods",
    ),
    Alert(
        "GPURequestsFail",
        Severity.CRITICAL,
        'sum by (cluster) (rate(gpu_admission_duration_seconds_count{outcome="failed"}[10m]))'
        ' + sum by (cluster) (rate(gpu_extender_duration_seconds_count{outcome="failed"}[10m])) > 0',
        "0m",
        "webhook or scheduler extender requests fail with an internal error",
    ),
    Alert(
        "GPUPodsUnaccounted",
        Severity.WARNING,
        "max by (cluster) (gpu_pods_unaccounted) > 0",
        "5m",
        "a pod runs on unknown devices: its node accepts no more pods of that pool",
    ),
    Alert(
        "GPUBindingsInDoubt",
        Severity.WARNING,
        'max by (cluster) (gpu_reservations{phase="doubtful"}) > 0',
        "3m",
        "the result of a Binding is unknown and stays unresolved",
    ),
    Alert(
        "GPUPodsWaitBesideFreeUnits",
        Severity.WARNING,
        "gpu_pods_longest_wait_seconds > 900 and on (cluster, pool) gpupool_capacity_available > 0",
        "15m",
        "a pod of pool {{ $labels.pool }} stays Pending although the pool has free units",
    ),
    Alert(
        "GPUPoolFragmented",
        Severity.WARNING,
        "gpu_pods_longest_wait_seconds > 900 and on (cluster, pool) gpupool_fragmentation > 0.5"
        " and on (cluster, pool) gpupool_capacity_available > 0.1 * gpupool_capacity_total",
        "30m",
        "pods of pool {{ $labels.pool }} are Pending, and most of its free units are of no use to the pods that ask"
        " for them",
    ),
    Alert(
        "GPUPoolExhausted",
        Severity.WARNING,
        "gpu_pods_waiting > 0 and on (cluster, pool) gpupool_capacity_available == 0",
        "30m",
        "pods of pool {{ $labels.pool }} are Pending and no unit is free",
    ),
    Alert(
        "GPUPoolUnitsWithheld",
        Severity.WARNING,
        "gpupool_capacity_unhealthy > 0",
        "30m",
        "pool {{ $labels.pool }} has free units that cannot be allocated",
    ),
    Alert(
        "GPUPoolUnitsMissing",
        Severity.WARNING,
        "gpupool_capacity_missing > 0",
        "15m",
        "devices of pool {{ $labels.pool }} have other MIG instances than its allocation wants",
    ),
    Alert(
        "GPUPoolAccessAgeing",
        Severity.WARNING,
        "gpupool_ageing_access > 0",
        "1h",
        "workloads in pool {{ $labels.pool }} lose their access: their next pods are refused once its validity is over",
    ),
    Alert(
        "GPUPoolCapacityLow",
        Severity.WARNING,
        'gpupool_condition{condition="CapacityLow"} == 1',
        "15m",
        "fewer than 10 % of the units of pool {{ $labels.pool }} are free, or none",
    ),
    Alert(
        "GPUPoolMaintenance",
        Severity.WARNING,
        'gpupool_condition{condition="Maintenance"} == 1',
        "1h",
        "pool {{ $labels.pool }} is in maintenance for over an hour and accepts no new pods",
    ),
    Alert(
        "GPUPoolMisconfigured",
        Severity.WARNING,
        'gpupool_condition{condition="Misconfigured"} == 1',
        "5m",
        "pool {{ $labels.pool }} has an invalid specification, or others partition its devices: it takes no new pods",
    ),
    Alert(
        "GPUReservationExpired",
        Severity.WARNING,
        'sum by (cluster) (increase(gpu_reservations_ended_total{end="expired"}[30m])) > 10',
        "0m",
        "many reservations expired before their pods were bound",
    ),
    Alert(
        "GPUDeviceFaulted",
        Severity.WARNING,
        "max by (cluster, reason) (gpu_device_faulted_total) > 0",
        "5m",
        "devices need {{ $labels.reason }} and accept no new pods",
    ),
    Alert(
        "GPUDriverMissing",
        Severity.WARNING,
        'gpu_bootstrap_condition{condition="DriverMissing"} == 1',
        "15m",
        "node {{ $labels.node }} has GPUs but no driver",
    ),
    Alert(
        "GPUToolkitMissing",
        Severity.WARNING,
        'max by (cluster, node) (gpu_bootstrap_condition{condition="ToolkitMissing"}) == 1',
        "15m",
        "NVIDIA's container toolkit is not ready on node {{ $labels.node }}",
    ),
    Alert(
        "GPUFeatureDiscoveryMissing",
        Severity.WARNING,
        'max by (cluster, node) (gpu_bootstrap_node_phase{phase="GFD"}) == 1',
        "15m",
        "GPU feature discovery is not ready on node {{ $labels.node }}",
    ),
    Alert(
        "GPUMonitoringMissing",
        Severity.WARNING,
        'max by (cluster, node) (gpu_bootstrap_condition{condition="MonitoringMissing"}) == 1',
        "15m",
        "DCGM or its exporter is not ready, or does not answer, on node {{ $labels.node }}",
    ),
    Alert(
        "GPUNodeNotReady",
        Severity.WARNING,
        "max by (cluster, node, phase) (gpu_bootstrap_node_phase"
        '{phase!="Ready",phase!="Disabled"}) == 1'
        " and on (cluster, node) gpu_inventory_devices_total > 0",
        "15m",
        "node {{ $labels.node }} stays in phase {{ $labels.phase }}: its devices are given to no pool",
    ),
    Alert(
        "GPUOperandNotApplied",
        Severity.WARNING,
        "sum by (cluster, handler) (rate(gpu_bootstrap_handler_errors_total[10m])) > 0",
        "15m",
        "the API server refuses objects of the operand {{ $labels.handler }}",
    ),
    Alert(
        "GPUPluginNotRegistered",
        Severity.WARNING,
        "gpu_agent_plugin_registered == 0",
        "5m",
        "a device plugin of {{ $labels.resource }} is not registered with its kubelet",
    ),
    Alert(
        "GPUAllocationMismatch",
        Severity.WARNING,
        "max by (cluster, pool) (increase(gpu_allocation_mismatches_total[1h])) > 0",
        "0m",
        "kubelet allocated other devices to pods of pool {{ $labels.pool }} than they were bound with",
    ),
    Alert(
        "GPUProcessUnaccounted",
        Severity.WARNING,
        "max by (cluster, Hostname, UUID) (gpu_process_unaccounted) > 0",
        "5m",
        "processes use device {{ $labels.UUID }} of node {{ $labels.Hostname }}, which kubelet did not give to their"
        " pods",
    ),
    Alert(
        "GPUNodeWithoutPool",
        Severity.WARNING,
        "(gpu_bootstrap_ready == 1 and on (cluster, node) gpu_inventory_devices_total > 0)"
        " unless on (cluster, node) gpupool_node_slots > 0",
        "1h",
        "node {{ $labels.node }} is ready but none of its devices is in a pool",
    ),
    Alert(
        "GPUUnassignedDevice",
        Severity.WARNING,
        "max by (cluster) (gpu_device_unassigned_total) > 0",
        "1h",
        "devices are assigned to no pool",
    ),
    Alert(
        "GPUReservationsExpiring",
        Severity.WARNING,
        'sum by (cluster) (rate(gpu_reservations_ended_total{end="expired"}[30m]))'
        " > 0.2 * sum by (cluster) (rate(gpu_reservations_ended_total[30m]))",
        "30m",
        "more than 20 % of all reservations expire before their pod is bound",
    ),
    Alert(
        "GPUControlPlaneWatchStalled",
        Severity.WARNING,
        "max by (cluster, resource) (gpu_informer_lag_seconds) > 240",
        "2m",
        "the watch of {{ $labels.resource }} has delivered nothing for minutes: decisions use stale data",
    ),
    Alert(
        "GPUWatchesFail",
        Severity.WARNING,
        "sum by (cluster, resource) (rate(gpu_informer_failures_total[10m])) > 0.05",
        "10m",
        "lists or watches of {{ $labels.resource }} fail repeatedly",
    ),
    Alert(
        "GPUObjectsUndecodable",
        Severity.WARNING,
        "max by (cluster, resource) (gpu_informer_unreadable_objects) > 0",
        "1m",
        "some objects of {{ $labels.resource }} cannot be read by this version: nothing of them changes",
    ),
    Alert(
        "GPUControllersFail",
        Severity.WARNING,
        'sum by (cluster, controller) (rate(gpu_reconciles_total{outcome="failed"}[10m])) > 0.1',
        "15m",
        "controller {{ $labels.controller }} fails repeatedly",
    ),
    Alert(
        "GPURolloutStopped",
        Severity.WARNING,
        "max by (cluster, daemonset) (gpu_daemonset_outdated_nodes) > 0",
        "1h",
        "nodes still run the former pods of DaemonSet {{ $labels.daemonset }}: its roll-out does not end",
    ),
    Alert(
        "GPUTasksFail",
        Severity.WARNING,
        "sum by (cluster, task) (rate(gpu_task_failures_total[10m])) > 0.05",
        "15m",
        "background task {{ $labels.task }} fails repeatedly",
    ),
    Alert(
        "GPUAdmissionSlow",
        Severity.WARNING,
        _slow("gpu_admission_duration_seconds") + " > 0.5",
        "10m",
        "webhook responses are slow (p99 above 0.5 s); the API server times out after 3 s",
    ),
    Alert(
        "GPUSchedulingSlow",
        Severity.WARNING,
        _slow("gpu_extender_duration_seconds", '{verb="filter"}') + " > 0.1",
        "10m",
        "filter responses of the scheduler extender are slow (p99 above 0.1 s)",
    ),
    Alert(
        "GPUControlPlaneEventLoopLag",
        Severity.WARNING,
        _slow("gpu_event_loop_lag_seconds") + " > 0.1",
        "10m",
        "the event loop of the GPU control plane lags: the process lacks CPU time",
    ),
    Alert(
        "GPUCertificateExpires",
        Severity.CRITICAL,
        "min by (cluster, certificate) (gpu_certificate_not_after_timestamp_seconds) - time() < 604800",
        "0m",
        "certificate {{ $labels.certificate }} expires within a week and was not renewed",
    ),
    Alert(
        "GPUCertificateErrors",
        Severity.WARNING,
        "sum by (cluster, step) (increase(gpu_certificate_errors_total[1h])) > 3",
        "10m",
        "certificates cannot be issued, injected or loaded (step {{ $labels.step }})",
    ),
    Alert(
        "GPUConnectionsDropped",
        Severity.WARNING,
        "sum by (cluster, cause) (rate(gpu_connections_dropped_total[5m])) > 10",
        "10m",
        "the GPU control plane drops many connections ({{ $labels.cause }})",
    ),
    *SCALING_ALERTS,
    Alert(
        "GPUKernelCacheExtractionFails",
        Severity.WARNING,
        'sum by (cluster) (increase(gpu_kernel_cache_extractions_total{outcome="failed"}[1h])) > 3',
        "0m",
        "nodes cannot pull or extract images of kernel caches: pods that mount them do not start",
    ),
    Alert(
        "GPUKernelCacheRefused",
        Severity.WARNING,
        'sum by (cluster) (increase(gpu_kernel_cache_verifications_total{outcome="refused"}[1h])) > 0',
        "0m",
        "images of kernel caches are refused at admission, for want of a good signature",
    ),
    Alert(
        "GPUKernelCacheDiskFull",
        Severity.WARNING,
        "gpu_kernel_cache_disk_bytes > 0.9 * gpu_kernel_cache_disk_quota_bytes"
        " and gpu_kernel_cache_disk_quota_bytes > 0",
        "30m",
        "extracted kernel caches take more than 90 % of what they may of a node's disk",
    ),
    Alert(
        "GPUKernelCacheOutdated",
        Severity.WARNING,
        "time() - min by (cluster, cache) (gpu_kernel_cache_outdated_since_seconds) > 86400",
        "0m",
        "pods use a former image of {{ $labels.cache }} for over a day",
    ),
    *NODE_SOFTWARE_ALERTS,
    *OBJECTIVE_ALERTS,
)


def build_alert_rules(
    namespace: str, labels: "Mapping[str, str] | None" = None, *, runbook_page: str = PAGE
) -> dict[str, Any]:
    """Return a PrometheusRule (Prometheus operator) with all alerts and recording rules.

    Args:
        namespace: of the object.
        labels: of the object, besides ours.
        runbook_page: where docs/operations.md is read; each alert links to its own row there.
    """
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {
            "name": constants.NAME,
            "namespace": namespace,
            "labels": {**constants.LABELS, **(labels or {})},
        },
        "spec": {
            "groups": [
                {"name": constants.NAME, "rules": [_rule(item, runbook_page) for item in ALERTS]},
                {
                    "name": f"{constants.NAME}-recording",
                    "rules": [
                        {"record": item.name, "expr": item.expression} for item in RECORDING_RULES
                    ],
                },
            ]
        },
    }


def anchor_of(alert: Alert) -> str:
    """Return the anchor of the alert's row on the page."""
    return alert.name.lower()


def _rule(alert: Alert, runbook_page: str) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": alert.lasts,
        "labels": {"severity": alert.severity.value},
        "annotations": {
            "summary": alert.summary,
            "description": f"see {alert.name} in {PAGE}",
            "runbook_url": f"{runbook_page}#{anchor_of(alert)}",
        },
    }
