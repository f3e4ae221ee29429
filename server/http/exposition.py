"""Pages of metrics: 5,000 nodes make some 50,000 series, and writing them takes a fifth of a second.

A long page is written in a thread, family by family: the loop gets its turns meanwhile, and the memory of one
family is freed before the next. It is compressed where the scraper takes that, to a fifteenth.
"""

import asyncio
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple, final

from prometheus_client import CONTENT_TYPE_LATEST, Metric, generate_latest

from server.http.replies import Reply
from telemetry.label_sets import EncodableSamples
from telemetry.metrics import REGISTRY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client import CollectorRegistry

    from server.http.routes import Answer, Headers


SHORT: Final = 250_000
"""Bytes: 2,000 series, written in 10 ms."""
_LEVEL: Final = 1
"""The fastest: 0.4 ms for 180 KB, which become 11 KB. Level 6 takes ten times as long for a page of 9 KB."""
_GZIP: Final = 16 + zlib.MAX_WBITS
"""zlib's way to ask for gzip's header."""


@final
class _OneFamily:
    """A registry that has one family."""

    def __init__(self, family: "Metric") -> None:
        self._family = family

    def collect(self) -> "Iterable[Metric]":
        yield self._family


@final
class Exposition:
    """Answers with every metric of a registry; a long page is written in a thread."""

    def __init__(self, registry: "CollectorRegistry" = REGISTRY) -> None:
        self._registry = registry
        self._length = 0
        # of the last page: how long the next one will be

    def show(self, _transport: "asyncio.BaseTransport | None", headers: "Headers") -> "Answer":
        is_gzip = accepts_gzip(headers.get(b"accept-encoding", b"").decode("latin-1"))
        if self._length < SHORT:
            return self._reply(_written(self._registry, is_gzip=is_gzip), is_gzip=is_gzip)
        return self._show_long(is_gzip=is_gzip)

    async def show_to(self, headers: "Headers") -> Reply:
        """Answer a caller for whom something was awaited already."""
        answer = self.show(None, headers)
        return answer if isinstance(answer, Reply) else await answer

    async def _show_long(self, *, is_gzip: bool) -> Reply:
        page = await asyncio.to_thread(_written, self._registry, is_gzip=is_gzip)
        return self._reply(page, is_gzip=is_gzip)

    def _reply(self, page: "_Page", *, is_gzip: bool) -> Reply:
        self._length = page.length
        headers = b"Vary: Accept-Encoding\r\n"
        if is_gzip:
            headers += b"Content-Encoding: gzip\r\n"
        return Reply(200, page.body, CONTENT_TYPE_LATEST, headers)


def accepts_gzip(accept_encoding: str) -> bool:
    """Say whether a header `Accept-Encoding` names gzip, and does not refuse it by `q=0`."""
    for offer in accept_encoding.lower().split(","):
        coding, _, quality = offer.replace(" ", "").partition(";q=")
        if coding in {"gzip", "*"}:
            return quality.strip("0.") != "" or not quality
    return False


class _Page(NamedTuple):
    body: bytes
    length: int
    """Before it was compressed."""


def _texts(registry: "CollectorRegistry") -> "Iterator[bytes]":
    for family in registry.collect():
        samples: object = family.samples
        if isinstance(samples, EncodableSamples):
            head = Metric(family.name, family.documentation, family.type)
            yield generate_latest(_OneFamily(head))
            yield from (part.encode() for part in samples.lines())
        else:
            yield generate_latest(_OneFamily(family))


def _written(registry: "CollectorRegistry", *, is_gzip: bool) -> _Page:
    texts = _texts(registry)
    if not is_gzip:
        body = b"".join(texts)
        return _Page(body, len(body))
    length = 0
    parts: list[bytes] = []
    compressor = zlib.compressobj(_LEVEL, wbits=_GZIP)
    for text in texts:
        length += len(text)
        parts.append(compressor.compress(text))
    return _Page(b"".join([*parts, compressor.flush()]), length)
