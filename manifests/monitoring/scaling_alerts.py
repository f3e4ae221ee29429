"""Alerts on the scaling of pools, and the rates that they are read beside."""

from typing import Final

from manifests.monitoring.alert import Alert, RecordingRule, Severity

SCALING_ALERTS: Final = (
    Alert(
        "GPUScalingBlocked",
        Severity.WARNING,
        'gpu_scale_waiting_pods{reason="NodePoolInvalid"} > 0'
        ' or gpu_scale_waiting_pods{reason="BackendMissing"} > 0',
        "5m",
        "no node is asked for, for pods of pool {{ $labels.pool }}: {{ $labels.reason }}",
    ),
    Alert(
        "GPUScaleSignalPending",
        Severity.WARNING,
        # One is a restart of the autoscaler; a request that has no answer fails after a minute, and is made again.
        'sum by (cluster, pool) (increase(gpu_scale_failures_total{reason="NotAnswered"}[15m])) > 1.5',
        "0m",
        "the autoscaler does not answer requests of pool {{ $labels.pool }} for nodes",
    ),
    Alert(
        "GPUNodeRequestsFail",
        Severity.WARNING,
        'sum by (cluster, pool) (rate(gpu_scale_requests_total{result="failed"}[30m]))'
        ' > 0.2 * sum by (cluster, pool) (rate(gpu_scale_requests_total{result!="cancelled"}[30m]))',
        "15m",
        "more than 20 % of the requests of pool {{ $labels.pool }} for nodes fail",
    ),
    Alert(
        "GPUScaleUpSlow",
        Severity.WARNING,
        "histogram_quantile(0.9,"
        " sum by (cluster, pool, le) (rate(gpu_nodeclaim_provision_duration_seconds_bucket[1h])))"
        " > max by (cluster, pool) (gpu_scale_devices_within_seconds)",
        "15m",
        "nodes of pool {{ $labels.pool }} take longer (p90) until their devices are in the pool than it allows for",
    ),
    Alert(
        "GPUNodesWithoutDevices",
        Severity.WARNING,
        'sum by (cluster, pool) (increase(gpu_scale_failures_total{reason="NoDevicesReported"}[1h])) > 0',
        "0m",
        "a node that came for pool {{ $labels.pool }} never reported a device and was deleted",
    ),
    Alert(
        "GPUNodesWithFewerDevices",
        Severity.WARNING,
        'sum by (cluster, pool) (increase(gpu_scale_failures_total{reason="FewerDevicesThanPromised"}[1h])) > 0',
        "0m",
        "a node that came for pool {{ $labels.pool }} has fewer usable devices than its shape promises",
    ),
    Alert(
        "GPUScaleSignalsLeak",
        Severity.WARNING,
        "max by (cluster) (gpu_scale_signal_leaks) > 0",
        "5m",
        "pods that ask an autoscaler for a node are left over: each keeps a node, or asks for another one",
    ),
    Alert(
        "GPUScaleBudgetExhausted",
        Severity.WARNING,
        'gpu_scale_waiting_pods{reason="BudgetPerHour"} > 0'
        ' or gpu_scale_waiting_pods{reason="BudgetPerDay"} > 0',
        "15m",
        "pods of pool {{ $labels.pool }} are Pending because of the pool's budget ({{ $labels.reason }})",
    ),
    Alert(
        "GPUScaleTooManyNodes",
        Severity.WARNING,
        'gpu_scale_waiting_pods{reason="MaxNodesPerHour"} > 0',
        "0m",
        "pool {{ $labels.pool }} got as many nodes within an hour as it may, and pods still wait for one",
    ),
)

RECORDING_RULES: Final = (
    RecordingRule(
        "cluster_pool:gpu_scale_requests_ready:ratio_rate1h",
        'sum by (cluster, pool) (rate(gpu_scale_requests_total{result="ready"}[1h]))'
        ' / sum by (cluster, pool) (rate(gpu_scale_requests_total{result!="cancelled"}[1h]))',
    ),
)
"""Rules that record the share of requests that got a node with devices, of those that were not withdrawn."""
