"""The signature under an annotation with a resolved digest: this control plane wrote it, for this object (W2, W5).

It covers namespace, name, generation, image, digest and what the image says of itself, so it proves nothing for
another object, nor for the same object once its spec has changed. Every part is preceded by its length: no two
subjects have the same content.

Reservations of pods have a signer of their own (`server.reservations.signer`), which does not fit: its key is
never rotated, because a reservation lives for minutes. These annotations live as long as the cache. During a
rotation two keys are valid; an annotation under the previous one is to be signed again.
"""

import base64
import hashlib
import hmac
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from api.image_reference import Digest

MIN_MUTATION_KEY_BYTES: Final = 32
_DOMAIN: Final = "gkm.io/mutationSig/v1"
"""Keeps the content apart from that of any other use of the key."""
_LENGTH_BYTES: Final = 8


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class MutationSubject:
    """What one signature is for."""

    namespace: str
    """Empty for an object of the cluster."""
    name: str
    generation: int
    """Generation of the object as it is stored: 1 when it is created, and one more with each change of its spec.
    The API server counts after the mutating webhook, which therefore says what it will be."""
    image: str
    digest: "Digest"
    image_facts: str
    """The annotation with what the image says of itself, as it is written (`api.names.CACHE_IMAGE_ANNOTATION`)."""


class SignedWith(Enum):
    """The key under a signature that is ours."""

    CURRENT = "Current"
    PREVIOUS = "Previous"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class MutationKeys:
    """The key that signs, and during a rotation the one before it, which verifies."""

    current: bytes = field(repr=False)
    previous: bytes | None = field(repr=False)

    def __post_init__(self) -> None:
        for key in (self.current, self.previous):
            if key is not None and len(key) < MIN_MUTATION_KEY_BYTES:
                raise ValueError(
                    f"a key for mutation signatures has {len(key)} bytes;"
                    f" at least {MIN_MUTATION_KEY_BYTES} are needed"
                )


def sign_mutation(subject: MutationSubject, keys: MutationKeys) -> str:
    """Return the signature, Base64."""
    return _signature(_content(subject), keys.current)


def mutation_signed_with(
    subject: MutationSubject, signature: str, keys: MutationKeys
) -> SignedWith | None:
    """Return which key signed exactly this subject, or None where none of them has.

    In constant time for each key: any client can send objects.
    """
    content, given = _content(subject), signature.encode("utf-8", "replace")
    if hmac.compare_digest(_signature(content, keys.current).encode(), given):
        return SignedWith.CURRENT
    if keys.previous is not None and hmac.compare_digest(
        _signature(content, keys.previous).encode(), given
    ):
        return SignedWith.PREVIOUS
    return None


def _signature(content: bytes, key: bytes) -> str:
    return base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode("ascii")


def _content(subject: MutationSubject) -> bytes:
    parts = (
        _DOMAIN,
        subject.namespace,
        subject.name,
        str(subject.generation),
        subject.image,
        subject.digest,
        subject.image_facts,
    )
    # Lone surrogates, which JSON can carry, stay apart from each other and from every character.
    encoded = [part.encode("utf-8", "surrogatepass") for part in parts]
    return b"".join(len(part).to_bytes(_LENGTH_BYTES, "big") + part for part in encoded)
