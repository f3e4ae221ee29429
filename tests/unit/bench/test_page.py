"""docs/performance.md: what was measured is in its table, and what was not stays as it was."""

from pathlib import Path

import pytest

from tests.bench import page, report
from tests.bench.report import Result, at_least, at_most

OLD, NEW = "an older machine", "a newer machine"


def a_binding(case: str = "bind", p99_ms: float = 150.0) -> Result:
    return Result(
        subject="binding", case=case, samples=10, p99_ms=p99_ms, aims=(at_most("p99_ms", 300),)
    )


def a_start(rss_mib: float = 260.0) -> Result:
    return Result(subject="startup", case="a start", rss_mib=rss_mib)


def a_page(*results: Result, machine: str = OLD, before: str = "", notes: str = "") -> str:
    found: dict[str, page.Measured] = {}
    for result in results:
        found.setdefault(result.subject, (machine, []))[1].append(result)
    return page.text_of(found, notes=notes, before=before)


def test_what_misses_its_aim_says_by_how_much() -> None:
    aims = (at_most("ratio", 1.5), at_least("rate_per_s", 1_000), at_most("p99_ms", 5))
    result = Result(subject="s", case="c", ratio=3.0, rate_per_s=900, p99_ms=5, aims=aims)
    assert page.outcome_of(result) == "not met: ratio by 100%; rate /s by 10%"
    assert page.aim_text(result) == "ratio ≤ 1.5, rate /s ≥ 1,000, p99 ms ≤ 5"


def test_what_was_not_measured_is_not_met() -> None:
    result = Result(subject="s", case="c", aims=(at_most("ratio", 1.5),))
    assert page.outcome_of(result) == "not met: ratio was not measured"


def test_an_aim_of_nothing_has_the_figure() -> None:
    result = Result(subject="s", case="c", reads_per_pod=3, aims=(at_most("reads_per_pod", 0),))
    assert page.outcome_of(result) == "not met: API reads 3"


def test_the_page_is_made_of_the_files_and_of_the_notes(tmp_path: Path) -> None:
    report.write("binding", [a_binding()], tmp_path)
    notes, made = tmp_path / "notes.md", tmp_path / "page.md"
    notes.write_text("## Limits\n\nTwo cores.\n", encoding="utf-8")
    page.write(tmp_path, made, notes)
    text = made.read_text(encoding="utf-8")
    assert "| binding | bind | samples 10 · p99 ms 150.00 | p99 ms ≤ 300 | met | A |" in text
    assert text.endswith("## Limits\n\nTwo cores.\n")
    page.write(tmp_path / "no results", made, notes)
    assert made.read_text(encoding="utf-8") == text


def test_a_subject_that_was_not_measured_keeps_its_rows_and_their_machine() -> None:
    before = a_page(a_start(), a_binding())
    after = a_page(a_binding("a slower bind", 400.0), before=before, machine=NEW)
    assert [(row.subject, row.case, row.machine) for row in page.rows_of(after)] == [
        ("binding", "a slower bind", NEW),
        ("startup", "a start", OLD),
    ]
    assert page.rows_of(after)[0].outcome == "not met: p99 ms by 33%"
    assert a_page(a_binding("a slower bind", 400.0), before=after, machine=NEW) == after


def test_only_machines_of_rows_are_named() -> None:
    before = a_page(a_start(), machine=OLD)
    assert OLD not in a_page(a_start(), before=before, machine=NEW)


@pytest.mark.parametrize("subject", page.SUBJECTS)
def test_every_subject_has_a_place(subject: str) -> None:
    text = a_page(Result(subject=subject, case="c", samples=1))
    assert f"* **{subject}**: " in text


def test_the_page_in_docs_is_as_it_would_be_made() -> None:
    """Nobody edited it, and its notes are those of the file of notes."""
    current, notes = (path.read_text(encoding="utf-8") for path in (page.PAGE, page.NOTES))
    assert page.text_of({}, notes=notes, before=current) == current
