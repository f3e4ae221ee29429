"""Alert rules: what is worth waking somebody for, as a PrometheusRule.

What each means, and what to do, stands in docs/operations.md, which shows the same expressions.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from manifests import constants

PAGE: Final = "docs/operations.md"


class Severity(StrEnum):
    """How urgent an alert is."""

    CRITICAL = "critical"
    """Pods cannot be created or bound, or a card may be used twice: now."""
    WARNING = "warning"
    """Something is wrong or will be: in working hours."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One rule."""

    name: str
    severity: Severity
    expression: str
    lasts: str
    """How long it must be so."""
    summary: str


def _slow(histogram: str, selector: str = "") -> str:
    buckets = f"sum by (le) (rate({histogram}_bucket{selector}[5m]))"
    return f"histogram_quantile(0.99, {buckets})"


ALERTS: Final = (
    Alert(
        "GPUNobodyLeads",
        Severity.CRITICAL,
        "(sum(gpu_leading) or vector(0)) < 1",
        "1m",
        "no replica leads: pods that name a GPU pool can be neither created nor bound",
    ),
    Alert(
        "GPUTwoLead",
        Severity.CRITICAL,
        "sum(gpu_leading) > 1",
        "1m",
        "two replicas believe that they lead",
    ),
    Alert(
        "GPUUnitHasTwoPods",
        Severity.CRITICAL,
        "max(gpu_units_held_twice) > 0",
        "0m",
        "two bound pods have the same unit",
    ),
    Alert(
        "GPURequestsFail",
        Severity.CRITICAL,
        'sum(rate(gpu_admission_duration_seconds_count{outcome="failed"}[10m]))'
        ' + sum(rate(gpu_extender_duration_seconds_count{outcome="failed"}[10m])) > 0',
        "0m",
        "requests of the API server or of kube-scheduler end in an exception",
    ),
    Alert(
        "GPUPodsUnaccounted",
        Severity.WARNING,
        "max(gpu_pods_unaccounted) > 0",
        "5m",
        "a pod runs on devices that nobody knows, so its node takes no more pods of its pool",
    ),
    Alert(
        "GPUBindingsInDoubt",
        Severity.WARNING,
        'max(gpu_reservations{phase="doubtful"}) > 0',
        "3m",
        "a binding whose answer was lost stays unsettled",
    ),
    Alert(
        "GPUPodsWaitBesideFreeUnits",
        Severity.WARNING,
        "gpu_pods_longest_wait_seconds > 900 and on (pool) gpupool_capacity_available > 0",
        "15m",
        "a pod of pool {{ $labels.pool }} waits although the pool has free units",
    ),
    Alert(
        "GPUPoolExhausted",
        Severity.WARNING,
        "gpu_pods_waiting > 0 and on (pool) gpupool_capacity_available == 0",
        "30m",
        "pods of pool {{ $labels.pool }} wait and no unit is free",
    ),
    Alert(
        "GPUPoolUnitsWithheld",
        Severity.WARNING,
        "gpupool_capacity_unhealthy > 0",
        "30m",
        "free units of pool {{ $labels.pool }} are withheld",
    ),
    Alert(
        "GPUPoolCapacityLow",
        Severity.WARNING,
        'gpupool_condition{condition="CapacityLow"} == 1',
        "15m",
        "pool {{ $labels.pool }} has less than a tenth of its units free, or none",
    ),
    Alert(
        "GPUPoolMaintenance",
        Severity.WARNING,
        'gpupool_condition{condition="Maintenance"} == 1',
        "1h",
        "pool {{ $labels.pool }} takes no new pods: it waits for running ones to change its allocation",
    ),
    Alert(
        "GPUPoolMisconfigured",
        Severity.WARNING,
        'gpupool_condition{condition="Misconfigured"} == 1',
        "5m",
        "pool {{ $labels.pool }} cannot be served as it is written",
    ),
    Alert(
        "GPUReservationExpired",
        Severity.WARNING,
        'sum(increase(gpu_reservations_ended_total{end="expired"}[30m])) > 10',
        "0m",
        "holds of many pods ran out before these were bound",
    ),
    Alert(
        "GPUDeviceFaulted",
        Severity.WARNING,
        "max by (reason) (gpu_device_faulted_total) > 0",
        "5m",
        "devices are faulted ({{ $labels.reason }}) and get no new pods",
    ),
    Alert(
        "GPUDriverMissing",
        Severity.WARNING,
        'gpu_bootstrap_condition{condition="DriverMissing"} == 1',
        "15m",
        "node {{ $labels.node }} has GPUs and no driver",
    ),
    Alert(
        "GPUPluginNotRegistered",
        Severity.WARNING,
        "gpu_agent_plugin_registered == 0",
        "5m",
        "a kubelet does not know the device plugin of {{ $labels.resource }}",
    ),
    Alert(
        "GPUAllocationMismatch",
        Severity.WARNING,
        "max by (pool) (increase(gpu_allocation_mismatches_total[1h])) > 0",
        "0m",
        "pods of pool {{ $labels.pool }} got other devices than they were bound with",
    ),
    Alert(
        "GPUNodeWithoutPool",
        Severity.WARNING,
        "(gpu_bootstrap_ready == 1 and on (node) gpu_inventory_devices_total > 0)"
        " unless on (node) gpupool_node_slots > 0",
        "1h",
        "node {{ $labels.node }} is ready and none of its devices is in a pool",
    ),
    Alert(
        "GPUUnassignedDevice",
        Severity.WARNING,
        "max(gpu_device_unassigned_total) > 0",
        "1h",
        "devices belong to no pool",
    ),
    Alert(
        "GPUHoldsExpire",
        Severity.WARNING,
        'sum(rate(gpu_reservations_ended_total{end="expired"}[30m]))'
        " > 0.2 * sum(rate(gpu_reservations_ended_total[30m]))",
        "30m",
        "more than a fifth of all holds run out before their pod is bound",
    ),
    Alert(
        "GPUWatchSilent",
        Severity.WARNING,
        "max by (resource) (gpu_informer_lag_seconds) > 240",
        "2m",
        "nothing was heard of {{ $labels.resource }} for minutes: decisions use an old picture",
    ),
    Alert(
        "GPUWatchesFail",
        Severity.WARNING,
        "sum by (resource) (rate(gpu_informer_failures_total[10m])) > 0.05",
        "10m",
        "lists or watches of {{ $labels.resource }} fail again and again",
    ),
    Alert(
        "GPUObjectsUndecodable",
        Severity.WARNING,
        "sum by (resource) (increase(gpu_informer_decode_errors_total[1h])) > 0",
        "0m",
        "some {{ $labels.resource }} cannot be read and are not counted",
    ),
    Alert(
        "GPUControllersFail",
        Severity.WARNING,
        'sum by (controller) (rate(gpu_reconciles_total{outcome="failed"}[10m])) > 0.1',
        "15m",
        "controller {{ $labels.controller }} fails again and again",
    ),
    Alert(
        "GPUTasksFail",
        Severity.WARNING,
        "sum by (task) (rate(gpu_task_failures_total[10m])) > 0.05",
        "15m",
        "background task {{ $labels.task }} fails again and again",
    ),
    Alert(
        "GPUAdmissionSlow",
        Severity.WARNING,
        _slow("gpu_admission_duration_seconds") + " > 0.5",
        "10m",
        "webhook answers come late; the API server gives up after 3 s",
    ),
    Alert(
        "GPUSchedulingSlow",
        Severity.WARNING,
        _slow("gpu_extender_duration_seconds", '{verb="filter"}') + " > 0.1",
        "10m",
        "filter answers come late: kube-scheduler waits for each",
    ),
    Alert(
        "GPUEventLoopLate",
        Severity.WARNING,
        _slow("gpu_event_loop_lag_seconds") + " > 0.1",
        "10m",
        "the server is short of CPU time",
    ),
    Alert(
        "GPUCertificateExpires",
        Severity.CRITICAL,
        "min by (certificate) (gpu_certificate_not_after_timestamp_seconds) - time() < 604800",
        "0m",
        "certificate {{ $labels.certificate }} ends within a week and was not renewed",
    ),
    Alert(
        "GPUCertificateErrors",
        Severity.WARNING,
        "sum by (step) (increase(gpu_certificate_errors_total[1h])) > 3",
        "10m",
        "certificates cannot be issued, injected or loaded ({{ $labels.step }})",
    ),
    Alert(
        "GPUConnectionsDropped",
        Severity.WARNING,
        "sum by (cause) (rate(gpu_connections_dropped_total[5m])) > 10",
        "10m",
        "the server closes many connections ({{ $labels.cause }})",
    ),
)


def build_alert_rules(namespace: str) -> dict[str, Any]:
    """Return a PrometheusRule of the Prometheus operator with all alerts."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {
            "name": constants.NAME,
            "namespace": namespace,
            "labels": dict(constants.LABELS),
        },
        "spec": {"groups": [{"name": constants.NAME, "rules": [_rule(one) for one in ALERTS]}]},
    }


def _rule(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": alert.lasts,
        "labels": {"severity": alert.severity.value},
        "annotations": {"summary": alert.summary, "description": f"see {alert.name} in {PAGE}"},
    }
