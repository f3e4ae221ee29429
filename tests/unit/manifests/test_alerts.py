"""Alert rules ask for metrics and labels that exist, and stand on the page as they are."""

import re
from pathlib import Path

import promql_parser
import pytest
from prometheus_client import Histogram

from api.kinds.gpunodeinventory import BootstrapPhase
from autoscaling.scaling_model import Failure, RequestPhase, WaitReason
from manifests.monitoring.alert import Alert, RecordingRule
from manifests.monitoring.alerts import ALERTS, anchor_of, build_alert_rules
from manifests.monitoring.scaling_alerts import RECORDING_RULES
from pool.reservations.reservation import End, ReservationPhase
from reconciler.scaling import gauges
from telemetry.conditions import InventoryCondition, PoolCondition
from tests.cluster.alerts.control_plane_cases import CASES
from tests.support.exported_series import (
    OF_NODE_STATUS_EXPORTER,
    OURS,
    declared_metrics,
    name_of,
    series_of,
)
from tests.support.promql import Labels, groupings, labels_in, selectors

PAGE = Path(__file__).parents[3] / "docs" / "operations.md"

METRICS = {name: metric for metric in declared_metrics() for name in series_of(metric)}
VALUES = {
    "phase": {
        item.value for kind in (ReservationPhase, BootstrapPhase, RequestPhase) for item in kind
    },
    "reason": {item.value for kind in (WaitReason, Failure) for item in kind},
    "result": {gauges.READY, gauges.FAILED, gauges.CANCELLED},
    "end": {end.value for end in End},
    "cause": {"RestartNeeded"},
    "verb": {"filter", "prioritize", "preempt", "bind"},
    "outcome": {"failed", "refused"},
    "webhook": {"mutate-gkmcaches", "mutate-clustergkmcaches"},
    "condition": {item.value for kind in (PoolCondition, InventoryCondition) for item in kind},
}
"""Values that expressions may compare with; `failed` is one of each histogram and of reconciles, `refused` of the
verifications of kernel caches."""

ROW = re.compile(
    r"^\| <a id=\"\w+\"></a>`(GPU\w+)` \| (\w+) \| `([^`]+)` for (\w+) \| (.+) \| (.+) \|$",
    re.MULTILINE,
)


def checked_labels(expression: str) -> Labels:
    """Return the labels of its result; assert that its series, and the values that it compares with, exist."""
    tree = promql_parser.parse(expression)
    assert selectors(tree)
    for selector in selectors(tree):
        for matcher in selector.matchers.matchers:
            if matcher.name == "le":
                histogram = METRICS[selector.name or ""]
                assert isinstance(histogram, Histogram)
                assert float(matcher.value) in histogram._upper_bounds
            else:
                assert matcher.value in VALUES[matcher.name]
    return labels_in(tree, OURS | OF_NODE_STATUS_EXPORTER)


@pytest.mark.parametrize("rule", RECORDING_RULES, ids=lambda rule: rule.name)
def test_a_recording_rule_asks_only_for_what_is_exported(rule: RecordingRule) -> None:
    checked_labels(rule.expression)
    assert f"`{rule.name}`" in PAGE.read_text()
    assert rule.expression in PAGE.read_text()


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_expression_asks_only_for_what_is_exported(alert: Alert) -> None:
    labels = checked_labels(alert.expression)
    for label in re.findall(r"\$labels\.(\w+)", alert.summary):
        assert label in labels


@pytest.mark.parametrize("rule", [*ALERTS, *RECORDING_RULES], ids=lambda rule: rule.name)
def test_a_rule_keeps_clusters_apart(rule: Alert | RecordingRule) -> None:
    """One Prometheus may have series of several: an aggregation or a join without the label mixes them."""
    mixed = [
        text
        for text, labels in groupings(promql_parser.parse(rule.expression))
        if "cluster" not in labels
    ]
    assert mixed == []


def test_names_are_unique() -> None:
    assert len({alert.name for alert in ALERTS}) == len(ALERTS) > 15


def test_every_alert_has_series_that_raise_it_and_no_other() -> None:
    assert sorted(case.alert for case in CASES) == sorted(alert.name for alert in ALERTS)


def test_the_page_has_every_alert_as_it_is_and_no_other() -> None:
    rows = {
        name: (severity, expression, lasts)
        for name, severity, expression, lasts, *_ in ROW.findall(PAGE.read_text())
    }
    assert rows == {
        alert.name: (alert.severity.value, alert.expression, alert.lasts) for alert in ALERTS
    }


def test_a_runbook_is_an_anchor_of_the_page() -> None:
    text = PAGE.read_text()
    for alert in ALERTS:
        assert text.count(f'<a id="{anchor_of(alert)}"></a>`{alert.name}`') == 1
    page = "https://docs.example/operations.html"
    (group, _) = build_alert_rules("somewhere", runbook_page=page)["spec"]["groups"]
    for rule in group["rules"]:
        address, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert (address, anchor) == (page, rule["alert"].lower())


def test_the_page_names_every_metric() -> None:
    text = re.sub(
        r"`(\w*)\{([\w,]+)\}(?:\{[\w,]*\})?",
        lambda found: " ".join(found[1] + part for part in found[2].split(",")) + " " + found[0],
        PAGE.read_text(),
    )
    missing = [name for name in map(name_of, declared_metrics()) if name not in text]
    assert missing == []


def test_the_rules_are_a_prometheus_rule() -> None:
    rule = build_alert_rules("somewhere")
    assert (rule["apiVersion"], rule["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    group, recording = rule["spec"]["groups"]
    assert [item["record"] for item in recording["rules"]] == [
        rule.name for rule in RECORDING_RULES
    ]
    assert [item["alert"] for item in group["rules"]] == [alert.name for alert in ALERTS]
    assert all(item["labels"]["severity"] in {"critical", "warning"} for item in group["rules"])
