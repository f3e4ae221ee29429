"""A fault of one field, and a printable form of undecodable bytes."""

from dataclasses import dataclass
from typing import Final

import msgspec

UNDECODABLE: Final = (msgspec.DecodeError, UnicodeError, RecursionError)
"""Errors of msgspec for JSON of another type; the last for JSON nested too deeply, in any field."""


@dataclass(frozen=True, slots=True)
class FieldError:
    path: str
    """The field, as the object spells it."""
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"
