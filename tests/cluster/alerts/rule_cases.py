"""Series that raise the alerts on scaling, kernel caches and the node software, and series that come near it."""

from dataclasses import dataclass, field

_DRIVER_VALID = "gpu_operator_node_driver_validation"


@dataclass(frozen=True)
class Case:
    """Series that raise an alert, and when; and series that come near it."""

    alert: str
    series: dict[str, str]
    """Series -> values, a minute apart, as promtool writes them."""
    silent_at: str
    """It is not raised yet."""
    raised_at: str
    labels: dict[str, str] = field(default_factory=dict)
    harmless: dict[str, str] = field(default_factory=dict)
    """Series that raise nothing at any time."""


LATER_CASES = [
    Case(
        "GPUScalingBlocked",
        {'gpu_scale_waiting_pods{pool="a",reason="NodePoolInvalid"}': "3x60"},
        silent_at="4m",
        raised_at="5m",
        labels={"pool": "a", "reason": "NodePoolInvalid"},
        harmless={
            'gpu_scale_waiting_pods{pool="b",reason="MaxUnits"}': "3x60",
            'gpu_scale_waiting_pods{pool="c",reason="BackendMissing"}': "0x60",
        },
    ),
    Case(
        "GPUScaleSignalPending",
        {'gpu_scale_failures_total{pool="a",reason="NotAnswered"}': "0x4 1x3 2x60"},
        silent_at="7m",
        raised_at="10m",
        labels={"pool": "a"},
        harmless={
            'gpu_scale_failures_total{pool="b",reason="LaunchFailed"}': "0x4 9x60",
            'gpu_scale_failures_total{pool="c",reason="NotAnswered"}': "0x4 1x60",
        },
    ),
    Case(
        "GPUNodeRequestsFail",
        {
            'gpu_scale_requests_total{pool="a",result="failed"}': "0+1x120",
            'gpu_scale_requests_total{pool="a",result="ready"}': "0+3x120",
        },
        silent_at="14m",
        raised_at="20m",
        labels={"pool": "a"},
        harmless={
            'gpu_scale_requests_total{pool="b",result="failed"}': "0+1x120",
            'gpu_scale_requests_total{pool="b",result="ready"}': "0+9x120",
            'gpu_scale_requests_total{pool="c",result="cancelled"}': "0+9x120",
        },
    ),
    Case(
        "GPUScaleUpSlow",
        {
            'gpu_nodeclaim_provision_duration_seconds_bucket{pool="a",le="900"}': "0x120",
            'gpu_nodeclaim_provision_duration_seconds_bucket{pool="a",le="1800"}': "0+1x120",
            'gpu_nodeclaim_provision_duration_seconds_bucket{pool="a",le="+Inf"}': "0+1x120",
            'gpu_scale_devices_within_seconds{pool="a"}': "900x120",
        },
        silent_at="14m",
        raised_at="20m",
        labels={"pool": "a"},
        harmless={
            'gpu_nodeclaim_provision_duration_seconds_bucket{pool="b",le="900"}': "0+1x120",
            'gpu_nodeclaim_provision_duration_seconds_bucket{pool="b",le="+Inf"}': "0+1x120",
            'gpu_scale_devices_within_seconds{pool="b"}': "900x120",
            # Its driver is compiled on each node.
            'gpu_nodeclaim_provision_duration_seconds_bucket{pool="c",le="900"}': "0x120",
            'gpu_nodeclaim_provision_duration_seconds_bucket{pool="c",le="1800"}': "0+1x120",
            'gpu_nodeclaim_provision_duration_seconds_bucket{pool="c",le="+Inf"}': "0+1x120",
            'gpu_scale_devices_within_seconds{pool="c"}': "2100x120",
        },
    ),
    Case(
        "GPUNodesWithoutDevices",
        {'gpu_scale_failures_total{pool="a",reason="NoDevicesReported"}': "0x9 1x60"},
        silent_at="8m",
        raised_at="12m",
        labels={"pool": "a"},
        harmless={'gpu_scale_failures_total{pool="b",reason="LaunchTimeout"}': "0x9 1x60"},
    ),
    Case(
        "GPUNodesWithFewerDevices",
        {'gpu_scale_failures_total{pool="a",reason="FewerDevicesThanPromised"}': "0x9 1x60"},
        silent_at="8m",
        raised_at="12m",
        labels={"pool": "a"},
        harmless={'gpu_scale_failures_total{pool="b",reason="NoDevicesReported"}': "0x9 1x60"},
    ),
    Case(
        "GPUScaleTooManyNodes",
        {'gpu_scale_waiting_pods{pool="a",reason="MaxNodesPerHour"}': "0x9 3x60"},
        silent_at="8m",
        raised_at="12m",
        labels={"pool": "a", "reason": "MaxNodesPerHour"},
        harmless={'gpu_scale_waiting_pods{pool="b",reason="MaxUnits"}': "3x60"},
    ),
    Case(
        "GPUScaleSignalsLeak",
        {"gpu_scale_signal_leaks": "0x9 2x60"},
        silent_at="13m",
        raised_at="16m",
    ),
    Case(
        "GPUScaleBudgetExhausted",
        {'gpu_scale_waiting_pods{pool="a",reason="BudgetPerDay"}': "3x60"},
        silent_at="14m",
        raised_at="15m",
        labels={"pool": "a", "reason": "BudgetPerDay"},
        harmless={'gpu_scale_waiting_pods{pool="b",reason="MaxUnits"}': "3x60"},
    ),
    Case(
        "GPUKernelCacheExtractionFails",
        {'gpu_kernel_cache_extractions_total{outcome="failed",pod="a"}': "0x9 6x60"},
        silent_at="9m",
        raised_at="12m",
        harmless={'gpu_kernel_cache_extractions_total{outcome="extracted",pod="b"}': "0+1x60"},
    ),
    Case(
        "GPUKernelCacheRefused",
        {'gpu_kernel_cache_verifications_total{outcome="refused"}': "0x9 1x60"},
        silent_at="9m",
        raised_at="12m",
        harmless={'gpu_kernel_cache_verifications_total{outcome="verified"}': "0+1x60"},
    ),
    Case(
        "GPUKernelCacheDiskFull",
        {
            'gpu_kernel_cache_disk_bytes{pod="a"}': "95x60",
            'gpu_kernel_cache_disk_quota_bytes{pod="a"}': "100x60",
        },
        silent_at="29m",
        raised_at="30m",
        labels={"pod": "a"},
        harmless={
            'gpu_kernel_cache_disk_bytes{pod="b"}': "89x60",
            'gpu_kernel_cache_disk_quota_bytes{pod="b"}': "100x60",
            'gpu_kernel_cache_disk_bytes{pod="c"}': "5x60",
            'gpu_kernel_cache_disk_quota_bytes{pod="c"}': "0x60",
        },
    ),
    Case(
        "GPUKernelCacheOutdated",
        # promtool's time begins with the epoch: a day less an hour before it.
        {'gpu_kernel_cache_outdated_since_seconds{cache="GKMCache a/b"}': "-82800x90"},
        silent_at="60m",
        raised_at="61m",
        labels={"cache": "GKMCache a/b"},
        harmless={'gpu_kernel_cache_outdated_since_seconds{cache="GKMCache a/c"}': "-82740x90"},
    ),
    Case(
        "GPUOperatorReconciliationFailed",
        {'gpu_operator_reconciliation_status{pod="a"}': "0x90"},
        silent_at="59m",
        raised_at="60m",
        labels={"pod": "a"},
        # Not ready for less than an hour, as after a change; and a replica that has led, whose series ends.
        harmless={
            'gpu_operator_reconciliation_status{pod="b"}': "0x30 1x60",
            'gpu_operator_reconciliation_status{pod="c"}': "-1x30",
        },
    ),
    Case(
        "GPUOperatorReconciliationFailedNfdLabelsMissing",
        {
            'gpu_operator_reconciliation_status{pod="a"}': "-2x60",
            'gpu_operator_reconciliation_has_nfd_labels{pod="a"}': "0x60",
        },
        silent_at="29m",
        raised_at="30m",
        labels={"pod": "a"},
        harmless={
            'gpu_operator_reconciliation_status{pod="b"}': "1x60",
            'gpu_operator_reconciliation_has_nfd_labels{pod="b"}': "0x60",
            'gpu_operator_reconciliation_status{pod="c"}': "0x60",
            'gpu_operator_reconciliation_has_nfd_labels{pod="c"}': "1x60",
        },
    ),
    Case(
        "GPUOperatorDriverAutoUpgradeFailures",
        {
            'gpu_operator_driver_auto_upgrade_enabled{pod="a"}': "1x60",
            'gpu_operator_nodes_upgrades_failed{pod="a"}': "2x60",
        },
        silent_at="29m",
        raised_at="30m",
        labels={"pod": "a"},
        harmless={
            'gpu_operator_driver_auto_upgrade_enabled{pod="b"}': "0x60",
            'gpu_operator_nodes_upgrades_failed{pod="b"}': "2x60",
        },
    ),
    Case(
        "GPUDriverUpgradeOverdue",
        {'gpu_driver_upgrade_overdue_nodes{state="drain-required",pod="a"}': "3x60"},
        silent_at="14m",
        raised_at="15m",
        labels={"state": "drain-required"},
        harmless={'gpu_driver_upgrade_overdue_nodes{state="upgrade-required",pod="a"}': "0x60"},
    ),
    Case(
        "GPUOperatorNodeDeploymentFailed",
        {'gpu_operator_node_device_plugin_devices_total{node="n1"}': "0x60"},
        silent_at="29m",
        raised_at="30m",
        labels={"node": "n1"},
        harmless={
            'gpu_operator_node_device_plugin_devices_total{node="n2"}': "8x60",
            'gpu_operator_node_device_plugin_devices_total{node="n3"}': "-1x60",
        },
    ),
    Case(
        "GPUOperatorNodeDeploymentDriverFailed",
        {'gpu_operator_node_driver_validation{node="n1"}': "0x60"},
        silent_at="29m",
        raised_at="30m",
        labels={"node": "n1"},
        harmless={'gpu_operator_node_driver_validation{node="n2"}': "1x60"},
    ),
    *(
        Case(
            alert,
            {f'{series}{{node="n1"}}': "0x60", f'{_DRIVER_VALID}{{node="n1"}}': "1x60"},
            silent_at="29m",
            raised_at="30m",
            labels={"node": "n1"},
            # Without a driver there is neither of the two, and the alert on drivers is raised.
            harmless={f'{series}{{node="n2"}}': "0x60", f'{_DRIVER_VALID}{{node="n2"}}': "0x60"},
        )
        for alert, series in (
            ("GPUOperatorNodeDeploymentToolkitFailed", "gpu_operator_node_toolkit_ready"),
            ("GPUOperatorNodeDeploymentCudaFailed", "gpu_operator_node_cuda_ready"),
        )
    ),
]
