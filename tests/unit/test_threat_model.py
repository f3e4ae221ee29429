"""Every claim of the threat model is shown by a test that exists."""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.support.source_trees import ROOT, source_of

TEXT = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)))
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
FUNCTION = re.compile(r"^ *(?:async )?def (\w+)\(", re.MULTILINE)
WITHOUT_TESTS = {"Not defended against"}


@cache
def functions_in(path: Path) -> set[str]:
    return set(FUNCTION.findall(source_of(path))) if path.exists() else set()


def test_the_tests_that_are_named_exist():
    assert len(NAMED) > 300
    assert [
        f"{file}::{name}" for file, name in NAMED if name not in functions_in(ROOT / file)
    ] == []


@pytest.mark.parametrize("section", sorted(SECTIONS.keys() - WITHOUT_TESTS))
def test_every_surface_says_who_reaches_it_and_names_its_tests(section: str):
    text = SECTIONS[section]
    assert re.search(r"^\*(Reached|Attacked|Written|Used|Read) by\* ", text, re.MULTILINE)
    assert re.search(r"^Tests?:$", text, re.MULTILINE)
    assert "`tests/" in text


def test_sections_without_tests_are_those_that_can_have_none():
    assert SECTIONS.keys() >= WITHOUT_TESTS
