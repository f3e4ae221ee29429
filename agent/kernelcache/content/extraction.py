"""Extraction of a layer into an empty directory: the cache's files, with names, rights and times of our own.

Of an image's layer only the directory of its cache's type is extracted; the rest of a base image is left out, links
and devices included. Names that leave the archive's root are refused wherever they are. Inside the cache there are
files and directories only, and no two entries of one name: a file is created, never opened, so that the file system
itself finds them without a list in memory. `tarfile`'s data filter sees each entry once more.

This is blocking code for a thread. The caller owns the directory, and removes it after an error.
"""

import os
import stat
import struct
import tarfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import msgspec

from agent.kernelcache.content.archive import (
    ArchiveEntry,
    EntryKind,
    quoted,
    read_entries,
    too_many_entries,
)
from agent.kernelcache.content.errors import LayerFault, LayerRefusedError, StoreError, StoreFault
from agent.kernelcache.content.gzip_stream import GzipStream
from agent.kernelcache.content.layer_limits import (
    BLOCK_BYTES,
    MAX_CACHE_MANIFEST_BYTES,
    MAX_DEPTH,
    ExtractionLimits,
    disk_bytes_of,
)
from kernelcache.image_format import CacheType

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE_MODE: Final = 0o444
DIRECTORY_MODE: Final = 0o555
WRITABLE_MODE: Final = 0o755
"""Writable mode of directories during extraction."""
OWN_TIME_NS: Final = 315_532_800 * 10**9
"""1980-01-01: of every file, so that two nodes have the same; zip files, which pods may make, have none before."""

_CREATED: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OPENED: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OWNER_ONLY: Final = 0o600
_TARFILE_FILTERS: Final = hasattr(tarfile, "data_filter")
"""Whether tarfile has filters, from Python 3.11.4 on; the image has Debian's 3.11.2."""
_SET_ID: Final = stat.S_ISUID | stat.S_ISGID

_ELF: Final = b"\x7fELF"
_ELF_MACHINE: Final = struct.Struct("<18xH")
_DEVICE_MACHINES: Final = frozenset({190, 224})
"""EM_CUDA and EM_AMDGPU: the driver loads these, the processor does not execute them."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractedLayer:
    """What was extracted."""

    size_bytes: int
    """Size in bytes of all files."""
    disk_bytes: int
    """What files and directories take of the disk: whole blocks, and at least one for each of them."""
    files: int
    has_shared_objects: bool
    """A file is to be executed or loaded by the processor, as Triton's `__triton_launcher.so`: `noexec` breaks it."""


def extract_layer(
    chunks: "Iterator[bytes | memoryview]",
    directory: "Path",
    *,
    cache_type: CacheType,
    limits: ExtractionLimits,
) -> ExtractedLayer:
    """Extract the files of the cache's type into the empty directory; its files are not yet on the disk.

    Raises:
        LayerRefusedError: the layer breaks a rule; files may have been written.
        StoreError: the disk has no more than what is kept free (FULL).
        OSError: the directory cannot be written, or its disk is full.
    """
    root = os.open(directory, _OPENED)
    try:
        files = _CacheFiles(directory, root, limits)
        _extract_entries(GzipStream(chunks, limits), files, cache_type=cache_type, limits=limits)
        return files.completed(cache_type)
    finally:
        os.close(root)


def _extract_entries(
    stream: GzipStream, files: "_CacheFiles", *, cache_type: CacheType, limits: ExtractionLimits
) -> None:
    has_manifest = False
    for entry in read_entries(stream, limits):
        if entry.name in _OTHER_MANIFESTS[cache_type]:
            raise LayerRefusedError(
                LayerFault.BAD_MANIFEST,
                f"the image's labels say {cache_type.value}, and its layer has {entry.name}:"
                " build the image from one kind of cache",
            )
        if entry.name == cache_type.manifest_file:
            if has_manifest:
                raise _duplicate(entry.name)
            has_manifest = True
            _check_manifest(entry, stream, cache_type)
        elif (name := _name_in_cache(entry, cache_type)) is not None:
            files.write(entry, name, stream)


_OTHER_MANIFESTS: Final = {
    item: frozenset(other.manifest_file for other in CacheType if other is not item)
    for item in CacheType
}


