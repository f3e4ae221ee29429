"""Reading request bodies: bounded in size and time, and what cannot be read is a value.

A peer's broken bytes are its fault and not ours: they cost an answer and a log line, no traceback.
"""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aiohttp import web

from kube.errors import cut

if TYPE_CHECKING:
    from aiohttp.web_request import BaseRequest

READ_WITHIN_S: Final = 2.5
"""Below the webhooks' timeoutSeconds (3) and kube-scheduler's httpTimeout (5): who is that slow has
given up by then."""


@dataclass(frozen=True, slots=True)
class Unread:
    """Why there is no body: an HTTP status, its reason as Kubernetes calls it, and a text."""

    status: int
    reason: str
    text: str


async def read_body(request: "BaseRequest", *, max_bytes: int) -> bytes | Unread:
    """Return the body, or why it cannot be read. `max_bytes` is what the application enforces."""
    try:
        if request.content.is_eof():
            # All of it has arrived already, as most do: no timer is needed.
            return await request.read()
        async with asyncio.timeout(READ_WITHIN_S):
            return await request.read()
    except web.HTTPRequestEntityTooLarge:
        text = f"the body is larger than {max_bytes} bytes"
        return Unread(413, "RequestEntityTooLarge", text)
    except web.RequestPayloadError as error:
        return Unread(400, "BadRequest", f"the body cannot be read: {cut(str(error))}")
    except ConnectionError:
        return Unread(400, "BadRequest", "the connection broke before the body's end")
    except TimeoutError:
        return Unread(408, "Timeout", f"the body did not arrive within {READ_WITHIN_S:g} s")
