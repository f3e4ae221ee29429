"""Rules of labels and selectors in a pool's spec: what a node or a device could never carry is an error."""

import re
from typing import TYPE_CHECKING, Final

from api.crd.cel import LABEL_KEY_PATTERN, LABEL_VALUE_PATTERN, MAX_LABEL_VALUE_LENGTH
from api.field_errors import FieldError
from api.meta import SelectorOperator
from api.text import truncate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api.meta import LabelSelector, SelectorRequirement

_LABEL_KEY: Final = re.compile(LABEL_KEY_PATTERN)
_LABEL_VALUE: Final = re.compile(LABEL_VALUE_PATTERN)
_MAX_NAME_PART_LENGTH: Final = 63
_MAX_KEY_PREFIX_LENGTH: Final = 253


def selector_faults(selector: "LabelSelector | None", path: str) -> "Iterator[FieldError]":
    if selector is None:
        return
    for key, value in (selector.match_labels or {}).items():
        where = f"{path}.matchLabels[{truncate(key)}]"
        yield from named(key_fault(key), where)
        yield from named(value_fault(value), where)
    for number, requirement in enumerate(selector.match_expressions or ()):
        yield from requirement_faults(requirement, f"{path}.matchExpressions[{number}]")


def requirement_faults(requirement: "SelectorRequirement", path: str) -> "Iterator[FieldError]":
    yield from named(key_fault(requirement.key), f"{path}.key")
    values, operator = requirement.values or (), requirement.operator
    match operator:
        case SelectorOperator.IN | SelectorOperator.NOT_IN:
            if not values:
                yield FieldError(
                    f"{path}.values", f"operator {operator.value} needs at least one value"
                )
        case SelectorOperator.EXISTS | SelectorOperator.DOES_NOT_EXIST:
            if values:
                yield FieldError(f"{path}.values", f"operator {operator.value} takes no values")
        case _:
            text = f"{operator.value} compares in node affinity only: use In, NotIn, Exists or DoesNotExist"
            yield FieldError(f"{path}.operator", text)
    for number, value in enumerate(values):
        yield from named(value_fault(value), f"{path}.values[{number}]")


def named(text: str | None, path: str) -> "Iterator[FieldError]":
    if text is not None:
        yield FieldError(path, text)


def key_fault(key: str) -> str | None:
    prefix, slash, name = key.rpartition("/")
    is_short = len(name) <= _MAX_NAME_PART_LENGTH and len(prefix) <= _MAX_KEY_PREFIX_LENGTH
    if is_short and _LABEL_KEY.fullmatch(key) and (prefix or not slash):
        return None
    return f'"{truncate(key)}" is no label key such as example.com/name'


def value_fault(value: str) -> str | None:
    if len(value) <= MAX_LABEL_VALUE_LENGTH and _LABEL_VALUE.fullmatch(value):
        return None
    return f'"{truncate(value)}" is no label value: at most {MAX_LABEL_VALUE_LENGTH} letters, digits, - _ ."'
