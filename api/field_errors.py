"""A fault of an object: what is wrong, and where; and how bytes that are no object show."""

from dataclasses import dataclass
from typing import Final

import msgspec

UNDECODABLE: Final = (msgspec.DecodeError, UnicodeError, RecursionError)
"""What msgspec raises for JSON that is not the type. The last is for JSON nested without measure,
also in fields that the type does not have."""


@dataclass(frozen=True, slots=True)
class FieldError:
    """What is wrong, and where."""

    path: str
    """The field, as it is written in the object."""
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"
