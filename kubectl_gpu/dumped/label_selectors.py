"""Selectors in the API's text form, for a dump, which has no API server to evaluate them."""

import re
from typing import TYPE_CHECKING, Any, Final

from api.meta import LabelSelector, SelectorOperator, SelectorRequirement
from api.text import truncate
from kubectl_gpu.errors import UnreadableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Json = Mapping[str, Any]

_PARTS: Final = re.compile(r",(?![^()]*\))")
"""Commas between requirements; those inside of parentheses separate values."""
_KEY: Final = r"(?P<key>[A-Za-z0-9][-A-Za-z0-9_./]*)"
_VALUE: Final = r"(?P<value>[-A-Za-z0-9_.]*)"
_FORMS: Final = tuple(
    (re.compile(pattern), operator)
    for pattern, operator in (
        (rf"{_KEY}", SelectorOperator.EXISTS),
        (rf"!\s*{_KEY}", SelectorOperator.DOES_NOT_EXIST),
        (rf"{_KEY}\s*==?\s*{_VALUE}", SelectorOperator.IN),
        (rf"{_KEY}\s*!=\s*{_VALUE}", SelectorOperator.NOT_IN),
        (rf"{_KEY}\s+in\s*\((?P<values>[^()]*)\)", SelectorOperator.IN),
        (rf"{_KEY}\s+notin\s*\((?P<values>[^()]*)\)", SelectorOperator.NOT_IN),
    )
)


def metadata_of(item: "Json") -> "Json":
    """Return the metadata of an object that anybody may have made."""
    found = item.get("metadata")
    return found if isinstance(found, dict) else {}


def labels_match(selector: str) -> "Callable[[Json], bool]":
    """Return a predicate on objects.

    Raises:
        UnreadableError: the text is no selector.
    """
    parsed = LabelSelector(
        match_expressions=[_requirement(part) for part in _split(_PARTS.split(selector))]
    )

    def matches(item: "Json") -> bool:
        labels = metadata_of(item).get("labels")
        return parsed.matches(labels if isinstance(labels, dict) else {})

    return matches


def fields_match(selector: str) -> "Callable[[Json], bool]":
    """Return a predicate on objects; fields are compared as texts.

    Raises:
        UnreadableError: the text is no selector.
    """
    wanted: list[tuple[list[str], str, bool]] = []
    for part in _split(selector.split(",")):
        name, is_equal, value = part.partition("=")
        if not is_equal or not name:
            raise _unusable(part)
        path = name.removesuffix("!").split(".")
        wanted.append((path, value.removeprefix("="), not name.endswith("!")))

    def matches(item: "Json") -> bool:
        return all((_at(item, path) == value) is is_equal for path, value, is_equal in wanted)

    return matches


def _split(parts: "list[str]") -> "Iterator[str]":
    return (part.strip() for part in parts if part.strip())


def _requirement(text: str) -> SelectorRequirement:
    for pattern, operator in _FORMS:
        found = pattern.fullmatch(text)
        if found is None:
            continue
        groups = found.groupdict()
        if "values" in groups:
            values = [value.strip() for value in groups["values"].split(",")]
        else:
            values = [groups["value"]] if "value" in groups else []
        return SelectorRequirement(key=groups["key"], operator=operator, values=values)
    raise _unusable(text)


def _at(item: Any, path: "list[str]") -> str:  # noqa: ANN401  # JSON
    for name in path:
        item = item.get(name) if isinstance(item, dict) else None
    return "" if item is None else str(item)


def _unusable(text: str) -> UnreadableError:
    return UnreadableError(
        f"{truncate(text)!r} is no requirement of a selector, such as app=web, app!=web, app, !app or"
        " app in (web, api)"
    )
