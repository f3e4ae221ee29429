"""Texts for people: cut to what their carriers take, lists that stay short, counts that read well."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_MESSAGE_LENGTH: Final = 1024
"""A denial ends up in an Event's note, which takes so many characters."""
MAX_WARNING_LENGTH: Final = 120
"""What the API asks of a warning; longer ones are shortened by the API server, without mercy."""
MAX_FOREIGN_LENGTH: Final = 256
"""Names and values that a request brings, inside our texts."""
MAX_LISTED: Final = 5

_MORE: Final = "..."


def truncate(text: str, limit: int = MAX_FOREIGN_LENGTH) -> str:
    """Return the text, ended at a word and by `...` where it is longer than the limit."""
    if len(text) <= limit:
        return text
    kept = text[: limit - len(_MORE)]
    whole_words, _, _ = kept.rpartition(" ")
    # A single long word has no good place to end: a name is more useful cut than left out.
    return (whole_words if len(whole_words) > limit // 2 else kept).rstrip(" ,;:") + _MORE


def listed(names: "Iterable[str]", limit: int = MAX_LISTED) -> str:
    """Return the first names in alphabetical order, and how many more there are."""
    ordered = sorted(names)
    shown = ", ".join(truncate(name) for name in ordered[:limit])
    left_out = len(ordered) - limit
    return f"{shown} and {left_out} more" if left_out > 0 else shown


def units(count: int) -> str:
    """Return `1 unit`, `2 units`."""
    return f"{count} unit" if count == 1 else f"{count} units"
