"""Series that raise the alerts on pools, nodes and the control plane itself, and series that come near it."""

from tests.cluster.alerts.rule_cases import LATER_CASES, Case


def _burning(histogram: str, labels: str, le: str, *, slow: int) -> dict[str, str]:
    """60 requests a minute, all in time for an hour; so many of them are slow from then on."""
    return {
        f'{histogram}_count{{{labels},instance="a"}}': "0+60x400",
        f'{histogram}_bucket{{{labels},le="{le}",instance="a"}}': f"0+60x60 3600+{60 - slow}x340",
    }


def _slow(histogram: str, labels: str, *, bound: str, beyond: str) -> dict[str, str]:
    """A hundred requests a minute, of which two are beyond the bound."""
    return {
        f'{histogram}_bucket{{{labels},le="{bound}"}}': "0+98x60",
        f'{histogram}_bucket{{{labels},le="{beyond}"}}': "0+100x60",
        f'{histogram}_bucket{{{labels},le="+Inf"}}': "0+100x60",
    }


_ADMISSION = ("gpu_admission_duration_seconds", 'webhook="mutate-pods"', "0.1")
_FILTER = ("gpu_extender_duration_seconds", 'verb="filter"', "0.05")
_WAIT = "gpupool_reserved_wait_seconds"
_OF_REGISTRIES = _burning(_ADMISSION[0], 'webhook="mutate-gkmcaches"', "0.1", slow=60)
_OF_BINDINGS = _burning(_FILTER[0], 'verb="bind"', "0.05", slow=60)

