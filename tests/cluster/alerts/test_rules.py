"""What promtool makes of the alert rules: which series raise an alert, when, and which do not."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from manifests.monitoring.alerts import ALERTS, anchor_of, build_alert_rules
from manifests.monitoring.scaling_alerts import RECORDING_RULES
from tests.cluster.alerts.conftest import Promtool
from tests.cluster.alerts.control_plane_cases import CASES
from tests.cluster.alerts.rule_cases import Case

ALERT_BY_NAME = {alert.name: alert for alert in ALERTS}


def a_test(case: Case) -> dict[str, Any]:
    alert = ALERT_BY_NAME[case.alert]
    label = re.compile(r"\{\{ \$labels\.(\w+) \}\}")
    raised = {
        "exp_labels": {"severity": alert.severity.value, **case.labels},
        "exp_annotations": {
            "summary": label.sub(lambda found: case.labels[found[1]], alert.summary),
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


def judged(promtool: Promtool, directory: Path, *tests: dict[str, Any]) -> str:
    """Return what promtool has against the tests; nothing where they pass.

    It evaluates the alerts that they name and the recording rules, and no other alert at any minute.
    """
    named = {None, *(item["alertname"] for test in tests for item in test["alert_rule_test"])}
    groups = [
        group | {"rules": [rule for rule in group["rules"] if rule.get("alert") in named]}
        for group in build_alert_rules("gpu-control-plane")["spec"]["groups"]
    ]
    rules = directory / "rules.yaml"
    rules.write_text(yaml.safe_dump({"groups": groups}))
    content = {"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": tests}
    path = directory / "test.yaml"
    path.write_text(yaml.safe_dump(content))
    done = promtool("test", "rules", path)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.alert)
def test_an_alert_is_raised_by_what_it_is_about(case: Case, promtool: Promtool, tmp_path: Path):
    tests = (a_test(case), a_test(in_two_clusters(case)))
    assert judged(promtool, tmp_path, *tests) == ""


def leaders_of(case: Case, series: dict[str, str], *clusters: str) -> dict[str, Any]:
    """Return the test of an alert on leaders that is raised for these clusters."""
    raised = [a_test(replace(case, labels={"cluster": name})) for name in clusters]
    silent, _ = (test := a_test(replace(case, series=series)))["alert_rule_test"]
    alerts = [item["alert_rule_test"][1]["exp_alerts"][0] for item in raised]
    return test | {
        "alert_rule_test": [silent, {**silent, "eval_time": "60m", "exp_alerts": alerts}]
    }


def test_each_of_two_clusters_has_a_leader_of_its_own(promtool: Promtool, tmp_path: Path):
    """A sum over both would hide that one has none, and be two where all is well."""
    none, several = CASES[:2]
    both = {'gpu_leading{cluster="east"}': "1x90", 'gpu_leading{cluster="west"}': "1x90"}
    one = {'gpu_leading{cluster="east"}': "1x90", 'gpu_leading{cluster="west"}': "1x30 0x60"}
    gone = {'gpu_leading{cluster="east"}': "1x90", 'gpu_leading{cluster="west"}': "1x30"}
    tests = [leaders_of(case, both) for case in (none, several)]
    tests += [leaders_of(none, series, "west") for series in (one, gone)]
    assert judged(promtool, tmp_path, *tests) == ""


def test_nothing_at_all_has_no_leader(promtool: Promtool, tmp_path: Path):
    case = replace(CASES[0], series={}, silent_at="0m", raised_at="2m")
    assert judged(promtool, tmp_path, a_test(case)) == ""


def test_a_rule_that_never_fires_would_be_found(promtool: Promtool, tmp_path: Path):
    case = CASES[1]
    silent = a_test(case) | {"input_series": []}
    assert case.alert in judged(promtool, tmp_path, silent)


def test_prometheus_reads_every_rule(promtool: Promtool, rules_file: Path):
    done = promtool("check", "rules", "--lint=all", "--lint-fatal", rules_file)
    assert done.returncode == 0, done.stdout + done.stderr
    found = [int(count) for count in re.findall(r"SUCCESS: (\d+) rules found", done.stdout)]
    assert sum(found) == len(ALERTS) + len(RECORDING_RULES)
