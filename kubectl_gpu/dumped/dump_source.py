"""A cluster as a dump shows it: a `ReadableSource` whose clock stands still."""

from typing import TYPE_CHECKING, Any, final

import msgspec

from api.field_errors import UNDECODABLE
from api.selector_text import parse_label_selector
from api.text import truncate
from kubectl_gpu.dumped.dump_archive import answer_file, list_file
from kubectl_gpu.errors import ForbiddenError, NotFoundError, UnreadableError

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterator, Mapping
    from typing import Self

    from kube.resources import Resource
    from kubectl_gpu.cluster_source import ListQuery
    from kubectl_gpu.dumped.dump_archive import DumpedCluster

    Json = Mapping[str, Any]


@final
class DumpSource:
    """Answers from the lists of a dump."""

    def __init__(self, dump: "DumpedCluster", path: str, *, namespace: str | None = None) -> None:
        self._dump = dump
        self._path = path
        self._namespace = namespace or dump.namespace
        self._items: dict[str, list[dict[str, Any]]] = {}

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: the file is read already."""

    @property
    def origin(self) -> str:
        return f"dump {self._path} of {self._dump.created_at:%Y-%m-%d %H:%M:%S %Z}"

    def now(self) -> "dt.datetime":
        return self._dump.created_at

    def namespace(self) -> str:
        return self._namespace

    def get(self, path: str) -> bytes:
        """Return what the API server answered at a path that is no kind's.

        Raises:
            NotFoundError: the dump has no such answer.
        """
        found = self._dump.files.get(answer_file(path))
        if found is None:
            raise NotFoundError(f"dump {self._path} has no answer of {path}")
        return found

    def object(self, resource: "Resource", name: str, *, namespace: str | None = None) -> bytes:
        for item in self._list(resource):
            metadata = metadata_of(item)
            if metadata.get("name") == name and namespace in {None, metadata.get("namespace")}:
                return msgspec.json.encode(item)
        where = "" if namespace is None else f" in namespace {namespace}"
        raise NotFoundError(f"dump {self._path} has no {resource.kind} {name}{where}")

    def pages(self, query: "ListQuery") -> "Iterator[bytes]":
        items = self._list(query.resource)
        if query.namespace is not None:
            items = [
                item for item in items if metadata_of(item).get("namespace") == query.namespace
            ]
        for selector, predicate in ((query.labels, labels_match), (query.fields, fields_match)):
            if selector:
                items = list(filter(predicate(selector), items))
        yield msgspec.json.encode({"metadata": {}, "items": items})

    def _list(self, resource: "Resource") -> "list[dict[str, Any]]":
        name = list_file(resource)
        if name not in self._items:
            self._items[name] = self._decoded(resource, name)
        return self._items[name]

    def _decoded(self, resource: "Resource", name: str) -> "list[dict[str, Any]]":
        body = self._dump.files.get(name)
        if body is None:
            why = self._dump.missing.get(name)
            raise ForbiddenError(
                f"dump {self._path} has no {resource.plural}: {truncate(why or 'dumps have none')}"
            )
        try:
            return msgspec.json.decode(body, type=list[dict[str, Any]])
        except UNDECODABLE as error:
            raise UnreadableError(
                f"dump {self._path} is damaged: {name} is no list of objects: {truncate(str(error))}"
            ) from error


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
    terms: list[tuple[list[str], str, bool]] = []
    for part in filter(None, map(str.strip, selector.split(","))):
        name, is_equal, value = part.partition("=")
        if not is_equal or not name:
            raise UnreadableError(
                f"{truncate(part)!r} is no requirement of a selector of fields, such as spec.nodeName=n1"
            )
        path = name.removesuffix("!").split(".")
        terms.append((path, value.removeprefix("="), not name.endswith("!")))

    def matches(item: "Json") -> bool:
        return all((_at(item, path) == value) is is_equal for path, value, is_equal in terms)

    return matches


def _at(item: Any, path: "list[str]") -> str:  # noqa: ANN401  # JSON
    for name in path:
        item = item.get(name) if isinstance(item, dict) else None
    return "" if item is None else str(item)
