"""Decoding of the objects in reviews at a bounded cost.

A review comes before the API server has validated the object, and a megabyte of JSON can be half a million objects
in memory. So the values in each field of a large object are counted first, in its bytes: every value has a comma or
a colon beside it. Objects within the bounds cost 30 ms and 15 MB at most, all fields together (measured); ordinary
pods are far below the size from which values are counted.
"""

from operator import attrgetter
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

import msgspec

from admission.decision import Denied
from api.field_errors import UNDECODABLE
from telemetry.reasons import RefusalReason

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from admission.review import GroupVersionKind

T = TypeVar("T", bound=msgspec.Struct)

UNCOUNTED_BYTES: Final = 64 * 1024
"""An object of this size is decoded at once: in 1 ms, and 2 MB."""
MAX_VALUES: Final = 10_000
"""Most values of a field. A hundred tolerations have 500 values."""


@final
class ObjectDecoder(Generic[T]):
    """Decoder of one kind."""

    def __init__(
        self,
        model: type[T],
        kind: "GroupVersionKind",
        *,
        bounds: "Mapping[str, int] | None" = None,
    ) -> None:
        """Take the model, its kind, and bounds of values by field path where they differ from `MAX_VALUES`."""
        self._decode = msgspec.json.Decoder(model).decode
        self._kind = kind
        unread = _unread(model)
        self._decode_unread = msgspec.json.Decoder(unread).decode
        self._fields = [
            (path, attrgetter(attribute), (bounds or {}).get(path, MAX_VALUES))
            for path, attribute in _raw_fields(unread)
        ]

    def decode(self, raw: msgspec.Raw) -> T | Denied:
        """Return the object, or a denial that names the unreadable or too large field. Never raises."""
        try:
            if len(raw) <= UNCOUNTED_BYTES:
                return self._decode(raw)
            unread = self._decode_unread(raw)
            excess = self._excess_of(unread)
            # A key that comes twice was judged where it came last, and nothing else may be decoded.
            return self._decode(msgspec.json.encode(unread)) if excess is None else excess
        except UNDECODABLE as error:
            text = f"the object cannot be read as {self._kind}: {error}"
            return Denied(RefusalReason.MALFORMED_REQUEST, text)

    def _excess_of(self, unread: msgspec.Struct) -> Denied | None:
        for path, field_of, bound in self._fields:
            field = field_of(unread)
            if field is not msgspec.UNSET and _has_more_values(field, bound):
                text = (
                    f"{path} is too large: it has more than {bound} values, counted by commas and colons,"
                    " and no more are read"
                )
                return Denied(RefusalReason.TOO_LARGE, text)
        return None


def _unread(model: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """Return the model with its sections, and every field in these as raw bytes."""
    fields = msgspec.structs.fields(model)
    return msgspec.defstruct(
        f"Unread{model.__name__}",
        [
            (field.name, _unread(field.type), msgspec.field(default_factory=_unread(field.type)))
            if _is_section(field.type)
            else (field.name, msgspec.Raw | msgspec.UnsetType, msgspec.UNSET)
            for field in fields
        ],
        rename={field.name: field.encode_name for field in fields},
    )


def _is_section(type_: object) -> bool:
    return isinstance(type_, type) and issubclass(type_, msgspec.Struct)


def _has_more_values(raw: msgspec.Raw, bound: int) -> bool:
    """Count in pieces: nothing large is copied, and reading stops soon after the bound."""
    found, content = 0, memoryview(raw)
    for start in range(0, len(content), UNCOUNTED_BYTES):
        piece = bytes(content[start : start + UNCOUNTED_BYTES])
        found += piece.count(b",") + piece.count(b":")
        if found > bound:
            return True
    return False


def _raw_fields(
    unread: type[msgspec.Struct], path: str = "", attribute: str = ""
) -> "Iterator[tuple[str, str]]":
    """Yield path and attribute of each raw field."""
    for field in msgspec.structs.fields(unread):
        names = f"{path}{field.encode_name}", f"{attribute}{field.name}"
        if _is_section(field.type):
            yield from _raw_fields(field.type, f"{names[0]}.", f"{names[1]}.")
        else:
            yield names
