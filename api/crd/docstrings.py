"""Descriptions of the models, taken from their source: class docstrings and docstrings under fields.

Python keeps the former and drops the latter, so the module's text is parsed once.
`kubectl explain` then shows the text of the code, and no second text can drift.
"""

import ast
import functools
import inspect
import itertools
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import ModuleType


_PACKAGE: Final = __name__.partition(".")[0]


def class_description(cls: type) -> str:
    """Return the class's docstring without hard line breaks; empty without a docstring."""
    return _reflow(cls.__dict__.get("__doc__") or "")


def field_descriptions(cls: type) -> "Mapping[str, str]":
    """Return attribute name -> docstring under it, for fields and enum members.

    Classes of `api` only: bases from elsewhere may have no source.
    """
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.partition(".")[0] == _PACKAGE:
            found |= descriptions_by_class(sys.modules[base.__module__]).get(base.__name__, {})
    return found


@functools.cache
def descriptions_by_class(module: "ModuleType") -> "Mapping[str, Mapping[str, str]]":
    """Return class name -> attribute name -> docstring under it, for the classes of the module."""
    return {
        node.name: dict(_documented(node.body))
        for node in ast.parse(inspect.getsource(module)).body
        if isinstance(node, ast.ClassDef)
    }


def _documented(body: "Sequence[ast.stmt]") -> "Iterator[tuple[str, str]]":
    for statement, following in itertools.pairwise(body):
        name = _assigned_name(statement)
        match following:
            case ast.Expr(value=ast.Constant(value=str() as text)) if name is not None:
                yield name, _reflow(text)


def _assigned_name(statement: ast.stmt) -> str | None:
    match statement:
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
            return name
        case _:
            return None


def _reflow(text: str) -> str:
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
