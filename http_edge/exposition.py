"""Pages of metrics: 5,000 nodes make some 50,000 series, and writing them takes a fifth of a second.

A page is written in a thread, family by family: the loop gets its turns meanwhile, and the memory of one
family is freed before the next. It is compressed where the scraper takes that, to a fifteenth.
"""

import asyncio
import zlib
from typing import TYPE_CHECKING, Final, final

from prometheus_client import CONTENT_TYPE_LATEST, Metric, generate_latest

from http_edge.replies import Reply
from telemetry.label_sets import EncodableSamples
from telemetry.metrics import REGISTRY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client import CollectorRegistry

    from http_edge.routes import Headers

FRESH_S: Final = 1.0
"""Seconds for which a page is given to all who ask: Prometheus asks every few seconds."""
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
    """Answers with every metric of a registry.

    A page is given to all who ask within a second of it, and one is written at a time: what it costs does not grow
    with the callers, which are not known in advance.
    """

    def __init__(self, registry: "CollectorRegistry" = REGISTRY) -> None:
        self._registry = registry
        self._writing = asyncio.Lock()
        # whether compressed -> the page, for a second
        self._replies: dict[bool, Reply] = {}

    async def render(self, _transport: "asyncio.BaseTransport | None", headers: "Headers") -> Reply:
        is_gzip = accepts_gzip(headers.get(b"accept-encoding", b"").decode("latin-1"))
        async with self._writing:
            reply = self._replies.get(is_gzip)
            if reply is None:
                body = await asyncio.to_thread(_written, self._registry, is_gzip=is_gzip)
                reply = self._replies[is_gzip] = _reply(body, is_gzip=is_gzip)
                asyncio.get_running_loop().call_later(FRESH_S, self._replies.pop, is_gzip)
        return reply


def _reply(body: bytes, *, is_gzip: bool) -> Reply:
    headers = b"Vary: Accept-Encoding\r\n"
    if is_gzip:
        headers += b"Content-Encoding: gzip\r\n"
    return Reply(200, body, CONTENT_TYPE_LATEST, headers)


def accepts_gzip(accept_encoding: str) -> bool:
    """Say whether a header `Accept-Encoding` names gzip, and does not refuse it by `q=0`."""
    for offer in accept_encoding.lower().split(","):
        coding, _, quality = offer.replace(" ", "").partition(";q=")
        if coding in {"gzip", "*"}:
            return quality.strip("0.") != "" or not quality
    return False


def _texts(registry: "CollectorRegistry") -> "Iterator[bytes]":
    for family in registry.collect():
        samples: object = family.samples
        if isinstance(samples, EncodableSamples):
            head = Metric(family.name, family.documentation, family.type)
            yield generate_latest(_OneFamily(head))
            yield from (part.encode() for part in samples.lines())
        else:
            yield generate_latest(_OneFamily(family))


def _written(registry: "CollectorRegistry", *, is_gzip: bool) -> bytes:
    texts = _texts(registry)
    if not is_gzip:
        return b"".join(texts)
    compressor = zlib.compressobj(_LEVEL, wbits=_GZIP)
    parts = [compressor.compress(text) for text in texts]
    return b"".join([*parts, compressor.flush()])
