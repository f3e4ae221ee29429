"""Each fault of others that a page lists is named by a test, and the page names one of these.

* docs/autoscaling.md: "Weak point 7: …"
* docs/kernel-caches.md: "W2", "C5" or "G11", in a test's name, docstring or parameters
"""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

from tests.support.source_trees import ROOT, nodes_of, source_of

PAGE = ROOT / "docs" / "autoscaling.md"
CACHES_PAGE = ROOT / "docs" / "kernel-caches.md"
MENTION = re.compile(r"(?<![a-z])weak[ _]points?[ _](\d+(?:(?:, | and )\d+)*)", re.IGNORECASE)
ROW = re.compile(r"^\| (\d+) \| .+ \| `(tests/[\w/]+\.py)::(\w+)` \|$", re.MULTILINE)
COUNT = 18
ROWS = [(int(number), f"{file}::{name}") for number, file, name in ROW.findall(PAGE.read_text())]
CACHE_FAULTS = (
    *(f"W{number}" for number in range(1, 7)),
    *(f"C{number}" for number in range(1, 11)),
    *(f"G{number}" for number in range(1, 17)),
)
"""Of webhooks, of the CSI driver, and gaps that GKM's documents name or that its other code has."""
LABEL = re.compile(r"(?<![A-Za-z0-9])([WCG]\d+)(?![A-Za-z0-9])", re.IGNORECASE)
CACHE_ROW = re.compile(r"^\| ([WCG]\d+) \| .+ \| `(tests/[\w/]+\.py)::(\w+)` \|$", re.MULTILINE)
CACHE_ROWS = [
    (label, f"{file}::{name}") for label, file, name in CACHE_ROW.findall(CACHES_PAGE.read_text())
]


@cache
def labels_of(test: str) -> set[str]:
    """Return the faults that a test names; none where there is no such test."""
    file, _, name = test.partition("::")
    for node in nodes_of(ROOT / file) if (ROOT / file).exists() else ():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            strings = (
                item.value
                for decorator in node.decorator_list
                for item in ast.walk(decorator)
                if isinstance(item, ast.Constant) and isinstance(item.value, str)
            )
            said = [node.name.replace("_", " "), ast.get_docstring(node) or "", *strings]
            return {label.upper() for text in said for label in LABEL.findall(text)}
    return set()


@cache
def named_tests() -> dict[int, set[str]]:
    """Return the tests whose name or docstring mentions a weak point: number -> `path::name`."""
    found: dict[int, set[str]] = defaultdict(set)
    for path in sorted(ROOT.glob("tests/**/test_*.py")):
        if not MENTION.search(source_of(path)) or path == Path(__file__):
            continue
        for node in nodes_of(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                said = f"{node.name} {ast.get_docstring(node) or ''}"
                for match in MENTION.findall(said):
                    for number in re.findall(r"\d+", match):
                        found[int(number)].add(f"{path.relative_to(ROOT).as_posix()}::{node.name}")
    return found


def test_every_weak_point_is_named_by_a_test():
    assert [number for number in range(1, COUNT + 1) if not named_tests()[number]] == []


def test_the_page_has_each_weak_point_with_one_of_its_tests():
    assert [number for number, _ in ROWS] == list(range(1, COUNT + 1))
    strays = [f"{number}: {name}" for number, name in ROWS if name not in named_tests()[number]]
    assert strays == []


def test_no_test_names_a_weak_point_that_is_not_listed():
    assert {number for number in named_tests() if not 1 <= number <= COUNT} == set()


def test_the_page_about_caches_has_each_fault_once():
    assert [label for label, _ in CACHE_ROWS] == list(CACHE_FAULTS)


def test_every_fault_of_caches_is_named_by_the_test_that_the_page_names():
    assert [f"{label}: {test}" for label, test in CACHE_ROWS if label not in labels_of(test)] == []


def test_a_test_that_is_not_there_names_nothing():
    assert labels_of("tests/unit/test_weak_points.py::test_no_such_test") == set()
    assert labels_of("tests/unit/no_such_file.py::test_any") == set()
