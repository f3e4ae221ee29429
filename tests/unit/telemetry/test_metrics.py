"""Metrics: named and explained once, with labels that stay few."""

import itertools
import re

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

from api.version import REVISION, VERSION
from telemetry import (
    agent_metrics,
    console_metrics,
    kernel_cache_metrics,
    metrics,
    node_software_metrics,
    usage_metrics,
)
from telemetry.metric_declaration import DeclaredMetric, labels_of

METRICS = {
    name: metric
    for home in (
        metrics,
        agent_metrics,
        console_metrics,
        kernel_cache_metrics,
        node_software_metrics,
        usage_metrics,
    )
    for name, metric in vars(home).items()
    if isinstance(metric, DeclaredMetric)
}
FAMILIES = [family for metric in METRICS.values() for family in metric.describe()]
OF_USAGE = [
    variable for variable in vars(usage_metrics).values() if isinstance(variable, DeclaredMetric)
]
LABELS = {
    label
    for metric in METRICS.values()
    if metric is not metrics.DEVICE_INFO and metric not in OF_USAGE
    for label in labels_of(metric)
}


def families_of(collector: type[ProcessCollector | PlatformCollector]) -> set[str]:
    return {family.name for family in collector(registry=CollectorRegistry()).collect()}


def test_every_metric_is_in_our_registry_and_nothing_else_is():
    assert len(FAMILIES) == len(METRICS) > 20
    registries = (
        metrics.REGISTRY,
        node_software_metrics.OPERATOR_REGISTRY,
        usage_metrics.USAGE_REGISTRY,
    )
    registered = {family.name for registry in registries for family in registry.collect()}
    of_the_process = families_of(ProcessCollector) | families_of(PlatformCollector)
    assert {"process_cpu_seconds", "process_resident_memory_bytes", "python_info"} < of_the_process
    assert registered == {family.name for family in FAMILIES} | of_the_process | {"gpu_build"}


def test_the_page_names_version_and_revision():
    sample = metrics.REGISTRY.get_sample_value(
        "gpu_build_info", {"version": VERSION, "revision": REVISION}
    )
    assert sample == 1


def test_no_sample_says_when_a_counter_was_created():
    samples = [sample.name for family in metrics.REGISTRY.collect() for sample in family.samples]
    assert samples
    assert [name for name in samples if name.endswith("_created")] == []


def test_names_are_unique_and_say_whose_they_are():
    names = [family.name for family in FAMILIES]
    assert len(set(names)) == len(names)
    assert [name for name in names if not re.fullmatch("gpu(pool)?_[a-z_]+", name)] == []


def test_every_metric_has_a_help_that_is_a_sentence():
    unhelpful = [
        family.name
        for family in FAMILIES
        if len(family.documentation) < 15 or not family.documentation.endswith(".")
    ]
    assert unhelpful == []


def test_durations_are_in_seconds():
    histograms = [family.name for family in FAMILIES if family.type == "histogram"]
    assert histograms
    assert [name for name in histograms if not name.endswith("_seconds")] == []


def test_durations_are_told_apart_from_half_a_millisecond_to_five_seconds():
    longer = (
        metrics.POD_WAIT,
        metrics.POD_RESERVED_WAIT,
        metrics.NODE_CLAIM_PROVISION,
        metrics.SCALE_PHASE,
        agent_metrics.CACHE_PULL_DURATION,
        agent_metrics.CACHE_EXTRACTION_DURATION,
    )
    bounds = [
        metric._upper_bounds
        for metric in METRICS.values()
        if isinstance(metric, Histogram) and metric not in longer
    ]
    assert len(bounds) > 3
    for bound in bounds:
        assert bound[0] <= 0.0005
        assert bound[-2] >= 5.0
        steps = [high / low for low, high in itertools.pairwise(bound[:-1])]
        assert max(steps) <= 2.5


def test_a_wait_is_told_from_a_tenth_of_a_second_to_a_day():
    for metric in (metrics.POD_WAIT, metrics.POD_RESERVED_WAIT):
        bounds = metric._upper_bounds
        assert (bounds[0], bounds[-2]) == (0.1, 24 * 3600)


def test_a_node_is_told_from_a_second_to_an_hour():
    for metric in (metrics.NODE_CLAIM_PROVISION, metrics.SCALE_PHASE):
        assert (metric._upper_bounds[0], metric._upper_bounds[-2]) == (1, 3600)


def test_the_pull_of_a_cache_is_told_from_a_tenth_of_a_second_to_ten_minutes():
    """G13."""
    for metric in (agent_metrics.CACHE_PULL_DURATION, agent_metrics.CACHE_EXTRACTION_DURATION):
        assert (metric._upper_bounds[0], metric._upper_bounds[-2]) == (0.1, 600)


def test_no_label_names_what_there_are_many_of():
    """Nodes are bounded by the cluster, and their series go with them; nothing that users make is."""
    assert LABELS.isdisjoint({"pod", "uid", "device", "namespace", "name", "user"})
    assert {"pool", "resource", "outcome", "reason"} <= LABELS


def test_the_open_page_names_devices_only_once_and_no_namespace_or_pod():
    labels = {label for item in metrics.REGISTRY.collect() for label in labels_named(item.name)}
    assert labels.isdisjoint({"namespace", "pod", "uid", "name", "user"})
    assert labels_of(metrics.DEVICE_INFO) == ("uuid", "device", "node", "pool", "product")


def labels_named(family: str) -> tuple[str, ...]:
    found = [item for item in METRICS.values() if next(iter(item.describe())).name == family]
    return labels_of(found[0]) if found else ()


def test_the_declared_labels_are_those_of_the_metric():
    for metric in METRICS.values():
        if isinstance(metric, Counter | Gauge | Histogram):
            assert labels_of(metric) == metric._labelnames


def test_the_exposition_is_well_formed():
    lines = generate_latest(metrics.REGISTRY).decode().splitlines()
    kinds = [line.split()[2] for line in lines if line.startswith("# TYPE ")]
    helps = [line.split()[2] for line in lines if line.startswith("# HELP ")]
    assert kinds == helps
    assert len(set(kinds)) == len(kinds)
