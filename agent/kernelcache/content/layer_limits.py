"""What a layer may hold: figures that a setting may change, and those that no cache comes near."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

GIB: Final = 2**30

MAX_COMPONENT_BYTES: Final = 255
"""Most bytes of a file's name (NAME_MAX)."""
MAX_NAME_BYTES: Final = 4095
"""Most bytes of an entry's name (PATH_MAX without the NUL)."""
MAX_DEPTH: Final = 64
"""Directories above a file; Triton's caches have one, vLLM's about six."""
MAX_EXPANSION: Final = 200
"""Bytes of the archive for one byte of the layer. Kernels expand about five times, zeros 1,030 times."""
EXPANSION_FROM_BYTES: Final = 16 * 2**20
"""The archive's headers and padding may expand more than that before."""
MAX_GZIP_MEMBERS: Final = 500_000
"""eStargz compresses each file, and each 4 MiB of one, as members of their own."""
MAX_HEADER_BYTES: Final = 64 * 1024
"""Most bytes of a pax header: names, times and extended attributes of one entry."""
MAX_CACHE_MANIFEST_BYTES: Final = 8 * 2**20
"""Most bytes of the layer's manifest.json: some 300 bytes for a kernel."""


BLOCK_BYTES: Final = 4096
"""What the smallest file takes of a disk: ext4 and xfs, as they are made by default, give out no less."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FreeSpaceFloor:
    """What extractions leave free of the store's file system, whatever the quota says.

    Neither part is below that at which kubelet evicts pods by default: 10 % of the bytes of its own file system, 15 %
    of that of images, and 5 % of the inodes.
    """

    bytes_part: float = 0.15
    inodes_part: float = 0.10
    read: Callable[[int], os.statvfs_result] = os.fstatvfs
    """Return what the file system of an open directory has."""

    def free_bytes(self, directory: int) -> int:
        """Return the bytes that may still be taken; below 0 where others have taken of what is kept."""
        found = self.read(directory)
        return found.f_bavail * found.f_frsize - self._least_bytes(found)

    def _least_bytes(self, found: os.statvfs_result) -> int:
        return int(self.bytes_part * found.f_blocks * found.f_frsize)

    def shortage(self, directory: int, needs_bytes: int) -> str:
        """Return what would be missing after a file of so many bytes; empty while there is enough."""
        found = self.read(directory)
        free = found.f_bavail * found.f_frsize
        least = self._least_bytes(found)
        # Zero where the file system makes inodes as they are needed, as btrfs does.
        least_inodes = int(self.inodes_part * found.f_files)
        if free - needs_bytes >= least and (not found.f_files or found.f_favail > least_inodes):
            return ""
        return (
            f"its file system has {free} bytes and {found.f_favail} inodes free, of which"
            f" {least} bytes and {least_inodes} inodes are kept for others"
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionLimits:
    """Limits of one layer."""

    archive_bytes: int = 8 * GIB
    """Bytes of the decompressed archive, its headers included."""
    disk_bytes: int | None = None
    """Bytes of the disk that the extracted files take, where the node's quota leaves fewer; None is no limit of
    its own."""
    floor: FreeSpaceFloor = FreeSpaceFloor()
    entries: int = 100_000
    """Entries of the archive, and the directories that they imply."""


def disk_bytes_of(size: int) -> int:
    """Return what a file of that size takes of the disk; an empty one, or a directory, takes an inode as well."""
    return max(-(-size // BLOCK_BYTES), 1) * BLOCK_BYTES
