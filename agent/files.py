"""Files that others follow: replaced at once, and only where something changed.

A reader sees the old content or the new, never a part; its inode tells one version from the next. Temporary
files begin with a dot and do not end in `.json`, so that nobody who scans the directory takes one for a
specification.
"""

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Final

FILE_MODE: Final = 0o644
DIRECTORY_MODE: Final = 0o755


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
