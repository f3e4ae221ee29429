"""The committed lists of tests name tests that exist, and no flaky test twice."""

import ast
from collections import Counter
from functools import cache

from tests.support.slow_tests import slow_functions
from tests.support.source_trees import ROOT, tree_of


@cache
def functions_in(file: str) -> frozenset[str]:
    """Return the functions of a module, and the methods of its classes as `Class::method`."""
    found = set()
    for node in tree_of(ROOT / file).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{inner.name}" for inner in node.body if hasattr(inner, "name")}
        elif isinstance(node, ast.Assign) and all(isinstance(to, ast.Name) for to in node.targets):
            # A state machine's `TestCase`.
            found |= {f"{to.id}::runTest" for to in node.targets if isinstance(to, ast.Name)}
    return frozenset(found)


def test_each_slow_test_exists_once():
    slow = slow_functions()
    assert slow == sorted(set(slow))
    assert [
        name
        for name in slow
        if not (ROOT / name.partition("::")[0]).exists()
        or name.partition("::")[2] not in functions_in(name.partition("::")[0])
    ] == []


def test_each_nightly_test_exists_once():
    nightly = (ROOT / "tests/cluster/nightly.txt").read_text(encoding="utf-8").split()
    assert nightly == sorted(set(nightly))
    parts = [name.partition("::") for name in nightly]
    assert [
        f"{file}::{test}"
        for file, _, test in parts
        if not (ROOT / file).exists() or (test and test not in functions_in(file))
    ] == []


def test_a_fixture_of_a_folder_ends_with_the_folder():
    """Without `__init__.py` pytest keeps it until the session ends, beside the tests of other folders."""
    assert [
        str(file.parent.relative_to(ROOT))
        for file in sorted((ROOT / "tests").rglob("conftest.py"))
        if 'scope="package"' in file.read_text(encoding="utf-8")
        and not (file.parent / "__init__.py").exists()
    ] == []


def flaky_again(table: str) -> list[str]:
    """Return the tests that have more than one row, of which one names no mend."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[1:]
    ]
    assert all(len(row) == 4 and row[2] for row in rows), "each row says the cause"
    times = Counter(test for _, test, _, _ in rows)
    return sorted({test for _, test, _, mended_by in rows if not mended_by and times[test] > 1})


def test_no_flaky_test_was_flaky_before():
    table = (ROOT / "tests/flaky.md").read_text(encoding="utf-8").partition("|---|")[2]
    assert flaky_again(table) == [], "mend or remove them first"


def test_a_test_that_is_flaky_after_its_mend_is_so_again():
    mended, unmended = "| 1 | `a` | slow | waits |", "| 2 | `a` | not known | |"
    assert flaky_again(f"\n{mended}\n{unmended}") == ["`a`"]
    assert flaky_again(f"\n{unmended}\n{unmended}") == ["`a`"]
    assert flaky_again(f"\n{mended}\n{mended}") == []
    assert flaky_again(f"\n{unmended}\n| 3 | `b` | not known | |") == []
