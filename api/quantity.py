"""Kubernetes quantities, and Go durations."""

import functools
import math
import re
from decimal import Decimal, InvalidOperation, Overflow
from typing import Final

_SUFFIXES: Final = {
    "": Decimal(1),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}
_QUANTITY = re.compile(r"^([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([kMGTPE]|[KMGTPE]i|m)?$")

DURATION_PATTERN: Final = "^([0-9]+(h|m|s))+$"
_MAX_COUNT: Final = 2**63 - 1
"""Kubernetes caps quantities here; beyond, `1e999999` would cost seconds to turn into a number."""
_LONGEST: Final = 64
"""Characters of a quantity. Kubernetes writes them canonically: 2^63 in thousandths takes 23."""
_DURATION_PART = re.compile(r"([0-9]+)(h|m|s)")
_SECONDS: Final = {"h": 3600, "m": 60, "s": 1}


def parse_count(text: str | int) -> int:
    """Return the whole number of a quantity such as `2`, `"2"`, `"2k"` or `"4000m"`.

    Raises:
        ValueError: it is not a quantity, not whole, or negative.
    """
    if isinstance(text, int):
        value = Decimal(text)
    elif len(text) < 19 and text.isascii() and text.isdigit():
        return int(text)
    else:
        value = parse_decimal(text)
    if not 0 <= value <= _MAX_COUNT or value != value.to_integral_value():
        raise ValueError(f'"{text}" is not a whole number of units')
    return int(value)


@functools.lru_cache(maxsize=1024)
def parse_milli(text: str) -> int:
    """Return a quantity in thousandths, rounded up, as Kubernetes does.

    Raises:
        ValueError: it is not one, or is negative.
    """
    value = parse_decimal(text)
    if not 0 <= value <= _MAX_COUNT:
        raise ValueError(f'"{text}" is not a quantity such as 100m, 2 or 256Mi')
    return math.ceil(value * 1000)


def parse_decimal(text: str) -> Decimal:
    """Return the number of a quantity such as `500m` or `64Gi`.

    Raises:
        ValueError: it is not one.
    """
    match = _QUANTITY.match(text) if len(text) <= _LONGEST else None
    if match is None:
        raise ValueError(f'"{text}" is not a quantity')
    number, suffix = match.group(1), match.group(2) or ""
    try:
        value = Decimal(number)
        return value / 1000 if suffix == "m" else value * _SUFFIXES[suffix]
    except (InvalidOperation, Overflow):
        raise ValueError(f'"{text}" is not a quantity') from None


_DECIMAL_SUFFIXES: Final = ("m", "", "k", "M", "G", "T", "P", "E")
_BINARY_SUFFIXES: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def canonical_quantity(text: str) -> str:
    """Return a quantity as the API server stores it: `1024Mi` is `1Gi`, and `0.5` is `500m`.

    Raises:
        ValueError: it is not one, is negative, or is finer than a thousandth or than a byte.
    """
    value = parse_decimal(text)
    is_binary = text.endswith("i") and value >= 1024
    base, suffixes = (1024, _BINARY_SUFFIXES) if is_binary else (1000, _DECIMAL_SUFFIXES)
    scaled = value if is_binary else value * 1000
    if not 0 <= value <= _MAX_COUNT or scaled != scaled.to_integral_value() or "e" in text.lower():
        raise ValueError(f'"{text}" is not a quantity such as 100m, 2 or 256Mi')
    number, place = int(scaled), 0
    while number and number % base == 0 and place < len(suffixes) - 1:
        number, place = number // base, place + 1
    return f"{number}{suffixes[place]}" if number else "0"


def parse_duration_s(text: str) -> int:
    """Return the seconds of a Go duration of whole hours, minutes and seconds, such as `2m30s`.

    Raises:
        ValueError: it is not one.
    """
    if not re.match(DURATION_PATTERN, text):
        raise ValueError(f'"{text}" is not a duration such as 90s, 2m or 1h30m')
    return sum(int(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(text))
