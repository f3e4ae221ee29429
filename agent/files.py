"""Files with other readers: atomic replacement, and the identity of one version of a file or socket.

A file is replaced atomically, and only where its content changed: a reader has the old content or the new, never a
part, and another identity with it (`file_identity`). Temporary files begin with a dot and do not end in `.json`, so
that no scan of the directory takes one for a specification.
"""

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Final

FILE_MODE: Final = 0o644
DIRECTORY_MODE: Final = 0o755

FileIdentity = tuple[int, int, int]


def file_identity(path: Path) -> FileIdentity | None:
    """Return a value that differs between two files or sockets of one name; inodes are reused, times are not.

    None for a missing or unreadable one. Links are followed.
    """
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino, status.st_ctime_ns)


def read_bytes(path: Path) -> bytes | None:
    """Return the file's content; None for a missing or unreadable one."""
    try:
        return path.read_bytes()
    except OSError:
        return None


def replace_file(path: Path, content: bytes) -> bool:
    """Write the file if its content differs; return whether it was written.

    A missing directory is created. After an error the old content is still there, whole.

    Raises:
        OSError: the directory cannot be created or written, or is full.
    """
    if read_bytes(path) == content:
        return False
    path.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=".new", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), FILE_MODE)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    return True


def remove_file(path: Path) -> bool:
    """Remove the file; return whether it existed.

    Raises:
        OSError: it exists and cannot be removed.
    """
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True
