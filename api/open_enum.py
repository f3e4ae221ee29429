"""Enumerations that a record of another version may have further values of."""

import functools
from enum import Enum
from typing import Final, Self

from api.text import truncate

_LONGEST: Final = 64
"""Characters of a value; ours have up to 24."""


class OpenEnum(Enum):
    """An enumeration that keeps a text that is none of its members, to be written back as it was.

    What stands for the text is no member: it is not iterated, and is itself alone.
    """

    @classmethod
    @functools.lru_cache(maxsize=64)
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str):
            return None
        other = object.__new__(cls)
        other._name_ = other._value_ = truncate(value, _LONGEST)
        return other
