"""What shows nothing in the half hour, with the reason: series that nobody exports there, and answers that stay empty.

A test fails where one of them is there after all.
"""

from typing import Final

_NOTHING_FAILS: Final = "nothing of the kind fails in the half hour"
_NO_DRIVER: Final = "of a node agent with a driver: tests/cluster/node/operands/test_device_boards.py and tests/component/agent"
_NO_CACHE: Final = "no kernel cache is pulled or mounted: tests/cluster/node/caches"
_NO_NODE_SOFTWARE: Final = (
    "node software is off: no ClusterPolicy is read, and no node status exporter runs"
)
_NO_SCALING: Final = "no pool scales: tests/cluster/autoscaling"
_NOT_CHECKED: Final = "the bare node lacks a driver, and what comes after it is not checked: tests/component/reconciler"

UNSEEN_SERIES: Final[dict[str, str]] = {
    "gpu_control_plane_config_problem": "of servers that follow a GPUControlPlaneConfig: system/test_config_object.py",
    **dict.fromkeys(
        (
            "gpu_bootstrap_handler_errors_total",
            'gpu_events_emitted_total{cluster="",outcome=~"dropped|failed"}',
            'gpu_object_conflicts_total{cluster=""}',
        ),
        _NOTHING_FAILS,
    ),
    **dict.fromkeys(
        (
            "gpu_agent_partitioning_steps_total",
            "gpu_agent_driver_call_seconds_count",
            "gpu_process_unaccounted",
        ),
        _NO_DRIVER,
    ),
    **dict.fromkeys(
        (
            "gpu_kernel_cache_extractions_total",
            "gpu_kernel_cache_mounts_total",
            "gpu_kernel_cache_starts_total",
            "gpu_kernel_cache_outdated_since_seconds",
        ),
        _NO_CACHE,
    ),
    **dict.fromkeys(
        (
            "gpu_operator_reconciliation_status",
            "gpu_operator_reconciliation_has_nfd_labels",
            "gpu_operator_driver_auto_upgrade_enabled",
            "gpu_operator_nodes_upgrades_failed",
            "gpu_driver_upgrade_overdue_nodes",
            "gpu_operator_node_device_plugin_devices_total",
            "gpu_operator_node_driver_validation",
            "gpu_operator_node_toolkit_ready",
            "gpu_operator_node_cuda_ready",
        ),
        _NO_NODE_SOFTWARE,
    ),
    **dict.fromkeys(
        (
            "gpu_scale_requests_active",
            "gpu_scale_waiting_pods",
            "gpu_scale_requests_total",
            "gpu_scale_failures_total",
            "gpu_nodeclaim_provision_duration_seconds_bucket",
            "gpu_scale_devices_within_seconds",
            "gpu_scale_node_cost_per_hour",
            "gpu_scale_budget_remaining",
            "gpu_scale_idle_device_seconds_total",
        ),
        _NO_SCALING,
    ),
    **dict.fromkeys(
        (
            'gpu_bootstrap_condition{condition="ToolkitMissing"}',
            'gpu_bootstrap_condition{condition="MonitoringMissing"}',
            'gpu_bootstrap_node_phase{phase="GFD"}',
        ),
        _NOT_CHECKED,
    ),
}
"""A series, or one with some labels only, as an expression names it -> why nobody exports it."""

UNSEEN_ANSWERS: Final[dict[str, str]] = {
    "gpu-control-plane: Watches not synced A": "every kind has been listed, so that none is left over",
    "gpu-kernel-caches: Fullest node A": _NO_CACHE,
    **dict.fromkeys(
        (
            f"gpu-kernel-caches: {title} {letter}"
            for title in ("Time until a cache can be mounted", "Time of a pull")
            for letter in "ABC"
        ),
        _NO_CACHE,
    ),
}
"""A query whose series are all there -> why its answer is empty."""
