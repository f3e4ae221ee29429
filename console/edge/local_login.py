"""Login on the loopback address: a one-time token becomes a cookie.

Every process of the machine can connect, pages of other sites can let the browser connect, and a name of theirs may lead to
127.0.0.1 (DNS rebinding). So the user's terminal shows a token, which is good once; the host must be ours; and requests
for pages of other sites are refused (`console.edge.console_application`). A browser sends cookies to all ports of a host: the name
of the cookie has the port in it, so that two consoles leave each other's alone.
"""

import secrets
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, final

from console.edge.console_answers import RefusedError, answer, sent_bytes
from http_edge.reviews.reviewed_tokens import bearer_token
from http_edge.reviews.token_bucket import TokenBucket

if TYPE_CHECKING:
    from aiohttp import web

    from api.clock import Clock
    from console.edge.viewer_login import LoggedIn

LOOPBACK: Final = "127.0.0.1"
_TOKEN_BYTES: Final = 32
_GUESSES: Final = 5
_GUESSES_A_SECOND: Final = 0.5
_CURE: Final = (
    "open the address that `kubectl gpu console` printed, or start it again for another one"
)


@final
class LocalLogin:
    """A `ViewerLogin` of one user, who has the rights of the process."""

    def __init__(self, viewer: "LoggedIn", port: int, clock: "Clock") -> None:
        self._viewer = viewer
        self._port = port
        self._clock = clock
        self._hosts = {f"{name}:{port}" for name in (LOOPBACK, "localhost")}
        self._cookie_name = f"gpu-console-{port}"
        self._cookie = secrets.token_urlsafe(_TOKEN_BYTES)
        self._token: str | None = secrets.token_urlsafe(_TOKEN_BYTES)
        self._guesses = TokenBucket(a_second=_GUESSES_A_SECOND, burst=_GUESSES)

    @property
    def address(self) -> str:
        """Return the page's URL; what follows # is not sent to any server."""
        fragment = "" if self._token is None else f"#token={self._token}"
        return f"http://{LOOPBACK}:{self._port}/{fragment}"

    def check_host(self, host: str) -> None:
        if host not in self._hosts:
            raise RefusedError(
                HTTPStatus.MISDIRECTED_REQUEST,
                f"this is http://{LOOPBACK}:{self._port}/, and no other host",
            )

    def log_in(self, request: "web.BaseRequest") -> "web.Response":
        """Take the token, which is void from then on, for a cookie."""
        given = bearer_token(sent_bytes(request.headers.get("Authorization", "")))
        if given is None:
            raise _unauthenticated(f"the request has no token; {_CURE}")
        if not self._guesses.take(self._clock.monotonic()):
            raise RefusedError(
                HTTPStatus.TOO_MANY_REQUESTS, "too many tokens were tried", {"Retry-After": "2"}
            )
        if self._token is None or not secrets.compare_digest(given, self._token.encode()):
            raise _unauthenticated(f"the token is not accepted, or was used before; {_CURE}")
        self._token = None
        cookie = f"{self._cookie_name}={self._cookie}; HttpOnly; SameSite=Strict; Path=/"
        return answer(HTTPStatus.NO_CONTENT, headers={"Set-Cookie": cookie})

    async def viewer(self, request: "web.BaseRequest", namespace: str | None) -> "LoggedIn":
        """Return the one viewer; the namespace is the one that the process was started with."""
        given = request.cookies.get(self._cookie_name, "")
        if not secrets.compare_digest(sent_bytes(given), self._cookie.encode()):
            raise _unauthenticated(f"this browser is not logged in; {_CURE}")
        return self._viewer


def _unauthenticated(text: str) -> RefusedError:
    # No scheme of HTTP: a browser must not ask for a name and a password.
    return RefusedError(HTTPStatus.UNAUTHORIZED, text, {"WWW-Authenticate": "Console-Address"})
