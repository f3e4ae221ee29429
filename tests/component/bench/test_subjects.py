"""Subjects of `make bench`, as small as can be: each runs, checks what it measures, and finds its figures."""

import asyncio
import math
from collections import Counter
from dataclasses import fields
from typing import Any

import pytest

from tests.bench import page, report
from tests.bench.__main__ import SUBJECTS, measure
from tests.bench.report import Result, at_least, at_most
from tests.bench.sizes import QUICK

WITHIN_S = 120
FIGURES = {
    "extender": ("ratio", "p99_ms"),
    "scaling": ("ratio",),
    "admission": ("ratio", "rate_per_s", "p99_ms"),
    "worst": ("stall_cpu_ms", "peak_mib"),
    "binding": ("p50_ms", "writes_per_pod", "reads_per_pod"),
    "startup": ("p50_ms", "rss_mib"),
    "stall": ("stall_ms", "stall_cpu_ms"),
    "churn": ("growth_mib", "left_over"),
    "inventory": ("cpu_s", "writes", "ratio"),
    "pool_reconcile": ("cpu_s", "writes"),
    "placement": ("p50_ms", "p99_ms", "rss_mib", "cpu_s"),
    "operands": ("p50_ms", "p99_ms", "writes"),
    "agent": ("p50_ms", "p99_ms", "rss_mib", "growth_mib", "cpu_s"),
}
CHECKS = {
    "extender": {"filter", "filter, none fits", "prioritize"},
    "scaling": {"filter", "prioritize"},
    "admission": {"mutate and validate", "denial"},
    "worst": {"decision"},
    "binding": {"capacity", "mutate and validate", "binding"},
    "startup": {"capacity"},
    "stall": {"capacity", "events"},
    "churn": {"capacity", "mutate and validate", "binding", "no unit is left with an owner"},
    "inventory": {"writes of the start"},
    "pool_reconcile": {"writes of the start", "writes of a change"},
    "placement": {
        "answer about a pod",
        "set of devices",
        "plan of devices",
        "devices of a SameDevice pod",
    },
    "operands": {
        "rendered operands",
        "steady state of operands",
        "switch of an operand",
        "page of devices",
    },
    "agent": {"preferred allocation", "allocation", "refusal", "fault"},
}
EXACT = {
    "binding": {"writes_per_pod": {1}, "reads_per_pod": {0}},
    "churn": {"left_over": {0}},
    "pool_reconcile": {"writes": {0, 1}},
}
"""Figures of what has an aim that do not depend on the machine."""
MAY_BE_ZERO = {"growth_mib", "allocation_sd", "left_over", "reads_per_pod", "writes", "cpu_s"}
IN_EVERY_RUN = {"binding"}
"""The others take up to a minute each."""


def every_subject() -> list[Any]:
    return [
        pytest.param(one, marks=[] if one in IN_EVERY_RUN else [pytest.mark.long])
        for one in SUBJECTS
    ]


def figures_of(result: Result) -> dict[str, float]:
    found = {one.name: getattr(result, one.name) for one in fields(result)}
    return {name: value for name, value in found.items() if isinstance(value, int | float)}


@pytest.mark.parametrize("subject", every_subject())
async def test_a_subject_checks_what_it_measures_and_finds_its_figures(subject: str) -> None:
    before = Counter(report.CHECKS)
    async with asyncio.timeout(WITHIN_S):
        results = await measure(subject, QUICK)
    assert set(report.CHECKS - before) == CHECKS[subject]
    assert {one.subject for one in results} == {subject}
    found = {one.case: figures_of(one) for one in results}
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
    aimed = [one for one in results if one.aims]
    for figure in FIGURES[subject]:
        assert any(figure in found[one.case] for one in aimed), figure
    assert [one for one in aimed if "was not measured" in page.outcome_of(one)] == []
    for figure, expected in EXACT.get(subject, {}).items():
        assert {found[one.case][figure] for one in aimed if figure in found[one.case]} <= expected


def test_what_misses_its_aim_says_by_how_much() -> None:
    aims = (at_most("ratio", 1.5), at_least("rate_per_s", 1_000), at_most("p99_ms", 5))
    result = Result(subject="s", case="c", ratio=3.0, rate_per_s=900, p99_ms=5, aims=aims)
    assert page.outcome_of(result) == "not met: ratio by 100%; rate /s by 10%"
    assert page.aim_text(result) == "ratio ≤ 1.5, rate /s ≥ 1,000, p99 ms ≤ 5"


def test_what_was_not_measured_is_not_met() -> None:
    result = Result(subject="s", case="c", aims=(at_most("ratio", 1.5),))
    assert page.outcome_of(result) == "not met: ratio was not measured"


def test_an_aim_of_nothing_tells_what_was_found() -> None:
    result = Result(subject="s", case="c", left_over=3, aims=(at_most("left_over", 0),))
    assert page.outcome_of(result) == "not met: left over 3"


def test_the_page_is_made_of_the_files_and_of_the_notes(tmp_path) -> None:
    met = Result(subject="churn", case="a day", growth_mib=1.25, aims=(at_most("growth_mib", 5),))
    report.write("churn", [met], tmp_path)
    notes = tmp_path / "notes.md"
    notes.write_text("## Limits\n\nTwo cores.\n", encoding="utf-8")
    text = page.text_of(tmp_path, notes)
    assert "| a day | +1.2 | growth MiB ≤ 5 | met |" in text
    assert text.endswith("## Limits\n\nTwo cores.\n")
    assert "## Bind" not in text
