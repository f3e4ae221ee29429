"""Responses: objects, `Status` of errors, warnings."""

from typing import TYPE_CHECKING, Final

import msgspec
from aiohttp import web
from multidict import CIMultiDict

if TYPE_CHECKING:
    from simulator.apiserver.errors import StatusError

JSON: Final = "application/json"
_MAX_WARNINGS: Final = 4096
_MAX_WARNING_OF_MANY: Final = 256


def _fitting(warnings: list[str]) -> list[str]:
    """Return the warnings, truncated where together they exceed the size of a header."""
    if sum(map(len, warnings)) <= _MAX_WARNINGS:
        return warnings
    fitting: list[str] = []
    left = _MAX_WARNINGS
    for warning in warnings:
        start = warning[: min(_MAX_WARNING_OF_MANY, left)]
        left -= len(start)
        if start:
            fitting.append(start)
    return fitting


def respond(status: int, encoded: bytes, warnings: list[str]) -> web.Response:
    headers: CIMultiDict[str] = CIMultiDict({"Content-Type": JSON})
    for warning in _fitting(warnings):
        escaped = warning.replace("\\", "\\\\").replace('"', '\\"')
        headers.add("Warning", f'299 - "{escaped}"')
    return web.Response(status=status, body=encoded, headers=headers)


def respond_fault(fault: "StatusError", warnings: list[str]) -> web.Response:
    return respond(fault.status, msgspec.json.encode(fault.body), warnings)


def cut_connection(request: web.Request) -> web.Response:
    """Reset the connection; the returned response is never sent."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
