"""The lines of a watch: a type, and an object that is decoded by who wants it."""

from typing import Final

import msgspec

from api.field_errors import UNDECODABLE
from kube.errors import KubeError, Status, Undecodable, from_status

_EVENT_TYPES: Final = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"})


class WatchEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


def decode_event(line: bytes) -> WatchEvent:
    """Raises Undecodable."""
    try:
        event = _EVENT_DECODER.decode(line)
    except UNDECODABLE as error:
        raise Undecodable(f"not a watch event: {error}") from error
    if event.type not in _EVENT_TYPES:
        raise Undecodable(f"a watch event of type {event.type!r}")
    return event


class _Version(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Versioned(msgspec.Struct):
    metadata: _Version = msgspec.field(default_factory=_Version)


_EVENT_DECODER = msgspec.json.Decoder(WatchEvent)
_VERSION_DECODER = msgspec.json.Decoder(_Versioned)
_STATUS_DECODER = msgspec.json.Decoder(Status)


def version_of(item: msgspec.Raw) -> str:
    try:
        return _VERSION_DECODER.decode(item).metadata.resource_version
    except UNDECODABLE:
        return ""


def error_of(item: msgspec.Raw) -> KubeError:
    try:
        status = _STATUS_DECODER.decode(item)
    except UNDECODABLE as error:
        return Undecodable(f"an ERROR event without a Status: {error}")
    return from_status(status.code, bytes(item))
