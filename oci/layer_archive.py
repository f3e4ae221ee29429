"""A layer as a compressed archive, the same for the same files wherever and whenever it is written.

Sorted, owner root, time 0, modes of its own. The compressor is zlib: another version of it may give other bytes,
and so another digest, of the same archive.
"""

import gzip
import hashlib
import io
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, final

from api.image_reference import Digest
from kernelcache.image_format import OCI_LAYER, BlobDescriptor
from oci.tar_entries import add_directory, add_file

if TYPE_CHECKING:
    from collections.abc import Mapping

_LEVEL: Final = 6
"""zlib's own default; 9 takes far longer for a hundredth of the size."""
_BUFFER_BYTES: Final = 1024 * 1024


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenLayer:
    """What was written."""

    descriptor: BlobDescriptor
    diff_id: Digest
    """Digest of the archive before it was compressed."""


def write_layer(out: IO[bytes], files: "Mapping[str, bytes | Path]") -> WrittenLayer:
    """Write a layer of files, by their path in it, and of the directories above them.

    Raises:
        OSError: a file cannot be read, or has changed meanwhile.
    """
    compressed = _Digester(out)
    with (
        gzip.GzipFile(
            filename="", mode="wb", compresslevel=_LEVEL, fileobj=compressed, mtime=0
        ) as zipped,
        tarfile.open(
            fileobj=(archive := _Digester(zipped)),
            mode="w|",
            bufsize=_BUFFER_BYTES,
            format=tarfile.PAX_FORMAT,
        ) as tar,
    ):
        for path in sorted(files.keys() | _directories(files)):
            if path in files:
                add_file(tar, path, files[path])
            else:
                add_directory(tar, path)
    return WrittenLayer(
        descriptor=BlobDescriptor(
            media_type=OCI_LAYER, digest=compressed.digest, size=compressed.size
        ),
        diff_id=archive.digest,
    )


@final
class _Digester(io.RawIOBase):
    """Passes bytes on, hashes and counts them; leaves the file behind it open."""

    def __init__(self, out: "IO[bytes] | gzip.GzipFile") -> None:
        self._out = out
        self._hash = hashlib.sha256()
        self.size = 0

    @property
    def digest(self) -> Digest:
        return Digest(f"sha256:{self._hash.hexdigest()}")

    def writable(self) -> bool:
        return True

    def write(self, chunk: "bytes | bytearray | memoryview") -> int:  # type: ignore[override]  # Buffer is of 3.12
        self._hash.update(chunk)
        self._out.write(chunk)
        length = memoryview(chunk).nbytes
        self.size += length
        return length


def _directories(files: "Mapping[str, object]") -> set[str]:
    return {
        parent.as_posix() for path in files for parent in Path(path).parents if parent != Path()
    }
