"""Label and field selectors of list and watch, parsed once per request."""

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, final

from api.meta import SelectorOperator, SelectorRequirement
from simulator.apiserver.errors import bad_request

if TYPE_CHECKING:
    from simulator.apiserver.resource_types import ResourceType

Json = dict[str, Any]

_KEY = r"[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?"
_SET_BASED = re.compile(rf"^({_KEY})\s+(in|notin)\s*\(([^()]*)\)$")
_COMPARED = re.compile(rf"^({_KEY})\s*(==|!=|=|>|<)\s*([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?|)$")
_EXISTENCE = re.compile(rf"^(!?)\s*({_KEY})$")
_SPLIT = re.compile(r",(?![^(]*\))")
"""Commas outside parentheses."""

_COMPARISONS = {
    "=": SelectorOperator.IN,
    "==": SelectorOperator.IN,
    "!=": SelectorOperator.NOT_IN,
    ">": SelectorOperator.GT,
    "<": SelectorOperator.LT,
}


@lru_cache(maxsize=1024)
def parse_labels(text: str) -> tuple[SelectorRequirement, ...]:
    """Return the requirements of a label selector; none for an empty one.

    Raises:
        StatusError: 400.
    """
    return tuple(_parse_requirement(part.strip()) for part in _SPLIT.split(text)) if text else ()


def _parse_requirement(text: str) -> SelectorRequirement:
    if match := _SET_BASED.match(text):
        operator = SelectorOperator.IN if match[3] == "in" else SelectorOperator.NOT_IN
        values = [value.strip() for value in match[4].split(",")]
        return SelectorRequirement(key=match[1], operator=operator, values=values)
    if match := _COMPARED.match(text):
        return SelectorRequirement(key=match[1], operator=_COMPARISONS[match[3]], values=[match[4]])
    if match := _EXISTENCE.match(text):
        operator = SelectorOperator.DOES_NOT_EXIST if match[1] else SelectorOperator.EXISTS
        return SelectorRequirement(key=match[2], operator=operator)
    raise bad_request(f'unable to parse requirement: "{text}"')


@final
class ListSelection:
    """The selection of a list or watch. `matches` is a pure function of the object."""

    def __init__(
        self, resource: "ResourceType", namespace: str, *, labels: str, fields: str
    ) -> None:
        self.namespace = namespace
        """Empty: all namespaces."""
        self._labels = parse_labels(labels)
        self._fields = tuple(_parse_fields(resource, fields))

    @property
    def is_everything(self) -> bool:
        """Return whether there is no selector besides the namespace."""
        return not self._labels and not self._fields

    def matches(self, body: Json) -> bool:
        metadata = body["metadata"]
        if self.namespace and metadata.get("namespace") != self.namespace:
            return False
        if self._labels:
            labels = metadata.get("labels") or {}
            if not all(requirement.matches(labels) for requirement in self._labels):
                return False
        return all((_find(body, path) == value) is equal for path, equal, value in self._fields)


def _parse_fields(resource: "ResourceType", text: str) -> "list[tuple[tuple[str, ...], bool, str]]":
    found = []
    for part in filter(None, text.split(",")):
        label, operator, value = (
            re.split(r"(==|!=|=)", part, maxsplit=1)
            if "=" in part
            else (
                part,
                "",
                "",
            )
        )
        if not operator:
            raise bad_request(f'invalid field selector: "{part}"; can\'t understand "{part}"')
        if label in {"metadata.name", "metadata.namespace"}:
            path: tuple[str, ...] | None = tuple(label.split("."))
        else:
            path = resource.field_labels.get(label)
        if path is None:
            raise bad_request(f"field label not supported: {label}")
        found.append((path, operator != "!=", value))
    return found


def _find(body: Json, path: tuple[str, ...]) -> str:
    value: object = body
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
