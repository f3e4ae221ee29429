"""Every subject of `make bench`, as small as can be: it runs, it finds what it is about, and it is told."""

import asyncio

import pytest

from tests.bench import page, report
from tests.bench.__main__ import SUBJECTS, measure
from tests.bench.report import Result, at_least, at_most
from tests.bench.sizes import QUICK

PATIENCE_S = 120
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
    "agent": ("p50_ms", "p99_ms", "rss_mib", "growth_mib", "cpu_s"),
}
EXACT = {"binding": {"writes_per_pod": 1, "reads_per_pod": 0}, "churn": {"left_over": 0}}
"""Figures that do not depend on the machine."""


@pytest.mark.parametrize("subject", SUBJECTS)
async def test_a_subject_finds_its_figures(subject: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        results = await measure(subject, QUICK)
    aimed = [one for one in results if one.aims]
    assert aimed, "every subject has something to reach"
    for figure in FIGURES[subject]:
        assert any(getattr(one, figure) is not None for one in aimed), figure
    assert all(one.subject == subject for one in results)
    assert all(page.verdict(one) for one in aimed)
    for figure, expected in EXACT.get(subject, {}).items():
        found = [getattr(one, figure) for one in aimed]
        assert [one for one in found if one is not None] == [expected]


def test_what_misses_its_aim_says_by_how_much() -> None:
    aims = (at_most("ratio", 1.5), at_least("rate_per_s", 1_000), at_most("p99_ms", 5))
    result = Result(subject="s", case="c", ratio=3.0, rate_per_s=900, p99_ms=5, aims=aims)
    assert page.verdict(result) == "not met: ratio by 100%; rate /s by 10%"
    assert page.aim_text(result) == "ratio ≤ 1.5, rate /s ≥ 1,000, p99 ms ≤ 5"


def test_what_was_not_measured_is_not_met() -> None:
    result = Result(subject="s", case="c", aims=(at_most("ratio", 1.5),))
    assert page.verdict(result) == "not met: ratio was not measured"


def test_an_aim_of_nothing_tells_what_was_found() -> None:
    result = Result(subject="s", case="c", left_over=3, aims=(at_most("left_over", 0),))
    assert page.verdict(result) == "not met: left over 3"


def test_the_page_is_made_of_the_files_and_of_the_notes(tmp_path) -> None:
    met = Result(subject="churn", case="a day", growth_mib=1.25, aims=(at_most("growth_mib", 5),))
    report.write("churn", [met], tmp_path)
    notes = tmp_path / "notes.md"
    notes.write_text("## Limits\n\nTwo cores.\n", encoding="utf-8")
    text = page.text_of(tmp_path, notes)
    assert "| a day | +1.2 | growth MiB ≤ 5 | met |" in text
    assert text.endswith("## Limits\n\nTwo cores.\n")
    assert "## Bind" not in text
