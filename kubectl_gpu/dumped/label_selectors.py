"""Selectors in the API's text form, for a dump, which has no API server to evaluate them."""

from typing import TYPE_CHECKING, Any

from api.selector_text import parse_label_selector
from api.text import truncate
from kubectl_gpu.errors import UnreadableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Json = Mapping[str, Any]


def metadata_of(item: "Json") -> "Json":
    """Return the metadata of an object that anybody may have made."""
    found = item.get("metadata")
    return found if isinstance(found, dict) else {}


def labels_match(selector: str) -> "Callable[[Json], bool]":
    """Return a predicate on objects.

    Raises:
        UnreadableError: the text is no selector.
    """
    try:
        parsed = parse_label_selector(selector)
    except ValueError as error:
        raise UnreadableError(str(error)) from error

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
    for part in filter(None, map(str.strip, selector.split(","))):
        name, is_equal, value = part.partition("=")
        if not is_equal or not name:
            raise UnreadableError(
                f"{truncate(part)!r} is no requirement of a selector of fields, such as spec.nodeName=n1"
            )
        path = name.removesuffix("!").split(".")
        wanted.append((path, value.removeprefix("="), not name.endswith("!")))

    def matches(item: "Json") -> bool:
        return all((_at(item, path) == value) is is_equal for path, value, is_equal in wanted)

    return matches


def _at(item: Any, path: "list[str]") -> str:  # noqa: ANN401  # JSON
    for name in path:
        item = item.get(name) if isinstance(item, dict) else None
    return "" if item is None else str(item)
