"""The store's directory: its paths and small files, and what is found there at a start.

    <root>/lock                                     held by the one process that has the store open
    <root>/names.json                               which cache's name is bound to which digest
    <root>/content/sha256-<hex>/content.json        what it is, and its size; its time is that of the last use
    <root>/content/sha256-<hex>/files/              what pods mount
    <root>/tmp/                                     extractions and removals under way; emptied at each start

Names of caches are in a file, and never become a part of a path. This is blocking code.
"""

import contextlib
import ctypes
import datetime as dt
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import msgspec
import structlog

from agent.files import replace_file
from agent.kernelcache.content.layer_limits import disk_bytes_of
from api.cache_name import CacheName, CacheNameError, parse_cache_name
from api.image_reference import Digest, parse_digest

if TYPE_CHECKING:
    from collections.abc import Mapping

CONTENT: Final = "content"
FILES: Final = "files"
RECORD: Final = "content.json"
TEMPORARY: Final = "tmp"
NAMES: Final = "names.json"
LOCK: Final = "lock"
DIRECTORY_MODE: Final = 0o755
_MOST_RECORD_BYTES: Final = 64 * 1024

_log = structlog.get_logger()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class StoredContent:
    """A content of the store."""

    digest: Digest
    cache_type: str
    """Cache type as in the image's labels; nothing here depends on it, so that a content of a later version's type
    is served."""
    size_bytes: int
    """Size in bytes of its files."""
    disk_bytes: int
    """What they take of the disk; the quota counts these."""
    files: int
    has_shared_objects: bool
    """A mount with `noexec` would break it."""
    extracted_at: dt.datetime
    used_at: dt.datetime
    """When a volume used it last, or when it was extracted."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FoundContents:
    """What a start finds."""

    contents: "Mapping[Digest, StoredContent]"
    damaged: frozenset[Digest]
    """Contents without a readable record."""
    names: "Mapping[CacheName, Digest]"
    """Names of the contents that are there."""


@final
class _Record(msgspec.Struct, frozen=True, rename="camel"):
    """`content.json`; an older version reads no `diskBytes`, and has not written it."""

    digest: str
    type: str
    size_bytes: int
    files: int
    has_shared_objects: bool
    extracted_at: dt.datetime
    disk_bytes: int | None = None


@final
class _BoundName(msgspec.Struct, frozen=True, order=True):
    """An entry of `names.json`."""

    namespace: str
    """Empty for a ClusterGKMCache."""
    name: str
    digest: str


def directory_name(digest: Digest) -> str:
    """Return the name of a content's directory."""
    return digest.replace(":", "-", 1)


def digest_of_directory(name: str) -> Digest | None:
    """Return the digest of a content's directory; None for another name."""
    algorithm, _, encoded = name.partition("-")
    return parse_digest(f"{algorithm}:{encoded}")


def content_directory(root: Path, digest: Digest) -> Path:
    return root / CONTENT / directory_name(digest)


def make_directories(root: Path) -> None:
    """Create what is missing of the store's directories.

    Raises:
        OSError: one cannot be created, or is a link or no directory.
    """
    root.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
    for directory in (root / CONTENT, root / TEMPORARY):
        directory.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        os.close(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW))


def make_temporary(root: Path) -> Path:
    """Create a directory of its own for an extraction or a removal."""
    return Path(tempfile.mkdtemp(dir=root / TEMPORARY))


def read_store(root: Path) -> FoundContents:
    """Remove what an ended process left, and return what is there."""
    for path in (root / TEMPORARY).iterdir():
        remove_tree(path)
    for path in root.glob(f".{Path(NAMES).stem}-*.new"):
        path.unlink()
    contents: dict[Digest, StoredContent] = {}
    damaged: set[Digest] = set()
    for path in (root / CONTENT).iterdir():
        digest = digest_of_directory(path.name)
        if digest is None:
            _log.warning("no kernel cache", path=str(path))
            continue
        content = _read_content(path, digest)
        if content is None:
            damaged.add(digest)
            _log.warning("kernel cache without a readable record", path=str(path))
        else:
            contents[digest] = content
    names = {name: digest for name, digest in _read_names(root).items() if digest in contents}
    return FoundContents(contents=contents, damaged=frozenset(damaged), names=names)


