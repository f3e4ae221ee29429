"""From the API server's bytes to our types, and what happens to those that do not fit.

An object that cannot be decoded must not stop the others: it is counted, logged and skipped, and a list says which one
it is.
"""

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar, final

import msgspec
import structlog

from api.field_errors import UNDECODABLE
from kube.errors import Undecodable, one_line
from kube.unread_objects import UnreadObject
from telemetry.metrics import INFORMER_DECODE_ERRORS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kube.resources import Resource

T = TypeVar("T")
P = TypeVar("P")
_DECODE_CHUNK = 100
"""Items decoded between two yields to the loop: 100 at 10-20 us are 1-2 ms."""

_log = structlog.get_logger()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(Generic[T]):
    """What a list answered: one consistent state, as of `resource_version`."""

    items: list[T]
    resource_version: str
    unread: "list[UnreadObject]" = field(default_factory=list)
    """Items that were skipped because they do not fit the type. They exist."""

    @property
    def undecodable(self) -> int:
        return len(self.unread)


class ListMeta(msgspec.Struct, rename="camel"):
    """`metadata` of a list."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct):
    """What a list request answers, its items still bytes."""

    metadata: ListMeta
    items: list[msgspec.Raw] | None = None


class _Identity(msgspec.Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""


class _NodeName(msgspec.Struct):
    name: str = msgspec.field(default="", name="nodeName")


class _ResourceName(msgspec.Struct):
    name: str = ""


class _Served(msgspec.Struct):
    resource: _ResourceName = msgspec.field(default_factory=_ResourceName)


class _Serving(msgspec.Struct):
    spec: _Served = msgspec.field(default_factory=_Served)


class _Identified(msgspec.Struct):
    metadata: _Identity = msgspec.field(default_factory=_Identity)


class _Scheduled(msgspec.Struct):
    spec: _NodeName = msgspec.field(default_factory=_NodeName)


_LIST_DECODER = msgspec.json.Decoder(Page)
_IDENTITY_DECODER = msgspec.json.Decoder(_Identified)
_NODE_DECODER = msgspec.json.Decoder(_Scheduled)
_RESOURCE_DECODER = msgspec.json.Decoder(_Serving)


def identity_of(
    resource: "Resource", content: bytes, *, namespace: str | None, name: str | None
) -> tuple[str | None, str | None]:
    """Return namespace and name: those given, else those of the body's metadata.

    Raises:
        ValueError: the body is not a JSON object.
    """
    try:
        identity = _IDENTITY_DECODER.decode(content).metadata
    except UNDECODABLE as error:
        raise ValueError(f"the body is no {resource.kind}: {error}") from error
    if resource.namespaced:
        namespace = namespace or identity.namespace or None
    return namespace, name or identity.name or None


def decode(body: bytes, type_: type[T], resource: "Resource") -> T:
    """Return the answer as the type, or raise Undecodable."""
    try:
        return msgspec.json.decode(body, type=type_)
    except UNDECODABLE as error:
        raise Undecodable(f"the answer is no {resource.kind}: {error}") from error


def decode_page(body: bytes, resource: "Resource") -> Page:
    try:
        page = _LIST_DECODER.decode(body)
    except UNDECODABLE as error:
        raise Undecodable(f"the answer is no list of {resource.plural}: {error}") from error
    if not page.metadata.resource_version:
        raise Undecodable(f"the list of {resource.plural} has no resourceVersion")
    return page


async def decode_items(
    raw: "Sequence[msgspec.Raw]",
    item_type: type[T],
    *,
    resource: "Resource",
    project: "Callable[[T], P | None]",
) -> "tuple[list[P], list[UnreadObject]]":
    """Return what the projection makes of the items that fit the type, and which ones do not fit.

    One of which the projection raises does not fit either: none may be the end of all others.
    Those are counted and logged; what is projected to None is left out. An item is dropped before
    the next is decoded, so that a list of large objects never lies decoded in memory as a whole.
    The loop gets its turn between every hundred.
    """
    decoder = msgspec.json.Decoder(item_type)
    items: list[P] = []
    unread: list[UnreadObject] = []
    for number, item in enumerate(raw, start=1):
        try:
            projected = project(decoder.decode(item))
        except Exception as error:  # noqa: BLE001  # the per-item boundary: counted, and said
            report_undecodable(item, resource.plural, error)
            unread.append(unread_object(item))
            continue
        if projected is not None:
            items.append(projected)
        if number % _DECODE_CHUNK == 0:
            await asyncio.sleep(0)
    return items, unread


def unread_object(item: msgspec.Raw) -> UnreadObject:
    """Return what identifies an object that does not fit its type; each part that cannot be read is empty."""
    metadata = _part(_IDENTITY_DECODER, item, _Identified()).metadata
    return UnreadObject(
        metadata.namespace,
        metadata.name,
        metadata.uid,
        node=_part(_NODE_DECODER, item, _Scheduled()).spec.name,
        resource=_part(_RESOURCE_DECODER, item, _Serving()).spec.resource.name,
    )


def _part(decoder: "msgspec.json.Decoder[T]", item: msgspec.Raw, empty: T) -> T:
    try:
        return decoder.decode(item)
    except UNDECODABLE:
        return empty


def report_undecodable(item: msgspec.Raw, resource: str, error: Exception) -> None:
    """Count and log an object that was skipped, by its name where that can still be read."""
    INFORMER_DECODE_ERRORS.labels(resource).inc()
    identity = unread_object(item)
    _log.error(
        "object skipped because it cannot be decoded",
        resource=resource,
        object=f"{identity.namespace}/{identity.name}" if identity.namespace else identity.name,
        error=one_line(str(error)),
    )
