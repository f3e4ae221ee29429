"""values.yaml: the defaults, each below its description."""

import textwrap
from typing import TYPE_CHECKING, Final

import yaml
from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from manifests.install.values import ChartValues

if TYPE_CHECKING:
    from collections.abc import Iterator

_WIDTH: Final = 100
_INDENT: Final = "  "
_HEAD: Final = (
    "# Values of the GPU control plane, and for `gpu-control-plane render all --values FILE`.\n"
)


def values_text() -> str:
    return _HEAD + "\n".join(_members(ChartValues())) + "\n"


def _members(values: BaseModel, depth: int = 0) -> "Iterator[str]":
    indent = _INDENT * depth
    for name, field in type(values).model_fields.items():
        value = getattr(values, name)
        key = to_camel(name)
        is_section = isinstance(value, BaseModel)
        text = field.description or (type(value).__doc__ if is_section else "") or ""
        if depth == 0:
            yield ""
        yield from _comment(text, indent)
        if is_section:
            yield f"{indent}{key}:"
            yield from _members(value, depth + 1)
        else:
            yield textwrap.indent(_dumped(key, value), indent)


def _comment(text: str, indent: str) -> "Iterator[str]":
    paragraph = " ".join(text.split())
    yield from textwrap.wrap(
        paragraph,
        _WIDTH,
        initial_indent=f"{indent}# ",
        subsequent_indent=f"{indent}# ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _dumped(key: str, value: object) -> str:
    plain = list(value) if isinstance(value, tuple) else value
    text: str = yaml.safe_dump({key: plain}, sort_keys=False, default_flow_style=False)
    return text.rstrip("\n")
