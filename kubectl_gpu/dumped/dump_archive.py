"""The file of a dump: a tar, compressed with gzip, of one JSON list for each kind behind a table of contents.

Nothing is extracted to a disk. The reader takes regular files alone, of the names and sizes that the table of contents
gives, and counts bytes while they are decompressed, so that no archive costs more memory than `DumpLimits` says.
"""

import datetime as dt
import gzip
import hashlib
import io
import tarfile
import zlib
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Final, final

import msgspec

from api.field_errors import UNDECODABLE
from api.text import truncate
from api.version import VERSION
from kubectl_gpu.answer_forms import API_VERSION
from kubectl_gpu.errors import UnreadableError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kube.resources import Resource

KIND: Final = "Dump"
CONTENTS: Final = "dump.json"
"""Name of the table of contents, which comes first."""
FORMAT: Final = 1
"""Format of the files and their meaning; another number is another format."""
_BLOCK: Final = tarfile.BLOCKSIZE
_LEVEL: Final = 6
_CURE: Final = "write a new one with `kubectl gpu dump`"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DumpLimits:
    """The largest dump that is read: some ten times that of 5,000 nodes, 40,000 devices and 20,000 pods."""

    compressed: int = 256 << 20
    contents: int = 1 << 20
    file: int = 512 << 20
    total: int = 1 << 30
    files: int = 64


