"""Request bodies, bounded in size and time; an unreadable body is a value.

A peer's broken bytes cost an answer and a log line, no traceback.
"""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web

from kube.errors import one_line

if TYPE_CHECKING:
    from aiohttp.web_request import BaseRequest

    from server.http.limits import Limits


@dataclass(frozen=True, slots=True)
class Unread:
    """Why there is no body: an HTTP status, its reason as Kubernetes calls it, and a text."""

    status: int
    reason: str
    text: str


async def read_body(
    request: "BaseRequest", limits: "Limits", large_bodies: asyncio.Semaphore | None = None
) -> bytes | Unread:
    """Return the body, or why it cannot be read.

    The application enforces `limits.body_bytes` on a body of unknown length. With `large_bodies`, bodies that
    are not known to be small are read only so many at a time, in the order of their arrival.
    """
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding != "identity":
        # The API server and kube-scheduler compress nothing, and few bytes can be very many.
        text = f"Content-Encoding {one_line(encoding)} is not understood; send the body as it is"
        return Unread(415, "UnsupportedMediaType", text)
    length = request.content_length
    if length is not None and length > limits.body_bytes:
        return _too_large(limits)
    if large_bodies is None or (length is not None and length <= limits.large_body_bytes):
        return await _read(request, limits)
    try:
        async with asyncio.timeout(limits.body_s), large_bodies:
            return await _read(request, limits)
    except TimeoutError:
        return _late(limits)


async def _read(request: "BaseRequest", limits: "Limits") -> bytes | Unread:
    try:
        if request.content.is_eof():
            # The whole body has arrived already, as most do: no timer is needed.
            return await request.read()
        async with asyncio.timeout(limits.body_s):
            return await request.read()
    except web.HTTPRequestEntityTooLarge:
        return _too_large(limits)
    except web.RequestPayloadError as error:
        return Unread(400, "BadRequest", f"the body cannot be read: {one_line(str(error))}")
    except ConnectionError:
        return Unread(400, "BadRequest", "the connection broke before the body's end")
    except TimeoutError:
        return _late(limits)


def _too_large(limits: "Limits") -> Unread:
    text = f"the body is larger than {limits.body_bytes} bytes"
    return Unread(413, "RequestEntityTooLarge", text)


def _late(limits: "Limits") -> Unread:
    return Unread(408, "Timeout", f"the body did not arrive within {limits.body_s:g} s")
