"""A rate: so many at once, and so many a second in the long run."""

from typing import final


@final
class TokenBucket:
    """Full at first; it holds no task and no timer."""

    def __init__(self, *, a_second: float, burst: int) -> None:
        self._a_second = a_second
        self._burst = float(burst)
        self._left = self._burst
        self._as_of: float | None = None

    def take(self, now: float, cost: float = 1.0) -> bool:
        """Take so many, if there are as many; `now` is monotonic."""
        since = now - self._as_of if self._as_of is not None else 0.0
        self._as_of = now
        self._left = min(self._left + since * self._a_second, self._burst)
        if self._left < cost:
            return False
        self._left -= cost
        return True
