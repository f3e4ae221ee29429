"""CEL expressions that several policies use."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

KEPT_BY_API_SERVER: Final = ("managedFields", "resourceVersion", "generation")
"""Fields of metadata that change with every write."""


def cel_list(words: "Sequence[str]") -> str:
    """Return a CEL list of the words, none of which contains a quote or a backslash."""
    return "[" + ", ".join(f"'{word}'" for word in words) + "]"


def same_but(path: str, keys: "Sequence[str]", *, beside: str = "") -> str:
    """Return an expression: an update leaves all entries of a map unchanged except the keys.

    `path` begins below the object; its last step may be optional (`metadata.?labels`). `beside` is
    an expression under which a further key `k` may differ.
    """
    # As dyn: the API server's type check knows no key of a map by a variable.
    new, old = (
        f"dyn({one}).{path}{'.orValue({})' if '?' in path else ''}"
        for one in ("object", "oldObject")
    )
    allowed = [f"k in {cel_list(keys)}"] if keys else []
    allowed += [beside] if beside else []
    return f"[{new}, {old}].all(m, m.all(k, {' || '.join([*allowed, f'{new}[?k] == {old}[?k]'])}))"
