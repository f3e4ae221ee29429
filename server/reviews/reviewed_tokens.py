"""Verdicts on bearer tokens: asked of the API server at a bounded rate, and kept for a short time.

A token is known by its SHA-256 only. Tokens that were accepted have a rate of their own, so that a flood of others
keeps none of them out; both kinds are bounded in number.
"""

import enum
import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Protocol, final

import structlog

from kube.errors import KubeError

if TYPE_CHECKING:
    from api.clock import Clock

ALLOWED_S: Final = 60.0
"""A right that is taken away ends within this."""
REFUSED_S: Final = 5.0
"""A right that is given is seen after this."""
MAX_TOKENS: Final = 1_024
"""Of each kind; the one that was used longest ago goes first."""
REVIEWS_A_S: Final = 5.0
"""Of each kind, in the long run; each is two requests to the API server."""
BURST: Final = 20
MAX_UNDER_WAY: Final = 16
"""Of each kind: an API server that does not answer keeps each for `api_timeout_s`."""

_log = structlog.get_logger()


class TokenVerdict(enum.Enum):
    ALLOWED = enum.auto()
    UNAUTHENTICATED = enum.auto()
    """No token, or one that the API server does not accept."""
    FORBIDDEN = enum.auto()
    """Its user lacks the right."""
    UNAVAILABLE = enum.auto()
    """The API server does not answer, or too many tokens come: nothing is known of this one."""


class Reviews(Protocol):
    """The API server's part."""

    async def review(self, token: str) -> TokenVerdict:
        """Return the verdict; raises KubeError where the API server does not answer."""


@final
class ReviewedTokens:
    """Answers for tokens. Not for the scheduler's paths, which are answered without the API server."""

    def __init__(self, reviews: Reviews, clock: "Clock") -> None:
        self._reviews = reviews
        self._clock = clock
        self._allowed = _Kept()
        self._refused = _Kept()
        self._of_known = _ReviewRate()
        self._of_others = _ReviewRate()

    async def verdict(self, token: bytes) -> TokenVerdict:
        """Return what is known of a token, or what the API server says now."""
        digest = hashlib.sha256(token).digest()
        now = self._clock.monotonic()
        for kept in (self._allowed, self._refused):
            verdict = kept.get(digest, now)
            if verdict is not None:
                return verdict
        rate = self._of_known if digest in self._allowed else self._of_others
        if not rate.begin(now):
            return TokenVerdict.UNAVAILABLE
        try:
            verdict = await self._reviews.review(token.decode("latin-1"))
        except KubeError as error:
            _log.warning("token review failed", cause=type(error).__name__, error=str(error))
            return TokenVerdict.UNAVAILABLE
        finally:
            rate.end()
        self._keep(digest, verdict)
        return verdict

    def _keep(self, digest: bytes, verdict: TokenVerdict) -> None:
        now = self._clock.monotonic()
        self._allowed.drop(digest)
        self._refused.drop(digest)
        if verdict is TokenVerdict.ALLOWED:
            self._allowed.add(digest, verdict, now + ALLOWED_S)
        elif verdict is not TokenVerdict.UNAVAILABLE:
            self._refused.add(digest, verdict, now + REFUSED_S)


@final
class _Kept:
    """Verdicts by digest, the one that was used last at the end; what is over stays known as such."""

    def __init__(self) -> None:
        self._verdicts: OrderedDict[bytes, tuple[TokenVerdict, float]] = OrderedDict()
        # digest -> verdict, and until when it holds

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._verdicts

    def get(self, digest: bytes, now: float) -> TokenVerdict | None:
        found = self._verdicts.get(digest)
        if found is None or now >= found[1]:
            return None
        self._verdicts.move_to_end(digest)
        return found[0]

    def add(self, digest: bytes, verdict: TokenVerdict, until: float) -> None:
        self._verdicts[digest] = verdict, until
        if len(self._verdicts) > MAX_TOKENS:
            self._verdicts.popitem(last=False)

    def drop(self, digest: bytes) -> None:
        self._verdicts.pop(digest, None)


@final
class _ReviewRate:
    """A token bucket, and a bound of reviews under way."""

    def __init__(self) -> None:
        self._left = float(BURST)
        self._as_of: float | None = None
        self._under_way = 0

    def begin(self, now: float) -> bool:
        """Take one, if there is one."""
        since = now - self._as_of if self._as_of is not None else 0.0
        self._as_of = now
        self._left = min(self._left + since * REVIEWS_A_S, float(BURST))
        if self._left < 1 or self._under_way >= MAX_UNDER_WAY:
            return False
        self._left -= 1
        self._under_way += 1
        return True

    def end(self) -> None:
        self._under_way -= 1
