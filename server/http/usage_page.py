"""/metrics/usage: which namespaces and pods have units, for callers whom the API server's RBAC lets read that."""

import re
from typing import TYPE_CHECKING, Final, final

from server.http.replies import error_reply
from server.reviews.reviewed_tokens import TokenVerdict

if TYPE_CHECKING:
    import asyncio

    from server.http.exposition import Exposition
    from server.http.replies import Reply
    from server.http.routes import Headers
    from server.reviews.reviewed_tokens import ReviewedTokens

MAX_TOKEN_BYTES: Final = 8 * 1024
"""A token of a ServiceAccount has 1 KiB; one of OpenID Connect with many groups has some."""
_BEARER: Final = re.compile(rb"bearer +([A-Za-z0-9._~+/-]+=*)", re.IGNORECASE)
"""RFC 6750, 2.1."""

_REFUSALS: Final = {
    TokenVerdict.UNAUTHENTICATED: error_reply(401, b"WWW-Authenticate: Bearer\r\n"),
    TokenVerdict.FORBIDDEN: error_reply(403),
    TokenVerdict.UNAVAILABLE: error_reply(503, b"Retry-After: 5\r\n"),
}


@final
class UsagePage:
    """Answers callers with the right; others learn no more than the status says."""

    def __init__(self, tokens: "ReviewedTokens", page: "Exposition") -> None:
        self._tokens = tokens
        self._page = page

    async def show(self, transport: "asyncio.BaseTransport | None", headers: "Headers") -> "Reply":
        token = _token_in(headers)
        verdict = (
            TokenVerdict.UNAUTHENTICATED if token is None else await self._tokens.verdict(token)
        )
        if verdict is not TokenVerdict.ALLOWED:
            return _REFUSALS[verdict]
        return await self._page.show_to(headers)


def _token_in(headers: "Headers") -> bytes | None:
    header = headers.get(b"authorization", b"")
    if len(header) > MAX_TOKEN_BYTES:
        return None
    found = _BEARER.fullmatch(header)
    return found[1] if found else None
