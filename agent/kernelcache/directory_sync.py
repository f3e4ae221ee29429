"""Durability of what was written: one file system at once, or one directory.

`syncfs(2)` writes all of a file system's dirty pages at once: one call for a cache of thousands of files, each of
which would cost an `fsync` of its own. Python has no function for it.
"""

import ctypes
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_libc: Final = ctypes.CDLL(None, use_errno=True)
_OPENED: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def sync_file_system(directory: "Path") -> None:
    """Write all that is dirty on the directory's file system to its disk.

    Raises:
        OSError: it cannot be written, or an earlier write has failed.
    """
    opened = os.open(directory, _OPENED)
    try:
        if _libc.syncfs(opened) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(directory))
    finally:
        os.close(opened)


def sync_directory(directory: "Path") -> None:
    """Write the directory's names to its disk.

    Raises:
        OSError: they cannot be written.
    """
    opened = os.open(directory, _OPENED)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
