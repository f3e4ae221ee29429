"""Lists of a cluster, decoded item by item into what is kept of them.

An object that does not fit its type stops no other one: it is counted, and the answer says so.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

import msgspec

from api.field_errors import UNDECODABLE
from api.meta import Model
from api.text import truncate
from kubectl_gpu.api_answers import ListMetadata
from kubectl_gpu.errors import (
    ForbiddenError,
    ListExpiredError,
    NotFoundError,
    UnreadableError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubectl_gpu.cluster_source import ListQuery, ReadableSource

T = TypeVar("T")
P = TypeVar("P")
_ATTEMPTS: Final = 3
"""Lists whose pages expire between two requests are read again as often."""


class _Page(Model, frozen=True):
    metadata: ListMetadata = ListMetadata()
    items: list[msgspec.Raw] | None = None


_PAGE: Final = msgspec.json.Decoder(_Page)


@final
@dataclass(slots=True)
class Listed(Generic[P]):
    """What a list answered."""

    items: list[P] = field(default_factory=list)
    version: str = ""
    undecodable: int = 0


@final
class ClusterLists:
    """Reads lists of one source, and remembers which, so that their changes can be watched."""

    def __init__(self, source: "ReadableSource") -> None:
        self.source = source
        self.versions: dict[ListQuery, str] = {}
        """Version of each list that was read."""
        self.gaps: list[str] = []
        """What the answer is without, one line each."""

    def read(
        self, query: "ListQuery", item_type: type[T], keep: "Callable[[T], P | None]"
    ) -> "list[P]":
        """Read a list whole; `keep` returns None for what is left out.

        Raises:
            UnreadableError: it cannot be read.
        """
        listed = read_list(self.source, query, item_type, keep=keep)
        self.versions[query] = listed.version
        text = f"{listed.undecodable} {query.resource.plural} cannot be decoded and are left out"
        if listed.undecodable and text not in self.gaps:  # lists may have objects in common
            self.gaps.append(text)
        return listed.items

    def read_if_allowed(
        self,
        query: "ListQuery",
        item_type: type[T],
        keep: "Callable[[T], P | None]",
        *,
        without: str,
    ) -> "list[P] | None":
        """Read a list that an answer is possible without; None where it may not be read."""
        try:
            return self.read(query, item_type, keep)
        except (ForbiddenError, NotFoundError):
            self.gaps.append(f"{query.resource.plural} may not be listed by this user: {without}")
            return None


def read_list(
    source: "ReadableSource",
    query: "ListQuery",
    item_type: type[T],
    *,
    keep: "Callable[[T], P | None]",
) -> Listed[P]:
    """Read a list whole; `keep` returns None for what is left out.

    Raises:
        UnreadableError: it cannot be read.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return _read(source, query, msgspec.json.Decoder(item_type), keep=keep)
        except ListExpiredError:
            if attempt == _ATTEMPTS:
                raise
    raise AssertionError("the last attempt returns or raises")


def read_object(body: bytes, item_type: type[T], *, subject: str) -> T:
    """Decode one object.

    Raises:
        UnreadableError: it does not fit the type.
    """
    try:
        return msgspec.json.decode(body, type=item_type)
    except UNDECODABLE as error:
        raise UnreadableError(f"{subject} cannot be decoded: {truncate(str(error))}") from error


def _read(
    source: "ReadableSource",
    query: "ListQuery",
    decoder: "msgspec.json.Decoder[T]",
    *,
    keep: "Callable[[T], P | None]",
) -> Listed[P]:
    listed: Listed[P] = Listed()
    for body in source.pages(query):
        try:
            page = _PAGE.decode(body)
        except UNDECODABLE as error:
            raise UnreadableError(
                f"the answer is no list of {query.resource.plural}: {truncate(str(error))}"
            ) from error
        listed.version = page.metadata.resource_version
        for item in page.items or ():
            try:
                kept = keep(decoder.decode(item))
            except Exception:  # noqa: BLE001  # the per-object boundary: counted, and said
                listed.undecodable += 1
                continue
            if kept is not None:
                listed.items.append(kept)
    return listed