@final
class _CacheManifest(msgspec.Struct):
    """The layer's manifest.json; unknown keys are skipped, and make no objects."""

    triton: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    vllm: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


@final
class _CacheFiles:
    """The files of a cache below an open directory."""

    def __init__(self, path: "Path", root: int, limits: ExtractionLimits) -> None:
        """`root` is the open directory of that path."""
        self._path = path
        self._root = root
        self._limits = limits
        self._directories = 0
        self._size_bytes = 0
        self._disk_bytes = 0
        self._files = 0
        self._has_shared_objects = False

    def write(self, entry: ArchiveEntry, name: str, stream: GzipStream) -> None:
        """Create the entry; `name` is below the cache's directory, and empty for that one itself."""
        depth = name.count("/")
        if depth > MAX_DEPTH:
            raise LayerRefusedError(
                LayerFault.BAD_NAME,
                f"the archive's entry {quoted(entry.name)} has {depth} directories above it; at most"
                f" {MAX_DEPTH} are possible",
            )
        _filter(entry, name, self._path)
        if entry.kind is EntryKind.DIRECTORY:
            self._make_directories(entry, name)
            return
        self._take(entry.size)
        descriptor = self._create(entry, name)
        try:
            head = b""
            for part in stream.parts(entry.size):
                if len(head) < _ELF_MACHINE.size:
                    head += bytes(part[: _ELF_MACHINE.size - len(head)])
                _write_all(descriptor, part)
            os.fchmod(descriptor, FILE_MODE)
            os.utime(descriptor, ns=(OWN_TIME_NS, OWN_TIME_NS))
        finally:
            os.close(descriptor)
        self._files += 1
        self._size_bytes += entry.size
        self._has_shared_objects = self._has_shared_objects or _is_native_code(name, head)

    def completed(self, cache_type: CacheType) -> ExtractedLayer:
        """Take the right to write off all directories, and return what there is."""
        if not self._files:
            raise LayerRefusedError(
                LayerFault.NO_FILES,
                f"the layer has no file below {cache_type.cache_directory}: it is no"
                f" {cache_type.value} cache",
            )
        for _, _, _, directory in os.fwalk(".", dir_fd=self._root, topdown=False):
            os.fchmod(directory, DIRECTORY_MODE)
            os.utime(directory, ns=(OWN_TIME_NS, OWN_TIME_NS))
        return ExtractedLayer(
            size_bytes=self._size_bytes,
            disk_bytes=self._disk_bytes,
            files=self._files,
            has_shared_objects=self._has_shared_objects,
        )

    def _take(self, size: int) -> None:
        """Count a file of that size, or a directory, before it is there."""
        taken = disk_bytes_of(size)
        most = self._limits.disk_bytes
        if most is not None and self._disk_bytes + taken > most:
            raise LayerRefusedError(
                LayerFault.TOO_LARGE,
                f"the layer's files take more of the disk than the {most} bytes that the node's quota of caches leaves"
                f" for them: each file and directory takes at least {BLOCK_BYTES}",
            )
        if shortage := self._limits.floor.shortage(self._root, taken):
            raise StoreError(
                StoreFault.FULL,
                f"its first {self._files} files and {self._directories} directories take"
                f" {self._disk_bytes} bytes of the node's disk, and {shortage}; free space or inodes"
                " there, or give kernel_caches.directory a file system of its own",
            )
        self._disk_bytes += taken

    def _create(self, entry: ArchiveEntry, name: str) -> int:
        try:
            return os.open(name, _CREATED, _OWNER_ONLY, dir_fd=self._root)
        except FileNotFoundError:
            self._make_directories(entry, name.rpartition("/")[0])
            return os.open(name, _CREATED, _OWNER_ONLY, dir_fd=self._root)
        except (FileExistsError, NotADirectoryError) as error:
            raise _duplicate(entry.name) from error

    def _make_directories(self, entry: ArchiveEntry, name: str) -> None:
        """Create the directory and those above it that are missing."""
        at = 0
        while 0 <= at < len(name):
            at = name.find("/", at + 1)
            path = name if at < 0 else name[:at]
            try:
                os.mkdir(path, WRITABLE_MODE, dir_fd=self._root)
                self._take(0)
            except FileExistsError:
                continue
            except NotADirectoryError as error:
                raise _duplicate(entry.name) from error
            self._directories += 1
            if self._directories > self._limits.entries:
                raise too_many_entries(self._limits)
        if name and not stat.S_ISDIR(os.lstat(name, dir_fd=self._root).st_mode):
            raise _duplicate(entry.name)


