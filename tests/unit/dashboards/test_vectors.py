"""Expressions are made from the metrics' objects: what a metric does not have is refused while a dashboard is built."""

import pytest
from dashboards.expressions import (
    buckets,
    combined,
    counts,
    increase,
    matching,
    max_by,
    or_zero,
    other_than,
    quantile,
    rate,
    renamed,
    select,
    sum_by,
)
from dashboards.foreign_series import FOREIGN_SERIES, GPU_UTIL
from dashboards.layout import Board, Choice, PanelRow, board_text
from dashboards.panels import graph, with_runbook
from prometheus_client import CollectorRegistry

from telemetry import metrics
from telemetry.metric_declaration import MetricDeclarations


def test_a_series_has_the_name_and_the_labels_of_its_metric():
    assert str(select(metrics.PODS_WAITING)) == 'gpu_pods_waiting{cluster="$cluster"}'
    assert str(select(metrics.EVICTIONS, outcome="refused")) == (
        'gpu_evictions_total{cluster="$cluster", outcome="refused"}'
    )
    found = select(metrics.POOL_CONDITION, pool=matching("$pool"), condition=other_than("a", "b"))
    assert str(found) == 'gpupool_condition{cluster="$cluster", pool=~"$pool", condition!~"a|b"}'
    foreign = 'DCGM_FI_DEV_GPU_UTIL{cluster="$cluster", pod!=""}'
    assert str(select(GPU_UTIL, pod=other_than(""))) == foreign
    assert str(counts(metrics.POD_WAIT)) == 'gpupool_wait_seconds_count{cluster="$cluster"}'
    bucket = 'gpupool_wait_seconds_bucket{cluster="$cluster", le="30.0"}'
    assert str(buckets(metrics.POD_WAIT, le="30.0")) == bucket


def test_a_metric_of_another_name_gives_another_series():
    declared = MetricDeclarations(CollectorRegistry())
    renamed_one = declared.gauge("gpu_pods_in_line", "Pods that wait.", ["pool"])
    assert str(max_by(select(renamed_one), "pool")) == (
        'max by (pool) (gpu_pods_in_line{cluster="$cluster"})'
    )


def test_functions_and_aggregations_keep_what_is_asked_for():
    vector = sum_by(rate(select(metrics.RECONCILES)), "controller")
    assert str(vector) == (
        'sum by (controller) (rate(gpu_reconciles_total{cluster="$cluster"}[$__rate_interval]))'
    )
    of_range = 'increase(gpu_evictions_total{cluster="$cluster"}[$__range])'
    assert str(increase(select(metrics.EVICTIONS))) == of_range
    assert quantile(0.5, metrics.POD_WAIT, "pool") == (
        "histogram_quantile(0.5, sum by (pool, le)"
        ' (rate(gpupool_wait_seconds_bucket{cluster="$cluster"}[$__rate_interval])))'
    )
    assert or_zero(sum_by(vector)) == f"sum({vector}) or vector(0)"


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: select(metrics.PODS_WAITING, node="n"), id="matcher"),
        pytest.param(lambda: max_by(select(metrics.PODS_WAITING), "node"), id="aggregation"),
        pytest.param(
            lambda: sum_by(max_by(select(metrics.POOL_CONDITION), "pool"), "condition"),
            id="aggregation of an aggregation",
        ),
        pytest.param(lambda: quantile(0.5, metrics.POD_WAIT, "node"), id="quantile"),
        pytest.param(lambda: renamed(select(metrics.LEADING), "pool", "p"), id="replacement"),
        pytest.param(lambda: sum_by(combined("a * b", "pool"), "node"), id="combination"),
        pytest.param(
            lambda: board_text(
                Board(
                    uid="u",
                    title="t",
                    description="d",
                    choices=(Choice("node", "Node", select(metrics.PODS_WAITING)),),
                    rows=(),
                )
            ),
            id="choice",
        ),
    ],
)
def test_a_label_that_is_not_there_is_refused(make):
    with pytest.raises(ValueError, match="has no label"):
        make()


def test_a_histogram_by_itself_is_no_series():
    with pytest.raises(TypeError, match="buckets, a count and a sum"):
        select(metrics.POD_WAIT)


def test_an_alert_that_is_not_there_has_no_runbook():
    with pytest.raises(KeyError):
        with_runbook(graph("a", "b"), "GPUFormerAlert")


def test_rows_are_empty_dashboards_too():
    assert '"panels": [' in board_text(
        Board(uid="u", title="t", description="d", rows=(PanelRow("r", ()),))
    )


def test_series_of_others_have_a_reason():
    assert len(FOREIGN_SERIES) == 25
    assert all(item.reason for item in FOREIGN_SERIES.values())
