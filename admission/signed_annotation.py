"""Annotations with a signature: JSON objects that a replica of this control plane wrote, unchanged.

The signature is the last member of the object, so it is appended to the encoded text. It covers what the annotation is
about besides its content, which the annotation does not have.
"""

import hmac
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Sign = Callable[[bytes], str]

_encode: Final = msgspec.json.Encoder().encode
_SIGNATURE: Final = ',"seal":'


def with_signature(content: bytes, about: "Sequence[object]", sign: "Sign") -> str:
    """Return a JSON object that is not signed yet with its signature."""
    signature = _encode(_signature_of(content, about, sign)).decode()
    return f"{content[:-1].decode()}{_SIGNATURE}{signature}}}"


def has_signature(text: str, about: "Sequence[object]", sign: "Sign") -> bool:
    """Say whether a replica of this control plane wrote the annotation, about the same.

    The text is verified as it is, not what this version reads in it: one of another version has more fields.
    """
    content, separator, given = text.rpartition(_SIGNATURE)
    if not separator:
        return False
    signature = _signature_of(content.encode("utf-8", "replace") + b"}", about, sign)
    # In constant time: any client that reaches the port can send annotations.
    return hmac.compare_digest(given.encode("utf-8", "replace"), _encode(signature) + b"}")


def _signature_of(content: bytes, about: "Sequence[object]", sign: "Sign") -> str:
    return sign(b"%b,%b]" % (_encode(about)[:-1], content))
