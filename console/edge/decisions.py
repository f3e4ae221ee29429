"""A decision as a browser sends it: JSON in a small body, with a header that only a page of this console can send.

A page of another site can make its browser send a form, with the cookie of this one or with a token that a proxy adds. It
can send neither this header nor this content type before the browser has asked for it, which is refused (OPTIONS).
"""

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, final

import msgspec

from console.console_data import DeviceDecision
from console.edge.console_answers import RefusedError
from console.edge.questions import object_name

if TYPE_CHECKING:
    from aiohttp import web

HEADER: Final = "X-GPU-Console"
HEADER_VALUE: Final = "decision"
MAX_BODY: Final = 1024
"""Two names of at most 253 characters, and a version."""
BODY_WITHIN_S: Final = 5.0
OFF: Final = (
    "this console takes no decisions on devices: the value console.decisions of the chart, or the flag --decisions,"
    " turns them on"
)
_MAX_VERSION: Final = 64


@final
class _Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    device: str
    pool: str | None
    version: str = ""
    is_dry: bool = False


_DECODER: Final = msgspec.json.Decoder(_Body)


def refuse_other_pages(request: "web.BaseRequest") -> None:
    """Refuse what a page of another site can have its browser send.

    Raises:
        RefusedError: the request is such a one.
    """
    if request.headers.getall(HEADER, []) != [HEADER_VALUE]:
        raise RefusedError(
            HTTPStatus.FORBIDDEN, f"a decision needs the header {HEADER}: {HEADER_VALUE}"
        )
    if request.content_type != "application/json":
        raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "a decision is application/json")


async def read_decision(request: "web.BaseRequest") -> DeviceDecision:
    """Read the decision.

    Raises:
        RefusedError: it is none.
    """
    try:
        body = _DECODER.decode(await _body_of(request))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _bad(f"the body is no decision: {error}") from error
    if len(body.version) > _MAX_VERSION or not (body.version or "0").isalnum():
        raise _bad("version is none of a dry run")
    return DeviceDecision(
        device=object_name(body.device, "device"),
        pool=None if body.pool is None else object_name(body.pool, "pool"),
        version=body.version,
        is_dry=body.is_dry,
    )


async def _body_of(request: "web.BaseRequest") -> bytes:
    length = request.content_length
    if length is None:
        raise RefusedError(HTTPStatus.LENGTH_REQUIRED, "a decision needs a Content-Length")
    if length > MAX_BODY:
        raise RefusedError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a decision has at most {MAX_BODY} bytes"
        )
    try:
        async with asyncio.timeout(BODY_WITHIN_S):
            return await request.content.readexactly(length)
    except TimeoutError as error:
        raise RefusedError(HTTPStatus.REQUEST_TIMEOUT, "the body does not arrive") from error
    except asyncio.IncompleteReadError as error:
        raise _bad("the body is cut") from error


def _bad(text: str) -> RefusedError:
    return RefusedError(HTTPStatus.BAD_REQUEST, text)
