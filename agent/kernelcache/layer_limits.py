"""What a layer may hold: figures that a setting may change, and those that no cache comes near."""

from dataclasses import dataclass
from typing import Final, final

GIB: Final = 2**30

MAX_COMPONENT_BYTES: Final = 255
"""Of a file's name (NAME_MAX)."""
MAX_NAME_BYTES: Final = 4095
"""Of an entry's name (PATH_MAX without the NUL)."""
MAX_DEPTH: Final = 64
"""Directories above a file; Triton's caches have one, vLLM's about six."""
MAX_EXPANSION: Final = 200
"""Bytes of the archive for one byte of the layer. Kernels expand about five times, zeros 1,030 times."""
EXPANSION_FROM_BYTES: Final = 16 * 2**20
"""The archive's headers and padding may expand more than that before."""
MAX_GZIP_MEMBERS: Final = 500_000
"""eStargz compresses each file, and each 4 MiB of one, as members of their own."""
MAX_HEADER_BYTES: Final = 64 * 1024
"""Of a pax header: names, times and extended attributes of one entry."""
MAX_CACHE_MANIFEST_BYTES: Final = 8 * 2**20
"""Of the layer's manifest.json: some 300 bytes for a kernel."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionLimits:
    """Limits of one layer."""

    archive_bytes: int = 8 * GIB
    """Of the decompressed archive, its headers included."""
    file_bytes: int | None = None
    """Of the extracted files, where the node's quota leaves fewer; None is no limit of its own."""
    entries: int = 100_000
    """Entries of the archive, and the directories that they imply."""
