"""A fault of an object: what is wrong, and where."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong, and where."""

    path: str
    """The field, as it is written in the object."""
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"
