"""Answers of the API server about secrets: asked for at a bounded rate, and kept for a short time.

A secret is known by its SHA-256 only. The accepted secrets of each user have a rate of their own, so that neither a flood
of unknown ones nor the many secrets of another user keep them out; all are bounded in number.
"""

import enum
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

import structlog
from cachetools import LRUCache, TTLCache

from http_edge.reviews.token_bucket import TokenBucket
from kube.errors import KubeError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from api.clock import Clock

ALLOWED_S: Final = 60.0
"""A right that is taken away ends within this."""
REFUSED_S: Final = 5.0
"""A right that is given is seen after this."""
MAX_TOKENS: Final = 1_024
"""Most tokens of each kind; the one that was used longest ago goes first."""
REVIEWS_A_S: Final = 5.0
"""Reviews a second of each user, and of all that is unknown, in the long run; each is a few requests to the API
server."""
BURST: Final = 20
MAX_IN_FLIGHT: Final = 16
"""Most reviews at a time of each user, and of all that is unknown: an API server that does not answer keeps each
for the client's time-out."""

T = TypeVar("T")
_log = structlog.get_logger()


class TokenRefusal(enum.Enum):
    UNAUTHENTICATED = enum.auto()
    """No token, or one that the API server does not accept."""
    FORBIDDEN = enum.auto()
    """Its user lacks the right."""
    UNAVAILABLE = enum.auto()
    """The API server does not answer, or too many tokens come: nothing is known of this one."""


@final
@dataclass(frozen=True, slots=True)
class Accepted(Generic[T]):
    """What the API server says of a secret that it accepts."""

    value: T
    until: float
    """Monotonic time until which the answer is kept."""


ReviewResult = Accepted[T] | TokenRefusal


@final
class ReviewCache(Generic[T]):
    """Answers by secret. Not for the scheduler's paths, which are answered without the API server."""

    def __init__(self, clock: "Clock", user_of: "Callable[[T], str]") -> None:
        """Take the clock, and what names the user of an answer."""
        self._clock = clock
        self._user_of = user_of
        # digest -> answer; one that is over still says whose secret it is
        self._accepted: LRUCache[bytes, Accepted[T]] = LRUCache(MAX_TOKENS)
        self._refused: TTLCache[bytes, TokenRefusal] = TTLCache(
            MAX_TOKENS, REFUSED_S, timer=clock.monotonic
        )
        # user -> the rate of its accepted secrets
        self._by_user: LRUCache[str, _ReviewRate] = LRUCache(MAX_TOKENS)
        self._of_others = _ReviewRate()

    def __len__(self) -> int:
        return len(self._accepted) + len(self._refused)

    async def find(
        self,
        secret: bytes,
        ask: "Callable[[], Awaitable[T | TokenRefusal]]",
        *,
        user: str | None = None,
    ) -> ReviewResult[T]:
        """Return what is known of a secret, or what the API server says now.

        `ask` asks the API server, and raises KubeError where it does not answer; `user` is whose secret it is, where
        that is known already.
        """
        digest = hashlib.sha256(secret).digest()
        now = self._clock.monotonic()
        accepted = self._accepted.get(digest)
        if accepted is not None and now < accepted.until:
            return accepted
        refused = self._refused.get(digest)
        if refused is not None:
            return refused
        rate = self._rate_of(self._user_of(accepted.value) if accepted else user)
        if not rate.begin(now):
            return TokenRefusal.UNAVAILABLE
        try:
            answer = await ask()
        except KubeError as error:
            _log.warning("token review failed", cause=type(error).__name__, error=str(error))
            return TokenRefusal.UNAVAILABLE
        finally:
            rate.end()
        return self._keep(digest, answer)

    def _rate_of(self, user: str | None) -> "_ReviewRate":
        if user is None:
            return self._of_others
        return self._by_user.setdefault(user, _ReviewRate())

    def _keep(self, digest: bytes, answer: T | TokenRefusal) -> ReviewResult[T]:
        self._accepted.pop(digest, None)
        self._refused.pop(digest, None)
        if not isinstance(answer, TokenRefusal):
            accepted = Accepted(answer, self._clock.monotonic() + ALLOWED_S)
            self._accepted[digest] = accepted
            return accepted
        if answer is not TokenRefusal.UNAVAILABLE:
            self._refused[digest] = answer
        return answer


@final
class _ReviewRate:
    """A rate, and a bound of reviews under way."""

    def __init__(self) -> None:
        self._bucket = TokenBucket(a_second=REVIEWS_A_S, burst=BURST)
        self._in_flight = 0

    def begin(self, now: float) -> bool:
        """Take one, if there is one."""
        if self._in_flight >= MAX_IN_FLIGHT or not self._bucket.take(now):
            return False
        self._in_flight += 1
        return True

    def end(self) -> None:
        self._in_flight -= 1
