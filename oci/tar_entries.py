"""Files and directories in a tar: owner root, time 0, modes of our own."""

import io
import tarfile
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_DIRECTORY_MODE: Final = 0o755
_FILE_MODE: Final = 0o644


def add_directory(tar: tarfile.TarFile, path: str) -> None:
    info = tarfile.TarInfo(path)
    info.type, info.mode = tarfile.DIRTYPE, _DIRECTORY_MODE
    tar.addfile(info)


def add_file(tar: tarfile.TarFile, path: str, content: "bytes | Path") -> None:
    """Add bytes, or those of a file.

    Raises:
        OSError: the file cannot be read, or became shorter meanwhile.
    """
    info = tarfile.TarInfo(path)
    info.mode = _FILE_MODE
    if isinstance(content, bytes):
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
        return
    with content.open("rb") as file:
        info.size = file.seek(0, io.SEEK_END)
        file.seek(0)
        tar.addfile(info, file)
