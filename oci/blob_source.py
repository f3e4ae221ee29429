"""Blobs to be pushed or written: from memory or from a file, opened again for each attempt."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from api.image_reference import Digest
from kernelcache.image_format import BlobDescriptor
from oci.verified_stream import digest_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

_CHUNK_BYTES: Final = 1024 * 1024


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BlobSource:
    """A blob and where its bytes are."""

    descriptor: BlobDescriptor
    content: "bytes | Path"

    @classmethod
    def of(cls, media_type: str, content: bytes) -> "BlobSource":
        """Return the blob of bytes in memory."""
        digest = Digest(digest_of(content))
        descriptor = BlobDescriptor(media_type=media_type, digest=digest, size=len(content))
        return cls(descriptor=descriptor, content=content)

    async def stream(self) -> "AsyncIterator[bytes]":
        """Yield the bytes without blocking the loop.

        Raises:
            OSError: the file cannot be read.
        """
        if isinstance(self.content, bytes):
            yield self.content
            return
        with await asyncio.to_thread(self.content.open, "rb") as file:
            while chunk := await asyncio.to_thread(file.read, _CHUNK_BYTES):
                yield chunk
