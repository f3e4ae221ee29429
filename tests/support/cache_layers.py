"""Layers of kernel caches, good and bad, as bytes and as streams."""

import datetime as dt
import gzip
import io
import tarfile
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any, Literal

PREFIX = "io.triton.cache/"
MANIFEST = "io.triton.manifest/manifest.json"
HASH = "C4F45BBE7D9E8E3D0EF2DB1B1F2D9F5C"

Member = tuple[tarfile.TarInfo, bytes]
Form = Literal[0, 1, 2]
"""`tarfile.USTAR_FORMAT`, `GNU_FORMAT` or `PAX_FORMAT`."""


def a_file(name: str, data: bytes = b"kernel", **fields: Any) -> Member:
    return a_member(name, data, mode=0o644, **fields)


def a_member(name: str, data: bytes = b"", **fields: Any) -> Member:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


def an_archive(
    members: Iterable[Member], form: Form = tarfile.PAX_FORMAT, *, has_end: bool = True
) -> bytes:
    out = io.BytesIO()
    for info, data in members:
        out.write(info.tobuf(form, "utf-8", "surrogateescape"))
        out.write(data + bytes(-len(data) % tarfile.BLOCKSIZE))
    if has_end:
        out.write(bytes(2 * tarfile.BLOCKSIZE))
    return out.getvalue()


def a_layer(*members: Member, form: Form = tarfile.PAX_FORMAT) -> bytes:
    return gzip.compress(an_archive(members, form), 1, mtime=0)


def a_triton_layer(kernels: int = 2, data: bytes = b"kernel") -> bytes:
    return a_layer(
        a_file(MANIFEST, b'{"triton": []}'),
        *(a_file(f"{PREFIX}{HASH}{number}/kernel.ptx", data) for number in range(kernels)),
    )


async def stream_of(layer: bytes, chunk_bytes: int = 1000) -> AsyncIterator[bytes]:
    for at in range(0, len(layer), chunk_bytes):
        yield layer[at : at + chunk_bytes]


class LayerSource:
    """What the store opens; it counts how often."""

    def __init__(self, layer: bytes, failure: BaseException | None = None) -> None:
        self.layer = layer
        self.failure = failure
        self.opened = 0

    def __call__(self) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        self.opened += 1
        return aclosing(self._stream())

    async def _stream(self) -> Any:
        async for chunk in stream_of(self.layer):
            yield chunk
        if self.failure is not None:
            raise self.failure


class SetClock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

    def monotonic(self) -> float:
        return self.now.timestamp()

    def utc_now(self) -> dt.datetime:
        return self.now