class DumpedFile(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A file of the dump."""

    name: str
    size: int
    sha256: str


class DumpContents(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The table of contents."""

    api_version: str
    kind: str
    format: int
    version: str
    """Version of the plugin that wrote the dump."""
    created_at: dt.datetime
    namespace: str = "default"
    """Namespace of the context at that time."""
    files: list[DumpedFile] = []
    missing: dict[str, str] = {}
    """Resource -> why its list could not be read."""


@final
@dataclass(frozen=True, slots=True)
class DumpedCluster:
    """A dump that was read, or that is to be written."""

    created_at: dt.datetime
    namespace: str
    files: "Mapping[str, bytes]"
    """Name -> content."""
    missing: "Mapping[str, str]" = field(default_factory=dict)
    version: str = VERSION


def list_file(resource: "Resource") -> str:
    """Return the name of the file that has the objects of a resource."""
    return f"lists/{resource.plural}.{resource.group or 'core'}.json"


def answer_file(path: str) -> str:
    """Return the name of the file that has the API server's answer at a path."""
    return f"answers/{path.strip('/').replace('/', '.').replace(':', '-')}"


def write_dump(path: "Path", dump: DumpedCluster) -> int:
    """Write the file, which only its owner may read; return its size.

    The same dump gives the same bytes.

    Raises:
        OSError: it cannot be written.
    """
    contents = DumpContents(
        api_version=API_VERSION,
        kind=KIND,
        format=FORMAT,
        version=dump.version,
        created_at=dump.created_at,
        namespace=dump.namespace,
        files=[
            DumpedFile(name=name, size=len(content), sha256=hashlib.sha256(content).hexdigest())
            for name, content in sorted(dump.files.items())
        ],
        missing=dict(sorted(dump.missing.items())),
    )
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    part.touch(mode=0o600)
    try:
        with (
            part.open("wb") as file,
            gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as compressed,
            tarfile.open(fileobj=compressed, mode="w", format=tarfile.USTAR_FORMAT) as archive,
        ):
            _add(archive, CONTENTS, msgspec.json.format(msgspec.json.encode(contents)))
            for name, content in sorted(dump.files.items()):
                _add(archive, name, content)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return path.stat().st_size


def read_dump(path: "Path", limits: DumpLimits | None = None) -> DumpedCluster:
    """Read a file that anybody may have made.

    Raises:
        UnreadableError: it is no dump, one of another format, damaged, cut, or larger than the limits.
    """
    limits = limits or DumpLimits()
    try:
        with path.open("rb") as file:
            if file.seek(0, io.SEEK_END) > limits.compressed:
                raise _refused(path, f"is larger than {limits.compressed >> 20} MiB")
            file.seek(0)
            return _Reader(path, limits, file).dump()
    except OSError as error:
        raise UnreadableError(
            f"dump {path} cannot be read: {error.strerror or truncate(str(error))}"
        ) from error


@final
class _Reader:
    """One reading of one file."""

    def __init__(self, path: "Path", limits: DumpLimits, file: IO[bytes]) -> None:
        self._path = path
        self._limits = limits
        self._stream = gzip.GzipFile(fileobj=file, mode="rb")
        self._left = limits.total

    def dump(self) -> DumpedCluster:
        contents = self._contents()
        files = {file.name: self._file(file) for file in contents.files}
        if any(self._take(2 * _BLOCK) + self._padding()):
            raise self._fault("has files that are not in its table of contents")
        return DumpedCluster(
            contents.created_at, contents.namespace, files, contents.missing, contents.version
        )

    def _contents(self) -> DumpContents:
        name, size = self._header()
        if name != CONTENTS or size > self._limits.contents:
            raise self._fault("is no dump of `kubectl gpu dump`")
        try:
            found = msgspec.json.decode(self._content(size), type=DumpContents)
        except UNDECODABLE as error:
            raise self._fault(
                f"has no readable table of contents: {truncate(str(error))}"
            ) from error
        if (found.api_version, found.kind, found.format) != (API_VERSION, KIND, FORMAT):
            raise self._fault(
                f"is of the format {truncate(f'{found.kind} {found.api_version}', 64)}/{found.format}, written by"
                f" version {truncate(found.version, 32)}; version {VERSION} reads"
                f" {KIND} {API_VERSION}/{FORMAT}"
            )
        names = [file.name for file in found.files]
        if len(names) > self._limits.files or len(set(names)) != len(names):
            raise self._fault("names a file twice, or too many files")
        if found.created_at.tzinfo is None:
            raise self._fault("does not say in which time zone it was written")
        return found

    def _file(self, expected: DumpedFile) -> bytes:
        name, size = self._header()
        if (name, size) != (expected.name, expected.size) or size > self._limits.file:
            raise self._fault(f"has the file {truncate(name, 64)!r} of {size} bytes out of place")
        content = self._content(size)
        if hashlib.sha256(content).hexdigest() != expected.sha256:
            raise self._fault(f"is damaged: {name} has another digest than its table of contents")
        return content

    def _header(self) -> tuple[str, int]:
        """Return name and size of the next file."""
        try:
            info = tarfile.TarInfo.frombuf(self._take(_BLOCK), "utf-8", "strict")
        except (tarfile.HeaderError, UnicodeError, ValueError) as error:
            raise self._fault(f"is no tar: {error}") from error
        if info.type != tarfile.REGTYPE or info.size < 0:
            raise self._fault(f"has {truncate(info.name, 64)!r}, which is no regular file")
        return info.name, info.size

    def _content(self, size: int) -> bytes:
        content = self._take(size)
        self._take(-size % _BLOCK)
        return content

    def _padding(self) -> bytes:
        """Return what follows the end of the tar; gzip's checksum, which is behind it, is verified."""
        return self._read(tarfile.RECORDSIZE)

    def _take(self, size: int) -> bytes:
        """Return the next bytes of the tar; a bomb ends here, before it is decompressed."""
        self._left -= size
        if self._left < 0:
            raise self._fault(f"has more than {self._limits.total >> 20} MiB of content")
        taken = self._read(size)
        if len(taken) != size:
            raise self._fault("is cut")
        return taken

    def _read(self, size: int) -> bytes:
        try:
            return self._stream.read(size)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise self._fault(f"is cut or damaged: {error}") from error

    def _fault(self, text: str) -> UnreadableError:
        return _refused(self._path, text)


def _refused(path: "Path", text: str) -> UnreadableError:
    return UnreadableError(f"dump {path} {text}; {_CURE}")


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), 0o600
    archive.addfile(info, io.BytesIO(content))
