"""Python files of the repository, each read and parsed once in a process, whichever tests ask for it."""

import ast
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = tuple(
    sorted(path.parent.name for path in ROOT.glob("*/__init__.py") if path.parent.name != "tests")
)
"""Those of the product, its tools for development included."""


@cache
def source_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(source_of(path))


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of a file, in the order of `ast.walk`."""
    return tuple(ast.walk(tree_of(path)))


@cache
def files_of(*packages: str) -> tuple[Path, ...]:
    """Return the modules of top-level packages, sorted."""
    return tuple(sorted(path for name in packages for path in (ROOT / name).rglob("*.py")))


def name_of(path: Path) -> str:
    """Return a file's path in the repository."""
    return path.relative_to(ROOT).as_posix()