def _name_in_cache(entry: ArchiveEntry, cache_type: CacheType) -> str | None:
    """Return the name below the cache's directory; None for what is outside of it.

    Raises:
        LayerRefusedError: the entry is inside, and no plain file or directory.
    """
    top = cache_type.cache_directory.rstrip("/")
    if entry.name != top and not entry.name.startswith(cache_type.cache_directory):
        return None
    is_top = entry.name == top
    if entry.kind not in {EntryKind.FILE, EntryKind.DIRECTORY} or (
        is_top and entry.kind is EntryKind.FILE
    ):
        raise LayerRefusedError(
            LayerFault.BAD_ENTRY,
            f"the archive's entry {quoted(entry.name)} is {entry.kind.value}: a cache has files and"
            " directories only",
        )
    # Directories with set-gid are common where a cache was made on a volume with an fsGroup. Rights are our own,
    # so that the bit has no effect there.
    if entry.kind is EntryKind.FILE and entry.mode & _SET_ID:
        raise LayerRefusedError(
            LayerFault.BAD_ENTRY,
            f"the archive's entry {quoted(entry.name)} has set-uid or set-gid (mode"
            f" {entry.mode & 0o7777:04o}): remove the bit, and build the image again",
        )
    return "" if is_top else entry.name[len(cache_type.cache_directory) :]


def _check_manifest(entry: ArchiveEntry, stream: GzipStream, cache_type: CacheType) -> None:
    """Read the list of the cache's entries: `{"triton": [...]}` or `{"vllm": [...]}`."""
    if entry.kind is not EntryKind.FILE:
        raise _bad_manifest(cache_type, f"is {entry.kind.value}")
    if entry.size > MAX_CACHE_MANIFEST_BYTES:
        raise _bad_manifest(
            cache_type, f"has {entry.size} bytes; at most {MAX_CACHE_MANIFEST_BYTES} are read"
        )
    try:
        found = msgspec.json.decode(stream.read(entry.size), type=_CacheManifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _bad_manifest(cache_type, f"cannot be read: {error}") from error
    kernels = found.triton if cache_type is CacheType.TRITON else found.vllm
    if kernels is msgspec.UNSET or not bytes(kernels).startswith(b"["):
        raise _bad_manifest(cache_type, f'has no list "{cache_type.value}"')


def _bad_manifest(cache_type: CacheType, cause: str) -> LayerRefusedError:
    return LayerRefusedError(LayerFault.BAD_MANIFEST, f"{cache_type.manifest_file} {cause}")


def _duplicate(name: str) -> LayerRefusedError:
    return LayerRefusedError(
        LayerFault.DUPLICATE,
        f"the archive's entry {quoted(name)} is there twice, or lies below a file",
    )


def _filter(entry: ArchiveEntry, name: str, directory: "Path") -> None:
    """Ask `tarfile` as well, where it has filters; our rules are stricter, so that it agrees."""
    if not _TARFILE_FILTERS:
        return
    info = tarfile.TarInfo(name)
    info.size = entry.size
    info.type = tarfile.DIRTYPE if entry.kind is EntryKind.DIRECTORY else tarfile.REGTYPE
    try:
        tarfile.data_filter(info, str(directory))
    except tarfile.FilterError as error:
        raise LayerRefusedError(
            LayerFault.BAD_NAME, f"the archive's entry {quoted(entry.name)} is refused: {error}"
        ) from error


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _is_native_code(name: str, head: bytes) -> bool:
    base = name.rpartition("/")[2]
    if base.endswith(".so") or ".so." in base:
        return True
    if not head.startswith(_ELF) or len(head) < _ELF_MACHINE.size:
        return False
    return _ELF_MACHINE.unpack(head)[0] not in _DEVICE_MACHINES
