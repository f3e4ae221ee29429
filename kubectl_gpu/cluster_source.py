"""The port through which verbs read: an API server, or a dump that stands for one."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, final

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator

    from kube.resources import Resource


@final
@dataclass(frozen=True, slots=True)
class ListQuery:
    """A list; selectors are in the API's text form."""

    resource: "Resource"
    namespace: str | None = None
    """All namespaces where it is None."""
    labels: str = ""
    fields: str = ""


class ReadableSource(Protocol):
    """What verbs read a cluster from. Every method raises UnreadableError, or one of its kinds."""

    @property
    def origin(self) -> str:
        """Return what answers are read from, as `API server`."""

    def now(self) -> "dt.datetime":
        """Return the moment that ages are counted to: that of the dump, or now."""

    def namespace(self) -> str:
        """Return the namespace that is meant where none is given."""

    def object(self, resource: "Resource", name: str, *, namespace: str | None = None) -> bytes:
        """Return one object as JSON."""

    def pages(self, query: ListQuery) -> "Iterator[bytes]":
        """Yield the pages of a list as JSON; a source may ignore selectors and give more than was asked for."""


class AnsweringSource(ReadableSource, Protocol):
    """A source that also answers at paths of no kind, such as `/version`."""

    def get(self, path: str) -> bytes:
        """Return the answer; raises as the others do."""
