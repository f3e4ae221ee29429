"""The pool's file: read whole, and read again when it changed.

A ConfigMap is mounted as links into a directory that is replaced atomically, so the file at a path is
complete, and its identity changes with each version; one check a second needs no inotify.
"""

import gzip
import zlib
from pathlib import Path
from typing import final

import msgspec

from agent.errors import BadPoolConfigError
from agent.files import file_identity
from api.field_errors import UNDECODABLE
from api.nodefiles.poolconfig import CONFIG_KEY, PACKED_CONFIG_KEY, PoolConfig

MAX_BYTES = 64 * 1024 * 1024
"""Unpacked; a million devices."""


def read_config(path: Path) -> PoolConfig:
    """Read the file, or the packed one beside it where there is none.

    Raises:
        BadPoolConfigError: it cannot be read, unpacked or decoded.
    """
    packed = path.with_name(PACKED_CONFIG_KEY)
    try:
        if not path.exists() and packed.exists():
            with gzip.open(packed) as file:
                content = file.read(MAX_BYTES + 1)
        else:
            content = path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise BadPoolConfigError(f"{path} cannot be read: {error}") from error
    if len(content) > MAX_BYTES:
        raise BadPoolConfigError(f"{path} is larger than {MAX_BYTES // 2**20} MiB")
    try:
        return msgspec.json.decode(content, type=PoolConfig)
    except UNDECODABLE as error:
        raise BadPoolConfigError(f"{path} is not a pool configuration: {error}") from error


@final
class ConfigFile:
    """The file and the version that was read last."""

    def __init__(self, path: Path) -> None:
        """Take the path, or the directory that holds a file of the usual name."""
        self.path = path / CONFIG_KEY if path.is_dir() else path
        self._seen: tuple[object, ...] | None = None

    def read_if_changed(self) -> PoolConfig | None:
        """Return the configuration, None where the file has not changed.

        Raises:
            BadPoolConfigError: the file is invalid; the same version is not read again.
        """
        identity = self._identity()
        if identity == self._seen:
            return None
        self._seen = identity
        return read_config(self.path)

    def _identity(self) -> tuple[object, ...]:
        packed = self.path.with_name(PACKED_CONFIG_KEY)
        return (file_identity(self.path), file_identity(packed))
