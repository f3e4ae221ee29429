"""Texts: truncation to a limit, what a terminal may show, short lists, counts with their noun, the nearest known word, durations, keys in JSON pointers."""

import datetime as dt
import difflib
import json
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MAX_MESSAGE_LENGTH: Final = 1024
"""Limit of an Event's note, in which a denial ends up."""
MAX_WARNING_LENGTH: Final = 120
"""Recommended limit of an admission warning; the API server may truncate longer ones."""
MAX_FOREIGN_LENGTH: Final = 256
"""Limit of names and values from a request inside our texts."""
MAX_LISTED: Final = 5

_UNITS: Final = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_MORE: Final = "..."
_AS_BLANKS: Final = str.maketrans("\n\t", "  ")
_UNSEEN: Final = re.compile(
    "[\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""Pattern of characters that are not printed: controls, format controls, separators of lines. A page may have
megabytes."""
_OF_LINES: Final = re.compile(r"([\n\t]+)")


def pointer_token(key: str) -> str:
    """Return a key as it stands in a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def truncate(text: str, limit: int = MAX_FOREIGN_LENGTH) -> str:
    """Return the text, truncated at a word and ended by `...` if it is longer than the limit."""
    if len(text) <= limit:
        return text
    kept = text[: limit - len(_MORE)]
    whole_words, _, _ = kept.rpartition(" ")
    # A single long word has no good place to end: a truncated name is more useful than none.
    return (whole_words if len(whole_words) > limit // 2 else kept).rstrip(" ,;:") + _MORE


def printable(text: str) -> str:
    """Return one line that steers no terminal, and reads as it is written.

    Control characters, those that turn the direction of text, and those that nobody sees become `?`.
    """
    line = text.translate(_AS_BLANKS)
    return line if line.isprintable() else _replaced(line, lambda _: "?")


def printable_lines(text: str) -> str:
    """Return lines, and columns between tabs, each `printable`."""
    parts = _OF_LINES.split(text)
    return "".join(part if part[:1] in {"\n", "\t"} else printable(part) for part in parts)


def printable_json(text: str) -> str:
    """Return JSON, indented or not, with the same value and nothing in it that `printable` replaces."""
    if text.replace("\n", "").isprintable():
        return text
    return _replaced(text, lambda item: item if item == "\n" else json.dumps(item)[1:-1])


def legible_json(encoded: bytes) -> bytes:
    """Return JSON for a page, in which each text reads as it is written: what turns or hides it becomes `?`.

    Escapes stay; a page shows control characters as nothing.
    """
    if encoded.isascii():
        return encoded
    text = encoded.decode()
    return encoded if text.isprintable() else _UNSEEN.sub("?", text).encode()


def _replaced(text: str, by: "Callable[[str], str]") -> str:
    return "".join(item if item.isprintable() else by(item) for item in text)


def listed(names: "Iterable[str]", limit: int = MAX_LISTED) -> str:
    """Return the first names in alphabetical order, and the number of further names."""
    ordered = sorted(names)
    text = ", ".join(truncate(name) for name in ordered[:limit])
    left_out = len(ordered) - limit
    return f"{text} and {left_out} more" if left_out > 0 else text


def units(count: int) -> str:
    return f"{count} unit" if count == 1 else f"{count} units"


def nearest(word: str, names: "Iterable[str]") -> str | None:
    """Return the known word that is most like an unknown one, if any is."""
    return next(iter(difflib.get_close_matches(word, list(names), n=1)), None)


def duration_text(seconds: float) -> str:
    """Return the largest part of a duration and the next smaller one, such as `3m19s`; `0s` for the future."""
    left = max(0, int(seconds))
    numbers: list[tuple[int, str]] = []
    for unit, size in _UNITS:
        number, left = divmod(left, size)
        if number or numbers or unit == "s":
            numbers.append((number, unit))
    return "".join(
        f"{number}{unit}" for place, (number, unit) in enumerate(numbers[:2]) if number or not place
    )


def age_text(created: str, now: dt.datetime) -> str:
    """Return the time since; empty where the text is no time."""
    try:
        moment = dt.datetime.fromisoformat(created)
        return duration_text((now - moment).total_seconds())
    except (ValueError, TypeError):  # TypeError: without a zone
        return ""
