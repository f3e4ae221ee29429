"""The two annotations that carry a pod's devices, and their wire form.

Both are JSON. Unknown or malformed text decodes to `None` and raises nothing:
a pod with an unreadable annotation counts as an unaccounted pod.
"""

import datetime as dt
from typing import TYPE_CHECKING

import msgspec

from api.field_errors import UNDECODABLE
from api.meta import Model
from api.names import UnitId

if TYPE_CHECKING:
    from collections.abc import Mapping

Devices = dict[str, tuple[UnitId, ...]]
"""Container name -> the units it is given, in the order in which the pod lists its containers."""


class ReservationNote(Model, frozen=True):
    """Value of the reservation annotation.

    `id` alone means "admitted, nothing reserved" (the pool was exhausted). With `node`, `devices` and
    `expires_at` it is the reservation that a restarted server restores.
    """

    id: str
    pool: str
    node: str = ""
    devices: dict[str, tuple[UnitId, ...]] = msgspec.field(default_factory=dict)
    expires_at: dt.datetime | None = None
    signature: str = msgspec.field(default="", name="seal")
    """Proves to other replicas that one of them wrote this (`admission.pods.signature`)."""

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()


_note_decoder = msgspec.json.Decoder(ReservationNote)
_devices_decoder = msgspec.json.Decoder(dict[str, tuple[UnitId, ...]])


def decode_reservation(text: str | None) -> ReservationNote | None:
    """Return the reservation note, or None for absent or unreadable text."""
    if text is None:
        return None
    try:
        note = _note_decoder.decode(text)
    except UNDECODABLE:
        return None
    if note.expires_at is not None and note.expires_at.tzinfo is None:
        return None
    return note


def encode_devices(devices: "Mapping[str, tuple[UnitId, ...]]") -> str:
    return msgspec.json.encode(devices).decode()


def decode_devices(text: str | None) -> Devices | None:
    """Return the devices of each container, or None for absent or unreadable text."""
    if text is None:
        return None
    try:
        return _devices_decoder.decode(text)
    except UNDECODABLE:
        return None
