"""docs/performance.md: what was measured is shown, and what was not stays as it was."""

import pytest

from tests.bench import page, report
from tests.bench.report import Result, at_least, at_most

OLD, NEW = "an older machine", "a newer machine"
TITLE = page.SECTIONS["autoscaling"].title
FIFTY, HUNDRED = page.SECTIONS["autoscaling"].beside.values()


def a_plan(case: str = "a plan", p99_ms: float = 150.0) -> Result:
    aims = (at_most("p99_ms", 300),)
    return Result(subject="autoscaling", case=case, samples=10, p99_ms=p99_ms, aims=aims)


def a_binding(pods: int, p99_ms: float = 1_700.0) -> Result:
    return Result(
        subject=f"karpenter_{pods}_pods", case="bound", samples=pods, p99_ms=p99_ms, node_claims=7
    )


def a_page(*results: Result, machine: str = OLD, before: str = "", notes: str = "") -> str:
    found: dict[str, page.Measured] = {}
    for one in results:
        found.setdefault(one.subject, (machine, []))[1].append(one)
    return page.text_of(found, notes=notes, before=before)


def section_of(text: str, title: str = TITLE) -> str:
    _, _, rest = text.partition(f"\n## {title}\n")
    return rest.partition("\n## ")[0]


def rows_of(text: str) -> list[str]:
    return [line for line in section_of(text).splitlines() if line.startswith("|")][2:]


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
    notes, made = tmp_path / "notes.md", tmp_path / "page.md"
    notes.write_text("## Limits\n\nTwo cores.\n", encoding="utf-8")
    page.write(tmp_path, made, notes)
    text = made.read_text(encoding="utf-8")
    assert "| a day | +1.2 | growth MiB ≤ 5 | met |" in text
    assert text.endswith("## Limits\n\nTwo cores.\n")
    assert "## Bind" not in text
    page.write(tmp_path / "no results", made, notes)
    assert made.read_text(encoding="utf-8") == text


def test_a_section_that_was_not_measured_stays_as_it_is() -> None:
    bind = Result(subject="binding", case="one pod", p50_ms=2.0)
    written_by_hand = "\n\nAnother table:\n\n| a | b |\n|---|---|\n| 1 | 2 |"
    before = a_page(bind, a_plan()).replace("| one pod | 2.00 |", f"| one pod |{written_by_hand}")
    after = a_page(a_plan("a dearer plan"), before=before, machine=NEW)
    title = page.SECTIONS["binding"].title
    assert section_of(after, title) == section_of(before, title) != ""
    assert [row.split(" | ")[0] for row in rows_of(after)] == ["| a dearer plan"]
    assert after.index(f"## {title}") < after.index(f"## {TITLE}"), "the order of SECTIONS"


def test_subjects_of_one_table_stand_below_each_other_under_the_beginning_of_each() -> None:
    text = a_page(a_binding(100), a_plan(), a_binding(50))
    assert rows_of(text) == [
        "| a plan | 10 | 150.00 |  | p99 ms ≤ 300 | met |",
        f"| {FIFTY}bound | 50 | 1,700.00 | 7 |  |  |",
        f"| {HUNDRED}bound | 100 | 1,700.00 | 7 |  |  |",
    ]


@pytest.mark.parametrize(
    ("measured", "first"),
    [
        pytest.param(a_plan("a dearer plan", 400.0), "a dearer plan", id="of the section"),
        pytest.param(a_binding(50, 4_400.0), "a plan", id="beside it"),
    ],
)
def test_rows_of_a_subject_that_was_not_measured_stay_in_the_table(
    measured: Result, first: str
) -> None:
    before = a_page(a_plan(), a_binding(50), a_binding(100))
    after = a_page(measured, before=before, machine=NEW)
    cases = [row.removeprefix("| ").partition(" | ")[0] for row in rows_of(after)]
    assert cases == [first, f"{FIFTY}bound", f"{HUNDRED}bound"]
    assert len(set(rows_of(after)) - set(rows_of(before))) == 1, "the one that was measured"
    assert a_page(measured, before=after, machine=NEW) == after, "made twice it is the same"


def test_a_kept_row_keeps_a_figure_that_has_no_column_any_more() -> None:
    before = a_page(a_plan(), a_binding(50)).replace("NodeClaims", "Machines")
    after = a_page(a_plan(), before=before)
    assert "Machines" in section_of(after)
    assert rows_of(after)[1] == rows_of(before)[1]


def test_a_section_names_the_machines_of_its_rows() -> None:
    before = a_page(a_plan(), a_binding(50))
    assert f"\nMachine: {OLD}.\n" in section_of(before)
    mixed = section_of(a_page(a_plan(), before=before, machine=NEW))
    assert f"\nMachine: {NEW}.\nMachine: {OLD}.\n" in mixed
    anew = section_of(a_page(a_plan(), a_binding(50), before=before, machine=NEW))
    assert f"Machine: {NEW}." in anew
    assert OLD not in anew


def test_the_page_in_docs_is_as_it_would_be_made() -> None:
    """Nobody edited it, and its notes are those of the file of notes."""
    shown, notes = (one.read_text(encoding="utf-8") for one in (page.PAGE, page.NOTES))
    assert page.text_of({}, notes=notes, before=shown) == shown
