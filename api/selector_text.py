"""Label selectors in the text form of the API, such as `app=web,tier in (a, b),!old`."""

import re
from typing import TYPE_CHECKING, Final

from api.meta import LabelSelector, SelectorOperator, SelectorRequirement
from api.text import truncate

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def parse_label_selector(text: str) -> LabelSelector:
    """Return the selector; an empty text selects everything.

    Raises:
        ValueError: the text is no selector; the message names the part that is none.
    """
    return LabelSelector(match_expressions=[_requirement(part) for part in _split(text)])


def label_selector_text(selector: LabelSelector) -> str:
    """Return the text form of a selector; what `parse_label_selector` makes of it selects the same."""
    parts = [f"{key}={value}" for key, value in sorted((selector.match_labels or {}).items())]
    for expression in selector.match_expressions or ():
        values = ",".join(expression.values or ())
        match expression.operator:
            case SelectorOperator.EXISTS:
                parts.append(expression.key)
            case SelectorOperator.DOES_NOT_EXIST:
                parts.append(f"!{expression.key}")
            case _:
                parts.append(f"{expression.key} {expression.operator.value.lower()} ({values})")
    return ",".join(parts)


def _split(text: str) -> "Iterator[str]":
    return (part.strip() for part in _PARTS.split(text) if part.strip())


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
    raise ValueError(
        f"{truncate(text)!r} is no requirement of a selector, such as app=web, app!=web, app, !app or"
        " app in (web, api)"
    )
