"""Every file, module, class and function that documents and docstrings name in backticks exists."""

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.source_trees import (
    PACKAGES,
    ROOT,
    files_of,
    name_of,
    nodes_of,
    source_of,
    tree_of,
)

PRODUCT = tuple(sorted((*PACKAGES, "tests")))
ROOTS = {
    "packaging": ROOT / "packaging",
    "chart": ROOT / "packaging" / "chart",
    "image": ROOT / "packaging" / "image",
}
"""Where names begin that are not those of a folder with an `__init__.py`."""
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
QUOTED = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"[\w.-]+(?:/[\w.-]+)*\.(?:py|md|sh|toml|proto|lock)")
DOTTED = re.compile(r"[a-z_]+(?:\.\w+)+")
SETTINGS = ROOT / "server" / "settings.py"
MADE = ("build/", "redesign/")
"""What a build makes is named, and is not there."""


class Name(NamedTuple):
    """A name in backticks, and where it is."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: `{self.text}`"


@cache
def words_of_the_product() -> frozenset[str]:
    """Return the strings of the product: controllers, tasks and loggers have names with a dot too."""
    return frozenset(
        node.value
        for path in files_of(*PACKAGES, "packaging")
        for node in nodes_of(path)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value
    )


def names_in(path: Path) -> Iterator[Name]:
    file = name_of(path)
    if path.suffix == ".md":
        texts = [(1, source_of(path))]
    else:
        texts = [
            (node.value.lineno, node.value.value)
            for node in nodes_of(path)
            if isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ]
    for first, text in texts:
        for number, line in enumerate(text.splitlines(), first):
            for match in QUOTED.finditer(line):
                yield Name(file, number, match[1])


def name_exists(text: str) -> bool:
    """Say whether it is there; what is no name of a file or of a module of ours is."""
    text = text.removesuffix("()")
    file, _, function = text.partition("::")
    if FILE.fullmatch(file):
        return is_file(file, function)
    if not DOTTED.fullmatch(text):
        return True
    first, *others = text.split(".")
    start = ROOTS.get(first, ROOT / first if first in PRODUCT else None)
    if start is None or text in words_of_the_product() or others[-1] == "io":
        return True
    return is_below(start, others) or is_setting(others)


def is_setting(parts: list[str]) -> bool:
    """`inventory.node_gone_s` is a setting, though `inventory` is a package too."""
    return len(parts) == 1 and member(tree_of(SETTINGS), parts[0]) is not None


def is_file(file: str, function: str) -> bool:
    first, _, remaining = file.partition("/")
    if not remaining:
        return True  # of whatever folder the text is about
    if file.startswith(MADE) or not (ROOT / first).is_dir():
        return True
    path = ROOT / file
    return path.exists() and (not function or bool(member(tree_of(path), function)))


def is_below(folder: Path, parts: list[str]) -> bool:
    """Say whether the parts lead to a module, or to what a module or a class defines."""
    for number, part in enumerate(parts):
        if (folder / part).is_dir():
            folder /= part
            continue
        module = folder / f"{part}.py"
        home = module if module.exists() else folder / "__init__.py"
        remaining = parts[number + (home is module) :]
        return home.exists() and defines(tree_of(home), remaining)
    return True


def defines(scope: ast.AST, parts: list[str]) -> bool:
    if not parts:
        return True
    found = member(scope, parts[0])
    if found is None:
        return False
    # Of an instance nothing more is known than that it is there.
    return not isinstance(found, ast.Module | ast.ClassDef) or defines(found, parts[1:])


def member(scope: ast.AST, name: str) -> ast.AST | None:
    """Return what the module or class defines under the name, imports and attributes included."""
    return members(scope).get(name)


@cache
def members(scope: ast.AST) -> dict[str, ast.AST]:
    """Return the first node of each name, in the order of `ast.walk`."""
    found: dict[str, ast.AST] = {}
    for node in ast.walk(scope):
        match node:
            case (
                ast.ClassDef(name=name)
                | ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
            ):
                found.setdefault(name, node)
            case ast.Name(id=name, ctx=ast.Store()):
                found.setdefault(name, node)
            case ast.Attribute(attr=name, value=ast.Name(id="self"), ctx=ast.Store()):
                found.setdefault(name, node)
            case ast.alias():
                found.setdefault(node.name, node)
                found.setdefault(node.asname or node.name, node)
            case _:
                continue
    return found


def unknown_names_in(paths: Iterable[Path]) -> str:
    """Return the names of what does not exist, one a line with its place."""
    names = (name for path in paths for name in names_in(path))
    return "\n".join(str(name) for name in names if not name_exists(name.text))


def test_what_documents_name_exists():
    assert len(DOCUMENTS) > 30
    assert unknown_names_in(DOCUMENTS) == ""


def test_what_docstrings_name_exists():
    assert unknown_names_in(files_of(*PRODUCT, "packaging")) == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tests/unit/test_docs.py::name_exists", True),
        ("tests/unit/test_docs.py::is_not_there", False),
        ("tests/unit/no_such_file.py", False),
        ("docs/no-such-document.md", False),
        ("pool.model", True),
        ("pool.model.PodFacts", True),
        ("pool.model.PodFacts.no_such_field", False),
        ("pool.no_such_module", False),
        ("tests.unit.test_docs", True),
        ("build/bench/churn.json", True),
        ("spec.allocation.mode", True),
        ("pool.gpu.deckhouse.io", True),
    ],
)
def test_a_name_is_looked_up(text: str, expected: bool):
    assert name_exists(text) is expected
