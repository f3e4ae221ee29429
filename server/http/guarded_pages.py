"""Pages that name pods and namespaces, for callers that may know them."""

from typing import TYPE_CHECKING, Final, final

import msgspec
import structlog

from http_edge.replies import TEXT, Reply, error_reply
from http_edge.reviews.review_cache import TokenRefusal
from http_edge.reviews.reviewed_tokens import bearer_token

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from http_edge.exposition import Exposition
    from http_edge.reviews.kube_reviews import TokenUser
    from http_edge.reviews.reviewed_tokens import ReviewedTokens
    from http_edge.routes import Headers
    from server.http.authentication import ExtenderAuthentication

_STANDBY: Final = msgspec.json.encode(
    {
        "leading": False,
        "message": "this replica does not lead and plans nothing; ask the holder of the Lease",
    }
)
_REFUSALS: Final = {
    TokenRefusal.UNAUTHENTICATED: error_reply(401, b"WWW-Authenticate: Bearer\r\n"),
    TokenRefusal.FORBIDDEN: error_reply(403),
    TokenRefusal.UNAVAILABLE: error_reply(503, b"Retry-After: 5\r\n"),
}

_log = structlog.get_logger()


@final
class ScalingPage:
    """/debug/scale: which nodes are asked for, and why pods wait, for the extender's callers."""

    def __init__(
        self, callers: "ExtenderAuthentication", report: "Callable[[], bytes | None]"
    ) -> None:
        """Take what returns JSON; None on a replica that does not lead."""
        self._callers = callers
        self._report = report

    def render(self, transport: "asyncio.BaseTransport | None", headers: "Headers") -> Reply:
        refusal = self._callers.refusal_of(transport, headers)
        if refusal is not None:
            _log.warning("debug page refused", reason=refusal)
            return Reply(401, refusal.encode(), TEXT)
        report = self._report()
        return Reply(200, _STANDBY if report is None else report)


@final
class UsagePage:
    """/metrics/usage: who has units, for callers whom the API server's RBAC lets read that; others learn the status."""

    def __init__(self, tokens: "ReviewedTokens[TokenUser]", page: "Exposition") -> None:
        self._tokens = tokens
        self._page = page

    async def render(self, transport: "asyncio.BaseTransport | None", headers: "Headers") -> Reply:
        token = bearer_token(headers.get(b"authorization", b""))
        result = TokenRefusal.UNAUTHENTICATED if token is None else await self._tokens.review(token)
        if isinstance(result, TokenRefusal):
            return _REFUSALS[result]
        return await self._page.render(transport, headers)
