"""Answers of the API server about secrets: asked for at a bounded rate, and kept for a short time.

A secret is known by its SHA-256 only. The accepted secrets of each user have a rate of their own, so that neither a flood
of unknown ones nor the many secrets of another user keep them out; all are bounded in number.
"""

import enum
import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

import structlog

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
MAX_UNDER_WAY: Final = 16
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


Verdict = Accepted[T] | TokenRefusal


@final
class ReviewCache(Generic[T]):
    """Answers by secret. Not for the scheduler's paths, which are answered without the API server."""

    def __init__(self, clock: "Clock", user_of: "Callable[[T], str]") -> None:
        """Take the clock, and what names the user of an answer."""
        self._clock = clock
        self._user_of = user_of
        self._accepted: _Kept[Accepted[T]] = _Kept()
        self._refused: _Kept[TokenRefusal] = _Kept()
        # user -> the rate of its accepted secrets; the one that was asked about last at the end
        self._by_user: OrderedDict[str, _ReviewRate] = OrderedDict()
        self._of_others = _ReviewRate()

    def __len__(self) -> int:
        return len(self._accepted) + len(self._refused)

    async def find(
        self,
        secret: bytes,
        ask: "Callable[[], Awaitable[T | TokenRefusal]]",
        *,
        user: str | None = None,
    ) -> Verdict[T]:
        """Return what is known of a secret, or what the API server says now.

        `ask` asks the API server, and raises KubeError where it does not answer; `user` is whose secret it is, where
        that is known already.
        """
        digest = hashlib.sha256(secret).digest()
        now = self._clock.monotonic()
        known = self._accepted.get(digest, now) or self._refused.get(digest, now)
        if known is not None:
            return known
        rate = self._rate_of(digest, user)
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

    def _rate_of(self, digest: bytes, user: str | None) -> "_ReviewRate":
        accepted = self._accepted.last(digest)
        if accepted is not None:
            user = self._user_of(accepted.value)
        if user is None:
            return self._of_others
        rate = self._by_user.setdefault(user, _ReviewRate())
        self._by_user.move_to_end(user)
        if len(self._by_user) > MAX_TOKENS:
            self._by_user.popitem(last=False)
        return rate

    def _keep(self, digest: bytes, answer: T | TokenRefusal) -> Verdict[T]:
        now = self._clock.monotonic()
        self._accepted.drop(digest)
        self._refused.drop(digest)
        if not isinstance(answer, TokenRefusal):
            accepted = Accepted(answer, now + ALLOWED_S)
            self._accepted.add(digest, accepted, accepted.until)
            return accepted
        if answer is not TokenRefusal.UNAVAILABLE:
            self._refused.add(digest, answer, now + REFUSED_S)
        return answer


V = TypeVar("V")


@final
class _Kept(Generic[V]):
    """Verdicts by digest, the one that was used last at the end; what is over stays known as such."""

    def __init__(self) -> None:
        self._verdicts: OrderedDict[bytes, tuple[V, float]] = OrderedDict()
        # digest -> verdict, and until when it holds

    def __len__(self) -> int:
        return len(self._verdicts)

    def get(self, digest: bytes, now: float) -> V | None:
        found = self._verdicts.get(digest)
        if found is None or now >= found[1]:
            return None
        self._verdicts.move_to_end(digest)
        return found[0]

    def last(self, digest: bytes) -> V | None:
        """Return the last verdict, which may be over."""
        found = self._verdicts.get(digest)
        return None if found is None else found[0]

    def add(self, digest: bytes, verdict: V, until: float) -> None:
        self._verdicts[digest] = verdict, until
        if len(self._verdicts) > MAX_TOKENS:
            self._verdicts.popitem(last=False)

    def drop(self, digest: bytes) -> None:
        self._verdicts.pop(digest, None)


@final
class _ReviewRate:
    """A rate, and a bound of reviews under way."""

    def __init__(self) -> None:
        self._bucket = TokenBucket(a_second=REVIEWS_A_S, burst=BURST)
        self._under_way = 0

    def begin(self, now: float) -> bool:
        """Take one, if there is one."""
        if self._under_way >= MAX_UNDER_WAY or not self._bucket.take(now):
            return False
        self._under_way += 1
        return True

    def end(self) -> None:
        self._under_way -= 1
