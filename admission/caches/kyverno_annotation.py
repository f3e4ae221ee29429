"""Kyverno's annotation on a cache, which says which images it has verified.

It counts only where the operator says so, since without Kyverno's policy any user can write it; and only for
exactly the image and digest that the object names (W3).
"""

from typing import TYPE_CHECKING, Final

import msgspec

from api.field_errors import UNDECODABLE
from api.image_reference import ImageReference, ImageReferenceError, parse_image_reference
from api.names import KYVERNO_ANNOTATION

if TYPE_CHECKING:
    from collections.abc import Mapping

_GOOD: Final = "pass"
_verified: Final = msgspec.json.Decoder(dict[str, str])


def has_kyverno_verified(annotations: "Mapping[str, str]", image: ImageReference) -> bool:
    """Say whether the annotation has this image with this digest, and nothing but `pass` for it."""
    text = annotations.get(KYVERNO_ANNOTATION)
    if text is None or image.digest is None:
        return False
    try:
        listed = _verified.decode(text)
    except UNDECODABLE:
        return False
    found = [result for key, result in listed.items() if _names(key, image)]
    return bool(found) and all(result == _GOOD for result in found)


def _names(key: str, image: ImageReference) -> bool:
    try:
        found = parse_image_reference(key)
    except ImageReferenceError:
        return False
    is_same = (found.registry, found.repository, found.digest) == (
        image.registry,
        image.repository,
        image.digest,
    )
    # Kyverno leaves out the tag beside a digest; where it is there, it is compared.
    return is_same and found.tag in {None, image.tag}
