"""What a request asks for, from its target: names and numbers that may be what they should be, and nothing else."""

import re
from collections import defaultdict
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote

from console.console_data import PodTrial
from console.edge.console_answers import RefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_TARGET: Final = 8 * 1024
MAX_CORDONED: Final = 64
"""Nodes in one question, whose names have 63 characters or, rarely, up to 253."""
_MAX_DIGITS: Final = 6
"""The data says which numbers it takes; more digits are none of them."""
_MAX_QUOTED: Final = 64
_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_NAMESPACE: Final = re.compile(_LABEL)
_NAME: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_MAX_NAME: Final = 253

Query = dict[str, list[str]]


def split_target(target: str) -> tuple[str, str]:
    """Return path and query of a request target, as they were sent.

    Raises:
        RefusedError: it is no path, or too long.
    """
    if len(target) > MAX_TARGET:
        raise RefusedError(HTTPStatus.REQUEST_URI_TOO_LONG, "the address is too long")
    if not target.startswith("/") or "#" in target:
        raise _bad("the target of the request is no path")
    path, _, query = target.partition("?")
    return path, query


def parse_query(text: str, *parameters: str) -> Query:
    """Return the values by parameter.

    Raises:
        RefusedError: a parameter is not known, or has no value.
    """
    try:
        pairs = parse_qsl(
            text,
            keep_blank_values=True,
            strict_parsing=bool(text),
            errors="strict",
            max_num_fields=MAX_CORDONED + len(parameters),
        )
    except ValueError as error:
        raise _bad("the query of the address cannot be read") from error
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name, value in pairs:
        if name not in parameters:
            takes = f"takes {', '.join(parameters)}" if parameters else "takes none"
            raise _bad(f"no such parameter {_quoted(name)}; this path {takes}")
        if not value:
            raise _bad(f"parameter {name} has no value")
        found[name].append(value)
    return dict(found)


def namespace_in(query: Query) -> str | None:
    """Return the namespace whose pods the viewer has open."""
    value = _single(query, "namespace")
    return None if value is None else namespace_name(value)


def pod_trial(query: Query) -> PodTrial:
    """Return the pods of a what-if."""
    cordoned = tuple(object_name(node, "node") for node in query.get("cordon", ()))
    if len(cordoned) > MAX_CORDONED:
        raise _bad(f"at most {MAX_CORDONED} nodes can be cordoned in one question")
    return PodTrial(
        pool=object_name(_needed(query, "pool"), "pool"),
        units=_number(_needed(query, "units"), "units"),
        times=_number(_single(query, "times") or "1", "times"),
        cordoned=cordoned,
    )


def namespace_name(text: str) -> str:
    if not _NAMESPACE.fullmatch(text):
        raise _bad(f"{_quoted(text)} is no name of a namespace")
    return text


def object_name(text: str, kind: str) -> str:
    if len(text) > _MAX_NAME or not _NAME.fullmatch(text):
        raise _bad(f"{_quoted(text)} is no name of a {kind}")
    return text


def path_segment(text: str) -> str:
    """Return what a segment of a path stands for."""
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError as error:
        raise _bad("the path of the address is no UTF-8") from error


def _needed(query: "Mapping[str, list[str]]", name: str) -> str:
    value = _single(query, name)
    if value is None:
        raise _bad(f"parameter {name} is needed")
    return value


def _single(query: "Mapping[str, list[str]]", name: str) -> str | None:
    values = query.get(name, [])
    if len(values) > 1:
        raise _bad(f"parameter {name} is given {len(values)} times")
    return values[0] if values else None


def _number(text: str, name: str) -> int:
    if len(text) > _MAX_DIGITS or not (text.isascii() and text.isdigit()):
        raise _bad(f"{name} is a number of at most {_MAX_DIGITS} digits, and not {_quoted(text)}")
    return int(text)


def _quoted(text: str) -> str:
    """Quote foreign text; a page shows it as text, a terminal obeys no control character."""
    return ascii(text if len(text) <= _MAX_QUOTED else f"{text[:_MAX_QUOTED]}…")


def _bad(text: str) -> RefusedError:
    return RefusedError(HTTPStatus.BAD_REQUEST, text)
