"""/metrics/usage: which namespaces and pods have units, for callers whom the API server's RBAC lets read that."""

from typing import TYPE_CHECKING, Final, final

from http_edge.replies import error_reply
from http_edge.reviews.review_cache import TokenRefusal
from http_edge.reviews.reviewed_tokens import bearer_token

if TYPE_CHECKING:
    import asyncio

    from http_edge.exposition import Exposition
    from http_edge.replies import Reply
    from http_edge.reviews.kube_reviews import TokenUser
    from http_edge.reviews.reviewed_tokens import ReviewedTokens
    from http_edge.routes import Headers

_REFUSALS: Final = {
    TokenRefusal.UNAUTHENTICATED: error_reply(401, b"WWW-Authenticate: Bearer\r\n"),
    TokenRefusal.FORBIDDEN: error_reply(403),
    TokenRefusal.UNAVAILABLE: error_reply(503, b"Retry-After: 5\r\n"),
}


@final
class UsagePage:
    """Answers callers with the right; others learn no more than the status says."""

    def __init__(self, tokens: "ReviewedTokens[TokenUser]", page: "Exposition") -> None:
        self._tokens = tokens
        self._page = page

    async def show(self, transport: "asyncio.BaseTransport | None", headers: "Headers") -> "Reply":
        token = bearer_token(headers.get(b"authorization", b""))
        verdict = (
            TokenRefusal.UNAUTHENTICATED if token is None else await self._tokens.verdict(token)
        )
        if isinstance(verdict, TokenRefusal):
            return _REFUSALS[verdict]
        return await self._page.show(transport, headers)
