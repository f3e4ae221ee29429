"""What is answered: headers that every answer has, JSON, and refusals as sentences."""

from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import msgspec
from aiohttp import web

from api.text import legible_json
from console.rows import ErrorAnswer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from console.rows import Row

JSON: Final = "application/json; charset=utf-8"
TEXT: Final = "text/plain; charset=utf-8"
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:;"
    " font-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = MappingProxyType(
    {
        "Cache-Control": "no-store",
        "Content-Security-Policy": _POLICY,
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        # In place of the names and versions of Python and aiohttp.
        "Server": "gpu-console",
        "X-Content-Type-Options": "nosniff",
    }
)
"""Headers of every answer; the page's own files may be kept, and are asked for again each time."""


def sent_bytes(text: str) -> bytes:
    """Return the bytes of a header's value, as the peer sent them; aiohttp makes surrogates of what is no UTF-8."""
    return text.encode("utf-8", "surrogateescape")


class RefusedError(Exception):
    """A request that is answered with an error; the text is for the viewer."""

    def __init__(
        self, status: HTTPStatus, text: str, headers: "Mapping[str, str] | None" = None
    ) -> None:
        super().__init__(text)
        self.status: Final = status
        self.headers: Final = dict(headers or {})


def answer(
    status: HTTPStatus,
    body: bytes = b"",
    content_type: str = JSON,
    *,
    headers: "Mapping[str, str] | None" = None,
) -> web.Response:
    of_body = {"Content-Type": content_type} if body else {}
    return web.Response(
        status=status, body=body or None, headers={**HEADERS, **of_body, **(headers or {})}
    )


def row_answer(row: "Row") -> web.Response:
    return answer(HTTPStatus.OK, legible_json(msgspec.json.encode(row)))


def refusal(error: RefusedError) -> web.Response:
    body = legible_json(msgspec.json.encode(ErrorAnswer(error=str(error))))
    return answer(error.status, body, headers=error.headers)
