"""What promtool makes of the alert rules: which series raise an alert, when, and which do not."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from manifests.monitoring.alerts import ALERTS, anchor_of
from manifests.monitoring.scaling_alerts import RECORDING_RULES
from tests.cluster.alerts.conftest import Promtool
from tests.cluster.alerts.rule_cases import LATER_CASES, Case

ALERT_BY_NAME = {alert.name: alert for alert in ALERTS}


def _burning(histogram: str, labels: str, le: str, *, slow: int) -> dict[str, str]:
    """60 requests a minute, all in time for an hour; so many of them are slow from then on."""
    return {
        f'{histogram}_count{{{labels},instance="a"}}': "0+60x400",
        f'{histogram}_bucket{{{labels},le="{le}",instance="a"}}': f"0+60x60 3600+{60 - slow}x340",
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
        text="node n1 has GPUs but no driver",
    ),
    Case(
        "GPUToolkitMissing",
        {'gpu_bootstrap_condition{node="n1",condition="ToolkitMissing",instance="a"}': "1x60"},
        silent_at="14m",
        raised_at="15m",
        labels={"node": "n1"},
        harmless={'gpu_bootstrap_condition{node="n2",condition="ReadyForPooling"}': "1x60"},
        text="NVIDIA's container toolkit is not ready on node n1",
    ),
    Case(
        "GPUFeatureDiscoveryMissing",
        {'gpu_bootstrap_node_phase{node="n1",phase="GFD"}': "1x60"},
        silent_at="14m",
        raised_at="15m",
        labels={"node": "n1"},
        harmless={'gpu_bootstrap_node_phase{node="n2",phase="Monitoring"}': "1x60"},
        text="GPU feature discovery is not ready on node n1",
    ),
    Case(
        "GPUMonitoringMissing",
        {'gpu_bootstrap_condition{node="n1",condition="MonitoringMissing"}': "1x60"},
        silent_at="14m",
        raised_at="15m",
        labels={"node": "n1"},
        harmless={'gpu_bootstrap_condition{node="n2",condition="GFDReady"}': "1x60"},
        text="DCGM or its exporter is not ready, or does not answer, on node n1",
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
        text="node n1 stays in phase Validating: its devices are given to no pool",
    ),
    Case(
        "GPUOperandNotApplied",
        {'gpu_bootstrap_handler_errors_total{handler="gfd",instance="a"}': "0+6x60"},
        silent_at="10m",
        raised_at="20m",
        labels={"handler": "gfd"},
        harmless={'gpu_bootstrap_handler_errors_total{handler="dcgm",instance="a"}': "0 3x60"},
        text="the API server refuses objects of the operand gfd",
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
        text="node n1 is ready but none of its devices is in a pool",
    ),
    Case(
        "GPUUnassignedDevice",
        {"gpu_device_unassigned_total": "0x10 3x120"},
        silent_at="65m",
        raised_at="71m",
    ),
    Case(
        "GPUPoolCapacityLow",
        {'gpupool_condition{pool="a",condition="CapacityLow"}': "0x9 1x60"},
        silent_at="20m",
        raised_at="25m",
        labels={"pool": "a", "condition": "CapacityLow"},
        harmless={'gpupool_condition{pool="b",condition="Ready"}': "1x60"},
        text="fewer than 10 % of the units of pool a are free, or none",
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
        text="pods of pool a are Pending, and most of its free units are of no use to the pods that ask for them",
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
        text="pool a is in maintenance for over an hour and accepts no new pods",
    ),
    Case(
        "GPUPoolMisconfigured",
        {'gpupool_condition{pool="a",condition="Misconfigured"}': "1x60"},
        silent_at="4m",
        raised_at="5m",
        labels={"pool": "a", "condition": "Misconfigured"},
        harmless={'gpupool_condition{pool="b",condition="Supported"}': "1x60"},
        text="pool a has an invalid specification and is not served",
    ),
    Case(
        "GPUDeviceFaulted",
        {'gpu_device_faulted_total{reason="XIDError"}': "0x9 1x60"},
        silent_at="14m",
        raised_at="15m",
        labels={"reason": "XIDError"},
        harmless={'gpu_device_faulted_total{reason="ECCError"}': "0x60"},
        text="devices are faulted (XIDError) and accept no new pods",
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
        text="a device plugin of gpu.deckhouse.io/a is not registered with its kubelet",
    ),
    Case(
        "GPUAllocationMismatch",
        {'gpu_allocation_mismatches_total{pool="a"}': "0x9 1x60"},
        silent_at="8m",
        raised_at="12m",
        labels={"pool": "a"},
        harmless={'gpu_allocation_mismatches_total{pool="b"}': "3x60"},
        text="kubelet allocated other devices to pods of pool a than they were bound with",
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
        text="processes use device GPU-a of node n1, which kubelet did not give to their pods",
    ),
    *LATER_CASES,
]


def a_test(case: Case) -> dict[str, Any]:
    alert = ALERT_BY_NAME[case.alert]
    raised = {
        "exp_labels": {"severity": alert.severity.value, **case.labels},
        "exp_annotations": {
            "summary": case.text or alert.summary,
            "description": f"see {alert.name} in docs/operations.md",
            "runbook_url": f"docs/operations.md#{anchor_of(alert)}",
        },
    }
    series = {**case.series, **case.harmless}
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [
            {"eval_time": case.silent_at, "alertname": case.alert, "exp_alerts": []},
            {"eval_time": case.raised_at, "alertname": case.alert, "exp_alerts": [raised]},
        ],
    }


def of_cluster(series: dict[str, str], cluster: str) -> dict[str, str]:
    """Return the series with the label that keeps clusters apart."""
    label = f'{{cluster="{cluster}"'
    return {
        name.replace("{", f"{label},") if "{" in name else f"{name}{label}}}": values
        for name, values in series.items()
    }


def in_two_clusters(case: Case) -> Case:
    """Return the case of one cluster beside another one in which nothing is to be raised."""
    return replace(
        case,
        series=of_cluster(case.series, "east"),
        labels={"cluster": "east", **case.labels},
        harmless=of_cluster(case.harmless, "east") | of_cluster(case.harmless, "west"),
    )


def judged(promtool: Promtool, rules_file: Path, directory: Path, *tests: dict[str, Any]) -> str:
    """Return what promtool has against the tests; nothing where they pass."""
    content = {"rule_files": [str(rules_file)], "evaluation_interval": "1m", "tests": tests}
    path = directory / "test.yaml"
    path.write_text(yaml.safe_dump(content))
    done = promtool("test", "rules", path)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_an_alert_is_raised_by_what_it_is_about(
    case: Case, promtool: Promtool, rules_file: Path, tmp_path: Path
):
    tests = (a_test(case), a_test(in_two_clusters(case)))
    assert judged(promtool, rules_file, tmp_path, *tests) == ""


def leaders_of(case: Case, series: dict[str, str], *clusters: str) -> dict[str, Any]:
    """Return the test of an alert on leaders that is raised for these clusters."""
    raised = [a_test(replace(case, labels={"cluster": name})) for name in clusters]
    silent, _ = (test := a_test(replace(case, series=series)))["alert_rule_test"]
    alerts = [item["alert_rule_test"][1]["exp_alerts"][0] for item in raised]
    return test | {
        "alert_rule_test": [silent, {**silent, "eval_time": "60m", "exp_alerts": alerts}]
    }


def test_each_of_two_clusters_has_a_leader_of_its_own(
    promtool: Promtool, rules_file: Path, tmp_path: Path
):
    """A sum over both would hide that one has none, and be two where all is well."""
    none, several = CASES[:2]
    both = {'gpu_leading{cluster="east"}': "1x90", 'gpu_leading{cluster="west"}': "1x90"}
    one = {'gpu_leading{cluster="east"}': "1x90", 'gpu_leading{cluster="west"}': "1x30 0x60"}
    gone = {'gpu_leading{cluster="east"}': "1x90", 'gpu_leading{cluster="west"}': "1x30"}
    tests = [leaders_of(case, both) for case in (none, several)]
    tests += [leaders_of(none, series, "west") for series in (one, gone)]
    assert judged(promtool, rules_file, tmp_path, *tests) == ""


def test_nothing_at_all_has_no_leader(promtool: Promtool, rules_file: Path, tmp_path: Path):
    case = replace(CASES[0], series={}, silent_at="0m", raised_at="2m")
    assert judged(promtool, rules_file, tmp_path, a_test(case)) == ""


def test_a_rule_that_never_fires_would_be_found(
    promtool: Promtool, rules_file: Path, tmp_path: Path
):
    case = CASES[1]
    silent = a_test(case) | {"input_series": []}
    assert case.alert in judged(promtool, rules_file, tmp_path, silent)


def test_prometheus_reads_every_rule(promtool: Promtool, rules_file: Path):
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", rules_file)
    assert done.returncode == 0, done.stdout + done.stderr
    found = [int(count) for count in re.findall(r"SUCCESS: (\d+) rules found", done.stdout)]
    assert sum(found) == len(ALERTS) + len(RECORDING_RULES)
