"""Every claim of the threat model is shown by a test that exists."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", TEXT)))
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
WITHOUT_TESTS = {"Not defended against"}


@cache
def functions_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


def test_the_tests_that_are_named_exist():
    assert [
        f"{file}::{name}"
        for file, name in NAMED
        if not (ROOT / file).exists() or name not in functions_in(ROOT / file)
    ] == []


@pytest.mark.parametrize("section", sorted(SECTIONS.keys() - WITHOUT_TESTS))
def test_every_surface_says_who_reaches_it_and_names_its_tests(section: str):
    text = SECTIONS[section]
    assert re.search(r"^\*(Reached|Attacked|Written|Used|Read) by\* ", text, re.MULTILINE)
    assert re.search(r"^Tests?:$", text, re.MULTILINE)
    assert "`tests/" in text


def test_sections_without_tests_are_those_that_can_have_none():
    assert SECTIONS.keys() >= WITHOUT_TESTS