CASES = [
    Case(
        "GPUControlPlaneNoLeader",
        {'gpu_leading{pod="a"}': "1x5 0x30"},
        silent_at="5m",
        raised_at="10m",
    ),
    Case(
        "GPUControlPlaneConfigRefused",
        {
            'gpu_control_plane_config_problem{pod="a",cause="Refused"}': "0x5 1x30",
            'gpu_control_plane_config_problem{pod="a",cause="RestartNeeded"}': "1x35",
        },
        silent_at="9m",
        raised_at="13m",
        labels={"cause": "Refused"},
    ),
    Case(
        "GPUControlPlaneMultipleLeaders",
        {'gpu_leading{pod="a"}': "1x30", 'gpu_leading{pod="b"}': "0x5 1x30"},
        silent_at="5m",
        raised_at="10m",
    ),
    Case(
        "GPUAdmissionObjectiveBurnsFast",
        _burning(*_ADMISSION, slow=30),
        silent_at="60m",
        raised_at="70m",
        harmless=_OF_REGISTRIES,
    ),
    Case(
        "GPUAdmissionObjectiveBurnsSlowly",
        _burning(*_ADMISSION, slow=3),
        silent_at="60m",
        raised_at="120m",
        harmless=_OF_REGISTRIES,
    ),
    Case(
        "GPUFilterObjectiveBurnsFast",
        _burning(*_FILTER, slow=60),
        silent_at="60m",
        raised_at="80m",
        harmless=_OF_BINDINGS,
    ),
    Case(
        "GPUFilterObjectiveBurnsSlowly",
        _burning(*_FILTER, slow=12),
        silent_at="60m",
        raised_at="180m",
        harmless=_OF_BINDINGS,
    ),
    Case(
        "GPUBindingObjectiveBurnsFast",
        # kube-scheduler is away: nothing is bound any more, and every reservation expires.
        {
            f'{_WAIT}_count{{pool="a"}}': "0+6x60 360+0x340",
            f'{_WAIT}_bucket{{pool="a",le="30.0"}}': "0+6x60 360+0x340",
            'gpu_reservations_ended_total{end="expired"}': "0x60 0+6x340",
        },
        silent_at="60m",
        raised_at="80m",
        harmless={'gpu_reservations_ended_total{end="released"}': "0+60x400"},
    ),
    Case(
        "GPUBindingObjectiveBurnsSlowly",
        # One in ten is bound too late.
        {
            f'{_WAIT}_count{{pool="a"}}': "0+10x400",
            f'{_WAIT}_bucket{{pool="a",le="30.0"}}': "0+10x60 600+9x340",
            'gpu_reservations_ended_total{end="expired"}': "0x400",
        },
        silent_at="60m",
        raised_at="360m",
    ),
    Case(
        "GPUDriverMissing",
        {'gpu_bootstrap_condition{node="n1",condition="DriverMissing"}': "1x60"},
        silent_at="14m",
        raised_at="15m",
        labels={"node": "n1", "condition": "DriverMissing"},
        harmless={
            'gpu_bootstrap_condition{node="n2",condition="ToolkitMissing"}': "1x60",
            'gpu_bootstrap_condition{node="n3",condition="DriverMissing"}': "1x3 stale 1x60",
        },
    ),
    Case(
        "GPUToolkitMissing",
        {'gpu_bootstrap_condition{node="n1",condition="ToolkitMissing",instance="a"}': "1x60"},
        silent_at="14m",
        raised_at="15m",
        labels={"node": "n1"},
        harmless={'gpu_bootstrap_condition{node="n2",condition="ReadyForPooling"}': "1x60"},
    ),
    Case(
        "GPUFeatureDiscoveryMissing",
        {'gpu_bootstrap_node_phase{node="n1",phase="GFD"}': "1x60"},
        silent_at="14m",
        raised_at="15m",
        labels={"node": "n1"},
        harmless={'gpu_bootstrap_node_phase{node="n2",phase="Monitoring"}': "1x60"},
    ),
    Case(
        "GPUMonitoringMissing",
        {'gpu_bootstrap_condition{node="n1",condition="MonitoringMissing"}': "1x60"},
        silent_at="14m",
        raised_at="15m",
        labels={"node": "n1"},
        harmless={'gpu_bootstrap_condition{node="n2",condition="GFDReady"}': "1x60"},
    ),
    Case(
        "GPUNodeNotReady",
        {
            # Another replica leads after five minutes, and has the series then.
            'gpu_bootstrap_node_phase{node="n1",phase="Validating",instance="a"}': "1x5 stale",
            'gpu_bootstrap_node_phase{node="n1",phase="Validating",instance="b"}': "_x5 1x60",
            'gpu_inventory_devices_total{node="n1"}': "8x60",
        },
        silent_at="14m",
        raised_at="15m",
        labels={"node": "n1", "phase": "Validating"},
        harmless={
            'gpu_bootstrap_node_phase{node="ready",phase="Ready"}': "1x60",
            'gpu_inventory_devices_total{node="ready"}': "8x60",
            'gpu_bootstrap_node_phase{node="off",phase="Disabled"}': "1x60",
            'gpu_inventory_devices_total{node="off"}': "8x60",
            'gpu_bootstrap_node_phase{node="bare",phase="Validating"}': "1x60",
            'gpu_inventory_devices_total{node="bare"}': "0x60",
            'gpu_bootstrap_node_phase{node="goes on",phase="Validating"}': "1x9 stale",
            'gpu_bootstrap_node_phase{node="goes on",phase="GFD"}': "_x9 1x9 stale",
            'gpu_inventory_devices_total{node="goes on"}': "8x60",
        },
    ),
    Case(
        "GPUOperandNotApplied",
        {'gpu_bootstrap_handler_errors_total{handler="gfd",instance="a"}': "0+6x60"},
        silent_at="10m",
        raised_at="20m",
        labels={"handler": "gfd"},
        harmless={'gpu_bootstrap_handler_errors_total{handler="dcgm",instance="a"}': "0 3x60"},
    ),
    Case(
        "GPUNodeWithoutPool",
        {
            'gpu_bootstrap_ready{node="n1"}': "1x120",
            'gpu_inventory_devices_total{node="n1"}': "8x120",
        },
        silent_at="59m",
        raised_at="60m",
        labels={"node": "n1"},
        harmless={
            'gpu_bootstrap_ready{node="pooled"}': "1x120",
            'gpu_inventory_devices_total{node="pooled"}': "8x120",
            'gpupool_node_slots{node="pooled",pool="a"}': "2x120",
            'gpupool_node_slots{node="pooled",pool="b"}': "0x120",
            'gpu_bootstrap_ready{node="unready"}': "0x120",
            'gpu_inventory_devices_total{node="unready"}': "8x120",
            'gpu_bootstrap_ready{node="bare"}': "1x120",
            'gpu_inventory_devices_total{node="bare"}': "0x120",
        },
    ),
    Case(
        "GPUUnassignedDevice",
        {"gpu_device_unassigned_total": "0x10 3x120"},
        silent_at="65m",
        raised_at="71m",
    ),
    Case(
        "GPUPoolAccessAgeing",
        {'gpupool_ageing_access{pool="a"}': "0x9 1x90"},
        silent_at="69m",
        raised_at="71m",
        labels={"pool": "a"},
        harmless={'gpupool_ageing_access{pool="b"}': "0x90"},
    ),
    Case(
        "GPUPoolCapacityLow",
        {'gpupool_condition{pool="a",condition="CapacityLow"}': "0x9 1x60"},
        silent_at="20m",
        raised_at="25m",
        labels={"pool": "a", "condition": "CapacityLow"},
        harmless={'gpupool_condition{pool="b",condition="Ready"}': "1x60"},
    ),
    Case(
        "GPUPoolFragmented",
        {
            'gpu_pods_longest_wait_seconds{pool="a"}': "0x9 1000x60",
            'gpupool_fragmentation{pool="a"}': "0.6x70",
            'gpupool_capacity_available{pool="a"}': "20x70",
            'gpupool_capacity_total{pool="a"}': "100x70",
        },
        silent_at="39m",
        raised_at="41m",
        labels={"pool": "a"},
        harmless={
            # Little is free, all of it of no use: the pool is full.
            'gpu_pods_longest_wait_seconds{pool="full"}': "1000x70",
            'gpupool_fragmentation{pool="full"}': "1x70",
            'gpupool_capacity_available{pool="full"}': "9x70",
            'gpupool_capacity_total{pool="full"}': "100x70",
            # What is free is of use: the pod waits for another reason.
            'gpu_pods_longest_wait_seconds{pool="useful"}': "1000x70",
            'gpupool_fragmentation{pool="useful"}': "0.2x70",
            'gpupool_capacity_available{pool="useful"}': "50x70",
            'gpupool_capacity_total{pool="useful"}': "100x70",
            # No pod waits.
            'gpu_pods_longest_wait_seconds{pool="quiet"}': "0x70",
            'gpupool_fragmentation{pool="quiet"}': "0.9x70",
            'gpupool_capacity_available{pool="quiet"}': "50x70",
            'gpupool_capacity_total{pool="quiet"}': "100x70",
        },
    ),
    Case(
        "GPUReservationExpired",
        {
            'gpu_reservations_ended_total{end="expired",instance="r1"}': "0+1x60",
            'gpu_reservations_ended_total{end="bound",instance="r1"}': "0+10x60",
        },
        silent_at="9m",
        raised_at="40m",
    ),
    Case(
        "GPUPoolMaintenance",
        {'gpupool_condition{pool="a",condition="Maintenance"}': "1x120"},
        silent_at="59m",
        raised_at="60m",
        labels={"pool": "a", "condition": "Maintenance"},
        harmless={'gpupool_condition{pool="b",condition="Maintenance"}': "1x50 0x70"},
    ),
    Case(
        "GPUPoolMisconfigured",
        {'gpupool_condition{pool="a",condition="Misconfigured"}': "1x60"},
        silent_at="4m",
        raised_at="5m",
        labels={"pool": "a", "condition": "Misconfigured"},
        harmless={'gpupool_condition{pool="b",condition="Supported"}': "1x60"},
    ),
    Case(
        "GPUDeviceFaulted",
        {'gpu_device_faulted_total{reason="GPUReset"}': "0x9 1x60"},
        silent_at="14m",
        raised_at="15m",
        labels={"reason": "GPUReset"},
        harmless={'gpu_device_faulted_total{reason="NodeReboot"}': "0x60"},
    ),
    Case(
        "GPUPluginNotRegistered",
        {'gpu_agent_plugin_registered{instance="n1:8081",resource="gpu.deckhouse.io/a"}': "0x60"},
        silent_at="4m",
        raised_at="5m",
        labels={"instance": "n1:8081", "resource": "gpu.deckhouse.io/a"},
        harmless={
            'gpu_agent_plugin_registered{instance="n2:8081",resource="gpu.deckhouse.io/a"}': "1x60"
        },
    ),
    Case(
        "GPUAllocationMismatch",
        {'gpu_allocation_mismatches_total{pool="a"}': "0x9 1x60"},
        silent_at="8m",
        raised_at="12m",
        labels={"pool": "a"},
        harmless={'gpu_allocation_mismatches_total{pool="b"}': "3x60"},
    ),
    Case(
        "GPUProcessUnaccounted",
        {
            'gpu_process_unaccounted{Hostname="n1",UUID="GPU-a",namespace="team",pod="p"}': "_x9 2x60"
        },
        silent_at="13m",
        raised_at="16m",
        labels={"Hostname": "n1", "UUID": "GPU-a"},
        harmless={'gpu_process_unaccounted{Hostname="n1",UUID="GPU-b"}': "0x60"},
    ),
    Case(
        "GPURequestsFail",
        {
            'gpu_admission_duration_seconds_count{webhook="mutate-pods",outcome="failed"}': "0x9 1x60",
            'gpu_extender_duration_seconds_count{verb="bind",outcome="failed"}': "0x70",
        },
        silent_at="9m",
        raised_at="11m",
        harmless={'gpu_extender_duration_seconds_count{verb="bind",outcome="refused"}': "0+9x70"},
    ),
    Case(
        "GPUPodsWaitBesideFreeUnits",
        {
            'gpu_pods_longest_wait_seconds{pool="a"}': "1000x60",
            'gpupool_capacity_available{pool="a"}': "1x60",
        },
        silent_at="14m",
        raised_at="15m",
        labels={"pool": "a"},
        harmless={
            'gpu_pods_longest_wait_seconds{pool="full"}': "1000x60",
            'gpupool_capacity_available{pool="full"}': "0x60",
            'gpu_pods_longest_wait_seconds{pool="quick"}': "900x60",
            'gpupool_capacity_available{pool="quick"}': "1x60",
        },
    ),
    Case(
        "GPUPoolExhausted",
        {
            'gpu_pods_waiting{pool="a"}': "1x60",
            'gpupool_capacity_available{pool="a"}': "0x60",
        },
        silent_at="29m",
        raised_at="30m",
        labels={"pool": "a"},
        harmless={
            'gpu_pods_waiting{pool="quiet"}': "0x60",
            'gpupool_capacity_available{pool="quiet"}': "0x60",
            'gpu_pods_waiting{pool="free"}': "1x60",
            'gpupool_capacity_available{pool="free"}': "1x60",
        },
    ),
    Case(
        "GPUReservationsExpiring",
        {
            'gpu_reservations_ended_total{end="expired"}': "0+3x120",
            'gpu_reservations_ended_total{end="bound"}': "0+9x120",
        },
        silent_at="29m",
        raised_at="40m",
    ),
    Case(
        "GPUControlPlaneWatchStalled",
        {'gpu_informer_lag_seconds{resource="pods"}': "0+60x60"},
        silent_at="6m",
        raised_at="7m",
        labels={"resource": "pods"},
        harmless={'gpu_informer_lag_seconds{resource="nodes"}': "240x60"},
    ),
    Case(
        "GPUAdmissionSlow",
        _slow("gpu_admission_duration_seconds", 'webhook="mutate-pods"', bound="0.5", beyond="1.0"),
        silent_at="10m",
        raised_at="12m",
    ),
    Case(
        "GPUSchedulingSlow",
        _slow("gpu_extender_duration_seconds", 'verb="filter"', bound="0.1", beyond="0.5"),
        silent_at="10m",
        raised_at="12m",
        harmless=_slow("gpu_extender_duration_seconds", 'verb="bind"', bound="0.1", beyond="0.5"),
    ),
    Case(
        "GPUControlPlaneEventLoopLag",
        _slow("gpu_event_loop_lag_seconds", 'pod="a"', bound="0.1", beyond="0.5"),
        silent_at="10m",
        raised_at="12m",
    ),
    Case(
        "GPUCertificateExpires",
        # A week and an hour after promtool's time begins.
        {'gpu_certificate_not_after_timestamp_seconds{certificate="webhook"}': "608400x90"},
        silent_at="60m",
        raised_at="61m",
        labels={"certificate": "webhook"},
        harmless={'gpu_certificate_not_after_timestamp_seconds{certificate="ca"}': "700000x90"},
    ),
    Case(
        "GPUCertificateErrors",
        {'gpu_certificate_errors_total{step="issue"}': "0x9 6x60"},
        silent_at="19m",
        raised_at="21m",
        labels={"step": "issue"},
        harmless={'gpu_certificate_errors_total{step="load"}': "0x9 2x60"},
    ),
    *(
        Case(
            alert,
            {f'{series}="a"}}': "0x9 1x60"},
            silent_at=f"{9 + lasts}m",
            raised_at=f"{10 + lasts}m",
            labels=labels,
            harmless={f'{series}="b"}}': "0x70"},
        )
        for alert, series, labels, lasts in (
            ("GPUUnitAllocatedTwice", "gpu_units_held_twice{pod", {}, 0),
            ("GPUPodsUnaccounted", "gpu_pods_unaccounted{pod", {}, 5),
            ("GPUBindingsInDoubt", 'gpu_reservations{phase="doubtful",pod', {}, 3),
            ("GPUPoolUnitsWithheld", "gpupool_capacity_unhealthy{pool", {"pool": "a"}, 30),
            ("GPUPoolUnitsMissing", "gpupool_capacity_missing{pool", {"pool": "a"}, 15),
            (
                "GPUObjectsUndecodable",
                "gpu_informer_unreadable_objects{resource",
                {"resource": "a"},
                1,
            ),
            ("GPURolloutStopped", "gpu_daemonset_outdated_nodes{daemonset", {"daemonset": "a"}, 60),
        )
    ),
    *(
        Case(
            alert,
            {f'{series}{{{label}="a"{also}}}': f"0+{fast}x60"},
            silent_at="9m",
            raised_at="30m",
            labels={label: "a"},
            harmless={f'{series}{{{label}="b"{also}}}': f"0+{slow}x60"},
        )
        for alert, series, label, also, fast, slow in (
            ("GPUWatchesFail", "gpu_informer_failures_total", "resource", "", 4, 2),
            ("GPUTasksFail", "gpu_task_failures_total", "task", "", 4, 2),
            ("GPUConnectionsDropped", "gpu_connections_dropped_total", "cause", "", 700, 500),
            ("GPUControllersFail", "gpu_reconciles_total", "controller", ',outcome="failed"', 9, 5),
        )
    ),
    *LATER_CASES,
]
"""Has every alert."""
