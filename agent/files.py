"""Files that others follow, and how a follower tells one version, or one process's socket, from the next.

They are replaced at once, and only where something changed: a reader sees the old content or the new, never a
part, and another identity with it (`file_identity`). Temporary files begin with a dot and do not end in
`.json`, so that nobody who scans the directory takes one for a specification.
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
    """Return what tells a file or socket from another of its name; inodes are used again, times are not.

    None where there is none, or where it cannot be looked at. Links are followed.
    """
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino, status.st_ctime_ns)


def read_bytes(path: Path) -> bytes | None:
    """Return what is in the file; None where it is not there or cannot be read."""
    try:
        return path.read_bytes()
    except OSError:
        return None


def replace_file(path: Path, content: bytes) -> bool:
    """Make the file say this; return whether it had to be written.

    The directory is made where it is missing. On an error what was there before is still there, whole.

    Raises:
        OSError: the directory cannot be made or written, or is full.
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
    """Remove the file; return whether it was there.

    Raises:
        OSError: it is there and cannot be removed.
    """
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True
