"""Subjects of `make bench`, as small as can be: each runs, checks what it measures, and finds its figures."""

import asyncio
import math
from collections import Counter
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest

from tests.bench import page, report
from tests.bench.__main__ import SUBJECTS, measure
from tests.bench.sizes import QUICK

if TYPE_CHECKING:
    from tests.bench.report import Result

WITHIN_S = 120
FIGURES = {
    "extender": ("ratio", "p99_ms"),
    "admission": ("ratio", "rate_per_s", "p99_ms"),
    "binding": ("p50_ms", "writes_per_pod", "reads_per_pod"),
    "startup": ("p50_ms", "rss_mib"),
    "stall": ("stall_ms", "stall_cpu_ms"),
    "placement": ("p50_ms", "p99_ms", "rss_mib", "cpu_s"),
    "agent": ("p50_ms", "p99_ms", "rss_mib", "growth_mib", "cpu_s"),
    "console": ("p50_ms", "p99_ms", "core_pct"),
}
CHECKS = {
    "extender": {"filter", "filter, none fits", "prioritize"},
    "admission": {"mutate and validate", "denial", "template"},
    "binding": {"capacity", "mutate and validate", "binding"},
    "startup": {"capacity"},
    "stall": {"capacity", "events"},
    "placement": {
        "set of devices",
        "plan of devices",
        "devices of a SameDevice pod",
    },
    "agent": {"preferred allocation", "allocation", "refusal", "fault"},
    "console": {"rows of the start", "snapshot", "page after changes", "streams", "answers"},
}
EXACT = {
    "binding": {"writes_per_pod": {1}, "reads_per_pod": {0}},
}
"""Figures of what has an aim that do not depend on the machine."""
MAY_BE_ZERO = {
    "growth_mib",
    "allocation_sd",
    "reads_per_pod",
    "cpu_s",
    "core_pct",
}
IN_EVERY_RUN = {"binding"}
"""The others take up to a minute each."""


def every_subject() -> list[Any]:
    return [
        pytest.param(item, marks=[] if item in IN_EVERY_RUN else [pytest.mark.long])
        for item in SUBJECTS
    ]


def figures_of(result: "Result") -> dict[str, float]:
    found = {field.name: getattr(result, field.name) for field in fields(result)}
    return {name: value for name, value in found.items() if isinstance(value, int | float)}


@pytest.mark.parametrize("subject", every_subject())
async def test_a_subject_checks_what_it_measures_and_finds_its_figures(subject: str) -> None:
    before = Counter(report.CHECKS)
    async with asyncio.timeout(WITHIN_S):
        results = await measure(subject, QUICK)
    assert set(report.CHECKS - before) == CHECKS[subject]
    assert {result.subject for result in results} == {subject}
    found = {result.case: figures_of(result) for result in results}
    assert len(found) == len(results), "a case is there twice"
    odd = {
        (case, name): value
        for case, figures in found.items()
        for name, value in figures.items()
        if not math.isfinite(value)
        or (name != "growth_mib" and value < 0)
        or (name not in MAY_BE_ZERO and value == 0)
    }
    assert odd == {}
    aimed = [result for result in results if result.aims]
    for figure in FIGURES[subject]:
        assert any(figure in found[item.case] for item in aimed), figure
    assert [item for item in aimed if "was not measured" in page.outcome_of(item)] == []
    for figure, expected in EXACT.get(subject, {}).items():
        assert {
            found[item.case][figure] for item in aimed if figure in found[item.case]
        } <= expected
