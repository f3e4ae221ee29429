"""Bearer tokens and what the API server says of them, from a header to a result that is kept for a short time."""

import re
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, final

from http_edge.reviews.review_cache import ReviewCache, ReviewResult, TokenRefusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.clock import Clock

MAX_TOKEN_BYTES: Final = 8 * 1024
"""A token of a ServiceAccount has 1 KiB; one of OpenID Connect with many groups has some."""
_BEARER: Final = re.compile(rb"bearer +([A-Za-z0-9._~+/-]+=*)", re.IGNORECASE)
"""RFC 6750, 2.1."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Reviews(Protocol[T_co]):
    """The API server's part."""

    async def review(self, token: str) -> T_co | TokenRefusal:
        """Return what it says; raises KubeError where the API server does not answer."""


@final
class ReviewedTokens(Generic[T]):
    """Answers for tokens."""

    def __init__(self, reviews: Reviews[T], clock: "Clock", user_of: "Callable[[T], str]") -> None:
        self._reviews = reviews
        self._cache: ReviewCache[T] = ReviewCache(clock, user_of)

    async def review(self, token: bytes) -> ReviewResult[T]:
        """Return what is known of a token, or what the API server says now."""
        return await self._cache.find(token, lambda: self._reviews.review(token.decode("latin-1")))


def bearer_token(header: bytes) -> bytes | None:
    """Return the token of a header Authorization; None where it has none that may be one."""
    if len(header) > MAX_TOKEN_BYTES:
        return None
    found = _BEARER.fullmatch(header)
    return found[1] if found else None
