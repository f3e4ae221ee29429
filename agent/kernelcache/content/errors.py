"""Errors of the node's store of kernel caches; they are below the root of the agent's tree.

AgentError
└── KernelCacheError
    ├── LayerRefusedError   the layer breaks a rule: extracted again, it is refused again
    ├── StoreError          the store's directory or its disk cannot be used: worth another attempt
    ├── PullSecretError     a pull secret cannot be read: worth another attempt
    └── VolumesUnknownError the mounts of the node's pods cannot be read, so that no content may be removed
"""

import contextlib
import errno
import os
from enum import Enum
from typing import TYPE_CHECKING, Final, final

from agent.errors import AgentError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@final
class LayerFault(Enum):
    """The rule that a layer breaks."""

    NOT_GZIP = "not gzip"
    ZSTD = "zstd"
    DAMAGED = "damaged"
    """Damage of the compression or of the archive."""
    CUT = "cut"
    TRAILING_DATA = "trailing data"
    TOO_LARGE = "too large"
    EXPANDS = "expands"
    """A bomb: the bytes are far more than their compressed form."""
    TOO_MANY_ENTRIES = "too many entries"
    BAD_NAME = "bad name"
    BAD_ENTRY = "bad entry"
    """No file and no directory, or with rights that a cache has no use for."""
    DUPLICATE = "duplicate"
    BAD_MANIFEST = "bad manifest"
    NO_FILES = "no files"


@final
class StoreFault(Enum):
    """Why the store cannot be used."""

    LOST = "lost"
    """The directory that was opened is no longer at its place."""
    READ_ONLY = "read-only"
    FULL = "full"
    IN_USE = "in use"
    """Another process has it."""
    DAMAGED = "damaged"
    """A content has no readable record."""
    BUSY = "busy"
    """The content cannot be removed yet: a cache's name is bound to it."""
    ABSENT = "absent"
    """The content is not in the store."""
    FAILED = "failed"


class KernelCacheError(AgentError):
    """Base class."""


class LayerRefusedError(KernelCacheError):
    """A layer is not extracted; the text says why."""

    def __init__(self, fault: LayerFault, text: str) -> None:
        super().__init__(text)
        self.fault = fault


class StoreError(KernelCacheError):
    """The store cannot be used; the text names it, the cause and the cure."""

    def __init__(self, fault: StoreFault, text: str) -> None:
        super().__init__(text)
        self.fault = fault


class PullSecretError(KernelCacheError):
    """A pull secret of a cache cannot be read; the text names it, and the cure."""


class VolumesUnknownError(KernelCacheError):
    """Mounts or kubelet's directory cannot be read; the text names the file and the cause."""


_FAULTS: Final = {
    errno.EROFS: StoreFault.READ_ONLY,
    errno.ENOSPC: StoreFault.FULL,
    errno.EDQUOT: StoreFault.FULL,
    errno.ENOENT: StoreFault.LOST,
    errno.ESTALE: StoreFault.LOST,
}
_CURES: Final = {
    errno.EROFS: "mount it writable",
    errno.ENOSPC: "free space or inodes on its file system, or lower the quota of the caches",
    errno.EDQUOT: "raise the quota of its file system, or lower that of the caches",
    errno.ENOENT: "it was removed or replaced: restart the agent, which extracts the caches again",
    errno.ESTALE: "it was removed or replaced: restart the agent, which extracts the caches again",
    errno.EACCES: "the agent must run as root",
    errno.EPERM: "the agent must run as root",
    errno.ELOOP: "a part of it is a symbolic link: remove it",
    errno.ENOTDIR: "a part of it is no directory: remove it",
    errno.EIO: "its disk fails: see the node's kernel log",
}


def store_error(root: "Path", error: OSError) -> StoreError:
    """Return what an error of the operating system means for the store."""
    number = error.errno or 0
    cause = os.strerror(number) if number else str(error)
    cure = _CURES.get(number)
    text = f"the store of kernel caches {root} cannot be used: {cause}"
    return StoreError(_FAULTS.get(number, StoreFault.FAILED), f"{text}; {cure}" if cure else text)


@contextlib.contextmanager
def store_errors(root: "Path") -> "Iterator[None]":
    """Raise each error of the operating system as the store's."""
    try:
        yield
    except OSError as error:
        raise store_error(root, error) from error
