"""A gauge of many label sets is written as the library writes one of its own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from telemetry.label_sets import EncodableSamples, LabelSets

LABELS = ("uuid", "product")


def a_gauge(**sets: tuple[str, ...]) -> tuple[LabelSets, CollectorRegistry]:
    registry = CollectorRegistry()
    gauge = LabelSets("gpu_things", "What is known.", LABELS, registry=registry)
    for key, values in sets.items():
        gauge.put(key, values)
    return gauge, registry


def lines_of(registry: CollectorRegistry) -> str:
    (family,) = registry.collect()
    samples: object = family.samples
    assert isinstance(samples, EncodableSamples)
    return "".join(samples.lines())


def test_a_set_replaces_the_one_that_its_key_had():
    gauge, registry = a_gauge(a=("GPU-1", ""), b=("GPU-2", "H100"))
    gauge.put("a", ("GPU-1", "H200"))
    assert registry.get_sample_value("gpu_things", {"uuid": "GPU-1", "product": "H200"}) == 1
    gauge.discard("a")
    gauge.discard("never there")
    assert [
        sample.labels["uuid"] for family in registry.collect() for sample in family.samples
    ] == ["GPU-2"]
    gauge.clear()
    assert lines_of(registry) == ""


def test_what_was_collected_stays_as_it_was():
    gauge, registry = a_gauge(a=("GPU-1", "H100"))
    (family,) = registry.collect()
    gauge.clear()
    assert len(family.samples) == 1


@given(st.lists(st.tuples(st.text(), st.text()), unique=True, max_size=5))
def test_the_lines_say_what_those_of_the_library_say(values: list[tuple[str, str]]):
    _, registry = a_gauge(**{str(number): item for number, item in enumerate(values)})
    others = CollectorRegistry()
    theirs = Gauge("gpu_things", "What is known.", LABELS, registry=others)
    for value in values:
        theirs.labels(*value).set(1)
    head = "# HELP gpu_things What is known.\n# TYPE gpu_things gauge\n"
    text = head + lines_of(registry)
    assert samples_in(text) == samples_in(generate_latest(others).decode())
    assert generate_latest(registry) == generate_latest(others)


def samples_in(text: str) -> list[tuple[str, dict[str, str], float]]:
    return [
        (sample.name, sample.labels, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]


@pytest.mark.parametrize("count", [0, 1, 2_000, 4_001])
def test_every_set_has_a_line(count: int):
    gauge, registry = a_gauge()
    for number in range(count):
        gauge.put(f"{number}", (f"GPU-{number}", "H100"))
    lines = lines_of(registry).splitlines()
    assert len(set(lines)) == len(lines) == count
