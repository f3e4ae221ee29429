"""What the port answers: a page, or an endpoint that reads a body, by path and method."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias, final

from http_edge.replies import Reply, error_reply

if TYPE_CHECKING:
    import asyncio

    from http_edge.body import Unread

Answer: TypeAlias = Reply | Awaitable[Reply]
Headers: TypeAlias = Mapping[bytes, bytes]
"""Headers by name in lower case."""


class Endpoint(Protocol):
    """Answers requests with bodies; a fault of the request is answered in its protocol."""

    knows_callers: bool
    """Whether a caller whose body is read is authenticated; others' large bodies wait for each other."""

    def refusal_of(
        self, transport: "asyncio.BaseTransport | None", headers: Headers
    ) -> "Unread | None":
        """Return why the body of a request with this head is not read, or None."""

    def answer_unread(self, unread: "Unread", remote: str | None) -> Reply:
        """Answer a request whose body was not read."""

    def answer(self, body: bytes) -> Answer:
        """Answer a request."""


Render: TypeAlias = "Callable[[asyncio.BaseTransport | None, Headers], Answer]"
"""Makes a page for a caller: of the connection, with these headers."""


@final
class GeneratedPage:
    """Answers GET and HEAD, whatever body comes with them."""

    def __init__(self, render: "Render") -> None:
        self.render = render


Route: TypeAlias = Endpoint | GeneratedPage


@final
class Routes:
    """Paths are compared byte by byte: no other spelling of one is the same."""

    def __init__(
        self,
        *,
        endpoints: "Mapping[str, Endpoint] | None" = None,
        pages: "Mapping[str, Render] | None" = None,
    ) -> None:
        self._routes: dict[bytes, dict[bytes, Route]] = {}
        for path, endpoint in (endpoints or {}).items():
            self._routes[path.encode()] = {b"POST": endpoint}
        for path, render in (pages or {}).items():
            page = GeneratedPage(render)
            self._routes[path.encode()] = {b"GET": page, b"HEAD": page}

    def of(self, method: bytes, path: bytes) -> "Route | Reply":
        """Return the route, or the reply that there is none."""
        by_method = self._routes.get(path)
        if by_method is None:
            return error_reply(404)
        route = by_method.get(method)
        if route is None:
            return error_reply(405, b"Allow: %b\r\n" % b", ".join(by_method))
        return route
