"""The bytes of a blob, counted and hashed as they pass."""

import hashlib
from typing import TYPE_CHECKING, final

from oci.errors import DigestMismatch, LengthMismatch

if TYPE_CHECKING:
    from kernelcache.image_format import BlobDescriptor

_CURE = "push the image again, or look into what is between here and the registry"


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@final
class VerifiedStream:
    """What has come of one blob."""

    def __init__(self, name: str, descriptor: "BlobDescriptor") -> None:
        self.name = name
        self.descriptor = descriptor
        self._hash = hashlib.sha256()
        self.received = 0

    @property
    def is_complete(self) -> bool:
        return self.received == self.descriptor.size

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes.

        Raises:
            LengthMismatch: they are more than the descriptor says; none of them has been taken.
        """
        if self.received + len(chunk) > self.descriptor.size:
            raise LengthMismatch(
                self.name, f"it has more than the {self.descriptor.size} bytes announced", _CURE
            )
        self._hash.update(chunk)
        self.received += len(chunk)

    def check_remaining(self, length: int | None) -> None:
        """Check what the registry says will come.

        Raises:
            LengthMismatch: it is not what is missing.
        """
        missing = self.descriptor.size - self.received
        if length is not None and length != missing:
            raise LengthMismatch(
                self.name,
                f"the registry has {self.received + length} bytes of it,"
                f" {self.descriptor.size} are announced",
                _CURE,
            )

    def check_digest(self) -> None:
        """Check the whole.

        Raises:
            DigestMismatch: the bytes are others than the digest says.
        """
        found = f"sha256:{self._hash.hexdigest()}"
        if found != self.descriptor.digest:
            raise DigestMismatch(self.name, f"its content is {found}", _CURE)
