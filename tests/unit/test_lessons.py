"""docs/design/lessons.md and the tests that name its lessons agree; `make golden` renews the lists of tests."""

import os
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "design" / "lessons.md"
ENTRY = re.compile(r"^(\d+)\. (.*?)(?:\n   Tests: (.*))?$", re.MULTILINE)
MENTION = re.compile(r"\blessons? (\d+(?:(?:, | and )\d+)*)", re.IGNORECASE)
OUTSIDE = re.compile(r"\b(?:defect|trap)s? \d", re.IGNORECASE)
WITHOUT_TESTS = {37}
"""The environment of kube-scheduler is the administrator's; docs/operations.md says so."""


def texts() -> dict[str, str]:
    """Return every file that may name a lesson: file -> text."""
    found = [*ROOT.glob("tests/**/*.py"), *ROOT.glob("docs/**/*.md"), ROOT / "README.md"]
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(found)
        if path not in {PAGE, Path(__file__)}
    }


def files_by_lesson() -> dict[int, list[str]]:
    found: dict[int, list[str]] = defaultdict(list)
    for file, text in texts().items():
        named = {int(item) for match in MENTION.findall(text) for item in re.findall(r"\d+", match)}
        for number in named:
            found[number].append(file)
    return found


def with_tests(page: str) -> str:
    """Return the page with the present list of tests behind each lesson."""
    found = files_by_lesson()

    def entry(match: re.Match[str]) -> str:
        files = [file for file in found[int(match[1])] if file.startswith("tests/")]
        current = ", ".join(f"`{file}`" for file in files)
        return f"{match[1]}. {match[2]}" + (f"\n   Tests: {current}" if files else "")

    return ENTRY.sub(entry, page)


def test_lessons_are_numbered_in_order_and_each_has_a_test():
    page = PAGE.read_text(encoding="utf-8")
    expected = with_tests(page)
    if os.environ.get("UPDATE_GOLDEN"):
        PAGE.write_text(expected, encoding="utf-8")
        page = expected
    entries = ENTRY.findall(page)
    assert [int(number) for number, _, _ in entries] == list(range(1, len(entries) + 1))
    assert {int(number) for number, _, tests in entries if not tests} == WITHOUT_TESTS
    assert page == expected, "`make golden` renews the lists of tests"


def test_every_lesson_that_is_named_is_in_the_list():
    numbers = {int(number) for number, _, _ in ENTRY.findall(PAGE.read_text(encoding="utf-8"))}
    strays = {number: files for number, files in files_by_lesson().items() if number not in numbers}
    assert strays == {}


def test_no_number_refers_to_a_list_outside_the_repository():
    assert [file for file, text in texts().items() if OUTSIDE.search(text)] == []