def write_record(directory: Path, content: StoredContent) -> None:
    """Write the record of a content that is not in the store yet."""
    record = _Record(
        digest=content.digest,
        type=content.cache_type,
        size_bytes=content.size_bytes,
        disk_bytes=content.disk_bytes,
        files=content.files,
        has_shared_objects=content.has_shared_objects,
        extracted_at=content.extracted_at,
    )
    path = directory / RECORD
    path.write_bytes(msgspec.json.encode(record))
    write_use(path, content.used_at)


def write_use(record: Path, used_at: dt.datetime) -> None:
    """Write the time of the last use."""
    time_ns = int(used_at.timestamp() * 1_000_000) * 1_000
    os.utime(record, ns=(time_ns, time_ns))


def write_names(root: Path, names: "Mapping[CacheName, Digest]") -> None:
    """Replace the names' file where it differs; after an error the old one is there, whole."""
    entries = sorted(
        _BoundName(namespace=name.namespace, name=name.name, digest=digest)
        for name, digest in names.items()
    )
    if replace_file(root / NAMES, msgspec.json.encode(entries)):
        sync_directory(root)


def remove_tree(path: Path) -> None:
    """Remove a file, or a directory whose directories may be without the right to write; it may be gone.

    A thread of a store that was closed may remove the same at the same time: an extraction that was cancelled.

    Raises:
        OSError: a part of it cannot be removed.
    """
    while os.path.lexists(path):
        # Where a part is gone meanwhile, the next round removes the others.
        with contextlib.suppress(FileNotFoundError):
            if path.is_symlink() or not path.is_dir():
                path.unlink()
                return
            for _, _, _, opened in os.fwalk(path):
                os.fchmod(opened, DIRECTORY_MODE)
            shutil.rmtree(path)


def _read_content(directory: Path, digest: Digest) -> StoredContent | None:
    try:
        with (directory / RECORD).open("rb") as file:
            record = msgspec.json.decode(file.read(_MOST_RECORD_BYTES), type=_Record)
            used_at = dt.datetime.fromtimestamp(os.fstat(file.fileno()).st_mtime, dt.UTC)
        disk_bytes = record.disk_bytes
        if disk_bytes is None:
            disk_bytes = _measured_disk_bytes(directory / FILES)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    if record.digest != digest or not (directory / FILES).is_dir():
        return None
    return StoredContent(
        digest=digest,
        cache_type=record.type,
        size_bytes=record.size_bytes,
        disk_bytes=disk_bytes,
        files=record.files,
        has_shared_objects=record.has_shared_objects,
        extracted_at=record.extracted_at,
        used_at=used_at,
    )


def _measured_disk_bytes(directory: Path) -> int:
    """Return what the files below take of the disk, for a record of a version that did not write it."""
    return sum(
        disk_bytes_of(os.lstat(name, dir_fd=opened).st_size if name in files else 0)
        for _, directories, files, opened in os.fwalk(directory)
        for name in (*directories, *files)
    )


def _read_names(root: Path) -> dict[CacheName, Digest]:
    path = root / NAMES
    found: dict[CacheName, Digest] = {}
    try:
        entries = msgspec.json.decode(path.read_bytes(), type=list[_BoundName])
    except FileNotFoundError:
        return {}
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        # The caches' objects have the names as well: they are bound again from there.
        _log.warning("names of kernel caches not read", path=str(path), error=str(error))
        return {}
    for entry in entries:
        digest = parse_digest(entry.digest)
        try:
            name = parse_cache_name(entry.namespace, entry.name)
        except CacheNameError as error:
            _log.warning("name of a kernel cache not read", path=str(path), error=str(error))
            continue
        if digest is not None:
            found[name] = digest
    return found


_libc: Final = ctypes.CDLL(None, use_errno=True)
_OPENED: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def sync_file_system(directory: "Path") -> None:
    """Write all that is dirty on the directory's file system to its disk.

    One `syncfs(2)`, for which Python has no function, in place of an `fsync` of each of a cache's thousands of files.

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
