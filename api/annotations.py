"""The annotations that carry a pod's devices and its workload's access, and their wire form.

All are JSON. Unknown or malformed text decodes to `None` and raises nothing:
a pod with unreadable devices counts as an unaccounted pod.
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


class AccessNote(Model, frozen=True, omit_defaults=False):
    """Value of the access annotation: a user whose groups open a pool wrote the template.

    It ends with a signature (`admission.signed_annotation`).
    """

    pool: str
    group: str
    """API group of the signed object; `kind`, `name` and `uid` are its others."""
    kind: str
    name: str
    """Name, or the part before the generated one and `*`."""
    uid: str
    """Empty where the object was created with the annotation."""
    user: str
    groups: tuple[str, ...]
    """Groups of the user that opened the pool."""
    since: dt.datetime
    until: dt.datetime

    @property
    def ages_at(self) -> dt.datetime:
        """Return the half of the validity, from which on it is to be renewed."""
        return self.since + (self.until - self.since) / 2

    @property
    def workload(self) -> str:
        return f"{self.kind} {self.name}"


_access_decoder = msgspec.json.Decoder(AccessNote)
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


def decode_access(text: str | None) -> AccessNote | None:
    """Return the access note, or None for absent or unreadable text; its signature is not verified."""
    if text is None:
        return None
    try:
        note = _access_decoder.decode(text)
    except UNDECODABLE:
        return None
    return None if note.since.tzinfo is None or note.until.tzinfo is None else note


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
