"""No private member of a library is used: the library may change it in any release."""

import ast
from collections.abc import Iterator, Sequence, Set

import pytest

from tests.support.source_trees import PACKAGES, files_of, name_of, nodes_of, source_of

OURS = {*PACKAGES, "tests", "image"}
SOURCES = [path for path in files_of(*PACKAGES, "packaging") if not path.stem.endswith("_pb2")]
OF_SELF = {"self", "cls"}


def private_members_in(nodes: Sequence[ast.AST]) -> set[str]:
    """Return the private members of libraries that a module imports, reads, sets or inherits."""
    imported = dict(imports_in(nodes))
    return {
        *(name for name in imported.values() if any(map(is_private, name.split(".")))),
        *members_in(nodes, imported.keys()),
        *named_members_in(nodes),
        *inherited_members_in(nodes, imported.keys()),
    }


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("_")


def imports_in(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, str]]:
    """Yield what is imported of libraries: the name it is bound to, and its own."""
    for node in nodes:
        if isinstance(node, ast.Import):
            found = [
                (alias.asname or alias.name.partition(".")[0], alias.name) for alias in node.names
            ]
        elif isinstance(node, ast.ImportFrom):
            found = [
                (item.asname or item.name, f"{node.module}.{item.name}") for item in node.names
            ]
        else:
            continue
        yield from ((bound, name) for bound, name in found if name.partition(".")[0] not in OURS)


def members_in(nodes: Sequence[ast.AST], imported: Set[str]) -> Iterator[str]:
    for node in nodes:
        if (
            isinstance(node, ast.Attribute)
            and is_private(node.attr)
            and root_of(node.value) in imported
        ):
            yield ast.unparse(node)


def root_of(node: ast.expr) -> str:
    """Return the name that an expression begins with: `a` of `a.b(c)[d].e`."""
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def named_members_in(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Yield private members that are asked for by a string: by `getattr` they pass the linter."""
    for node in nodes:
        match node:
            case ast.Call(
                func=ast.Name(id="getattr" | "setattr" | "delattr" | "hasattr"),
                args=[_, ast.Constant(value=str(name)), *_],
            ) if is_private(name):
                yield ast.unparse(node)
            case _:
                pass


def inherited_members_in(nodes: Sequence[ast.AST], imported: Set[str]) -> Iterator[str]:
    """Yield what a class takes from the private members of a library's class that it extends."""
    for node in nodes:
        if not isinstance(node, ast.ClassDef) or not {*map(root_of, node.bases)} & imported:
            continue
        own = set(own_members_of(node))
        for part in ast.walk(node):
            if (
                isinstance(part, ast.Attribute)
                and is_private(part.attr)
                and isinstance(part.ctx, ast.Load)
                and (
                    root_of(part.value) == "super"
                    or (root_of(part.value) in OF_SELF and part.attr not in own)
                )
            ):
                yield f"{node.name}.{part.attr}"


def own_members_of(node: ast.ClassDef) -> Iterator[str]:
    for part in ast.walk(node):
        match part:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Name(id=name, ctx=ast.Store()):
                yield name
            case _:
                pass


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import pynvml\npynvml._cache.clear()", {"pynvml._cache"}),
        ("import aiohttp.web as web\nweb.Application()._state", {"web.Application()._state"}),
        ("from aiohttp import web\nweb.A._b = 1", {"web.A._b"}),
        ("from lib._inner import Thing", {"lib._inner.Thing"}),
        ("from lib import _thing", {"lib._thing"}),
        ("getattr(anything, '_private')", {"getattr(anything, '_private')"}),
        ("from lib import A\nclass B(A):\n def c(self): self._d()", {"B._d"}),
        ("from lib import A\nclass B(A[int]):\n def c(self): super()._d()", {"B._d"}),
        ("from lib import A\nclass B(A):\n def c(self):\n  self._d = 1\n  self._d", set()),
        ("from lib import A\nclass B(A):\n def _d(self): super()._d()", {"B._d"}),
        ("from pool import index\nindex._ours", set()),
        ("import lib\nlib.__version__", set()),
    ],
)
def test_each_way_to_a_private_member_is_found(source: str, found: set[str]):
    assert private_members_in([*ast.walk(ast.parse(source))]) == found


def test_no_private_member_of_a_library_is_used():
    used = {
        name_of(path): found for path in SOURCES if (found := private_members_in(nodes_of(path)))
    }
    assert used == {}


def test_the_linter_that_finds_the_others_is_silenced_nowhere():
    """Ruff's SLF001 finds them on every other object, too."""
    silenced = "noqa: " + "SLF001"
    assert [path for path in SOURCES if silenced in source_of(path)] == []
