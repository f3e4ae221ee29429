"""Files that show which steps have passed on this node: `/run/nvidia/validations/<step>-ready`.

Their names, and the content of `driver-ready`, are those of the validator of NVIDIA's GPU Operator, for which
containers of NVIDIA's wait. A file is replaced atomically, so that a reader has all of it or none. The directory and
the files are opened without following a link: a process of the node that may write there cannot lead a privileged
container to another file.
"""

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from agent.errors import ReadyFilesError
from agent.files import DIRECTORY_MODE, FILE_MODE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from agent.validator.steps import ValidationStep

_DIRECTORY_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CURES: Final = {
    errno.EROFS: "mount it writable",
    errno.ENOSPC: "free space on its file system",
    errno.EACCES: "the container must run as root",
    errno.EPERM: "the container must run as root",
    errno.ELOOP: "it is a symbolic link: remove it",
    errno.ENOTDIR: "it is no directory: remove it",
    errno.EISDIR: "there is a directory of this name: remove it",
}


@final
class ReadyFiles:
    """The files in one directory; each method is one step."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, step: "ValidationStep", content: "Mapping[str, str]") -> None:
        """Write the file of a step that has passed.

        Raises:
            ReadyFilesError: it cannot be written; the text has the cure. The old content is gone then.
        """
        text = "".join(f"{key}={value}\n" for key, value in content.items())
        path = self._directory / step.ready_file
        # One name a step: what a killed process left is found and removed.
        temporary = f".{step.ready_file}.new"
        with _explained(path), self._opened(is_made=True) as directory:
            _unlink(temporary, directory)
            descriptor = os.open(temporary, _FILE_FLAGS, FILE_MODE, dir_fd=directory)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(text.encode())
                os.rename(temporary, path.name, src_dir_fd=directory, dst_dir_fd=directory)
            except OSError:
                _unlink(temporary, directory)
                _unlink(path.name, directory)
                raise

    def remove(self, steps: "Iterable[ValidationStep]") -> None:
        """Remove the files of steps; missing ones are no error.

        Raises:
            ReadyFilesError: one cannot be removed; the text has the cure.
        """
        for step in steps:
            path = self._directory / step.ready_file
            with (
                _explained(path),
                contextlib.suppress(FileNotFoundError),
                self._opened(is_made=False) as directory,
            ):
                _unlink(path.name, directory)

    def has(self, step: "ValidationStep") -> bool:
        """Whether the file is there. A link, or a directory of that name, is none."""
        try:
            with self._opened(is_made=False) as directory:
                status = os.stat(step.ready_file, dir_fd=directory, follow_symlinks=False)
        except OSError:
            return False
        return stat.S_ISREG(status.st_mode)

    @contextlib.contextmanager
    def _opened(self, *, is_made: bool) -> "Iterator[int]":
        if is_made:
            with contextlib.suppress(FileExistsError):
                self._directory.mkdir(DIRECTORY_MODE, parents=True)
        descriptor = os.open(self._directory, _DIRECTORY_FLAGS)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def _unlink(name: str, directory: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)


@contextlib.contextmanager
def _explained(path: Path) -> "Iterator[None]":
    try:
        yield
    except OSError as error:
        # With O_DIRECTORY, Linux reports a link as ENOTDIR.
        number = errno.ELOOP if path.parent.is_symlink() else error.errno
        where = path.parent if number in {errno.ELOOP, errno.ENOTDIR} else path
        cure = _CURES.get(number or 0, "see the node's file system")
        raise ReadyFilesError(
            f"{where} cannot be written ({error.strerror or error}): {cure}"
        ) from error
