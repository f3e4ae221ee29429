"""Reading request bodies: bounded in size and time, and what cannot be read is a value.

A peer's broken bytes are its fault and not ours: they cost an answer and a log line, no traceback.
"""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aiohttp import web

from kube.errors import one_line

if TYPE_CHECKING:
    from aiohttp.web_request import BaseRequest

READ_WITHIN_S: Final = 2.5
"""Below the webhooks' timeoutSeconds (3) and kube-scheduler's httpTimeout (5): who is that slow has
given up by then."""
LARGE: Final = 64 * 1024
"""An AdmissionReview of an ordinary pod is a tenth of it."""
LARGE_AT_A_TIME: Final = 16
"""For callers that nobody has authenticated: at 8 MiB each they take 128 MiB of memory at most."""


@dataclass(frozen=True, slots=True)
class Unread:
    """Why there is no body: an HTTP status, its reason as Kubernetes calls it, and a text."""

    status: int
    reason: str
    text: str


async def read_body(
    request: "BaseRequest", *, max_bytes: int, large: asyncio.Semaphore | None = None
) -> bytes | Unread:
    """Return the body, or why it cannot be read. `max_bytes` is what the application enforces.

    With `large`, bodies that are not known to be small are read only so many at a time, the others in
    the order in which they came.
    """
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding != "identity":
        # Who calls us compresses nothing, and few bytes can be very many.
        text = f"Content-Encoding {one_line(encoding)} is not understood; send the body as it is"
        return Unread(415, "UnsupportedMediaType", text)
    length = request.content_length
    if length is not None and length > max_bytes:
        return _too_large(max_bytes)
    if large is None or (length is not None and length <= LARGE):
        return await _read(request, max_bytes)
    try:
        async with asyncio.timeout(READ_WITHIN_S), large:
            return await _read(request, max_bytes)
    except TimeoutError:
        return _LATE


async def _read(request: "BaseRequest", max_bytes: int) -> bytes | Unread:
    try:
        if request.content.is_eof():
            # All of it has arrived already, as most do: no timer is needed.
            return await request.read()
        async with asyncio.timeout(READ_WITHIN_S):
            return await request.read()
    except web.HTTPRequestEntityTooLarge:
        return _too_large(max_bytes)
    except web.RequestPayloadError as error:
        return Unread(400, "BadRequest", f"the body cannot be read: {one_line(str(error))}")
    except ConnectionError:
        return Unread(400, "BadRequest", "the connection broke before the body's end")
    except TimeoutError:
        return _LATE


def _too_large(max_bytes: int) -> Unread:
    return Unread(413, "RequestEntityTooLarge", f"the body is larger than {max_bytes} bytes")


_LATE: Final = Unread(408, "Timeout", f"the body did not arrive within {READ_WITHIN_S:g} s")
