"""Alert rules ask for metrics and labels that exist, and stand on the page as they are."""

import re
from pathlib import Path

import pytest
from prometheus_client import Counter, Histogram

from api.kinds.gpunodeinventory import BootstrapPhase
from autoscaling.scaling_model import Failure, RequestPhase, WaitReason
from manifests.monitoring.alert import Alert, RecordingRule
from manifests.monitoring.alerts import ALERTS, RECORDING_RULES, anchor_of, build_alert_rules
from pool.reservations.reservation import End, ReservationPhase
from reconciler.scaling import scaling_gauges
from telemetry import agent_metrics, device_page, kernel_cache_metrics, metrics, usage_metrics
from telemetry.conditions import InventoryCondition, PoolCondition
from telemetry.metric_declaration import DeclaredMetric, labels_of

PAGE = Path(__file__).parents[3] / "docs" / "operations.md"

METRICS = {
    next(iter(metric.describe())).name: metric
    for home in (metrics, agent_metrics, device_page, kernel_cache_metrics, usage_metrics)
    for metric in vars(home).values()
    if isinstance(metric, DeclaredMetric)
}
VALUES = {
    "phase": {
        one.value for kind in (ReservationPhase, BootstrapPhase, RequestPhase) for one in kind
    },
    "reason": {one.value for kind in (WaitReason, Failure) for one in kind},
    "result": {scaling_gauges.READY, scaling_gauges.FAILED, scaling_gauges.CANCELLED},
    "end": {end.value for end in End},
    "verb": {"filter", "prioritize", "preempt", "bind"},
    "outcome": {"failed", "refused"},
    "webhook": {"mutate-gkmcaches", "mutate-clustergkmcaches"},
    "condition": {one.value for kind in (PoolCondition, InventoryCondition) for one in kind},
}
"""Values that expressions may compare with; `failed` is one of each histogram and of reconciles, `refused` of the
verifications of kernel caches."""

NAME = re.compile(r"\bgpu(?:pool)?_[a-z_]+")
SELECTED = re.compile(r"\b(gpu(?:pool)?_[a-z_]+)\{([^}]*)\}")
MATCHER = re.compile(r'^(\w+)!?="([\w.-]+)"$')
GROUPED = re.compile(r"\b(?:by|on) \(([^)]*)\)")
ROW = re.compile(
    r"^\| <a id=\"\w+\"></a>`(GPU\w+)` \| (\w+) \| `([^`]+)` for (\w+) \| (.+) \| (.+) \|$",
    re.MULTILINE,
)


def metric_of(sample: str) -> DeclaredMetric:
    """The metric that exports a sample of this name, by the form that its kind gives it."""
    for name, metric in METRICS.items():
        suffixes = {Counter: ("_total",), Histogram: ("_bucket", "_count", "_sum")}
        if sample in {name + suffix for suffix in suffixes.get(type(metric), ("",))}:
            return metric
    raise AssertionError(f"no metric exports {sample}")


def checked_labels(expression: str) -> set[str]:
    """Return the labels of its metrics; assert that these, and the values that it compares with, exist."""
    asked = [metric_of(sample) for sample in NAME.findall(expression)]
    assert asked
    for sample, matchers in SELECTED.findall(expression):
        for matcher in matchers.split(","):
            found = MATCHER.match(matcher)
            assert found is not None
            if found[1] == "le":
                metric = metric_of(sample)
                assert isinstance(metric, Histogram)
                assert float(found[2]) in metric._upper_bounds
                continue
            assert found[1] in labels_of(metric_of(sample))
            assert found[2] in VALUES[found[1]]
    labels = {label for metric in asked for label in labels_of(metric)} | {"le"}
    for grouped in GROUPED.findall(expression):
        assert set(grouped.split(", ")) <= labels
    return labels


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


def test_a_metric_that_is_gone_would_be_missed() -> None:
    with pytest.raises(AssertionError, match="gpu_leading_total"):
        metric_of("gpu_leading_total")


def test_names_are_unique() -> None:
    assert len({alert.name for alert in ALERTS}) == len(ALERTS) > 15


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
    missing = [name for name in METRICS if name not in text]
    assert missing == []


def test_the_rules_are_a_prometheus_rule() -> None:
    rule = build_alert_rules("somewhere")
    assert (rule["apiVersion"], rule["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    group, recording = rule["spec"]["groups"]
    assert [one["record"] for one in recording["rules"]] == ["gpu_scaling_success_rate"]
    assert [one["alert"] for one in group["rules"]] == [alert.name for alert in ALERTS]
    assert all(one["labels"]["severity"] in {"critical", "warning"} for one in group["rules"])
