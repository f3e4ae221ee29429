"""Names of objects that are made of other names: of a system, of a kernel, of an object of a user."""

import hashlib
import re
from typing import Final

LONGEST_NAME: Final = 63
"""Greatest length of a label's value; objects whose pods have a label with their name keep to it."""
_NAME: Final = re.compile(
    r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*", re.ASCII
)
_NO_NAME: Final = re.compile(r"[^a-z0-9.-]+")
_HASH_DIGITS: Final = 10


def object_name(*parts: str) -> str:
    """Join the parts to a name that an object and a label's value can have.

    What is too long, or has a character that is none of a name, is cut and cleaned, and ends with a hash of the whole:
    different parts give different names.
    """
    text = "-".join(parts)
    if len(text) <= LONGEST_NAME and _NAME.fullmatch(text):
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]
    words = (word.strip("-") for word in _NO_NAME.sub("-", text.lower()).split("."))
    cleaned = ".".join(word for word in words if word)
    start = cleaned[: LONGEST_NAME - _HASH_DIGITS - 1].rstrip("-.")
    return f"{start}-{digest}" if start else digest
