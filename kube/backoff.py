"""How long to wait before trying again: exponential, full jitter, capped.

Full jitter, because what fails for one of our watches fails for all of them at once,
and they should not come back in step.
"""

import random
from typing import final


@final
class Backoff:
    """Delays of one sequence of failures."""

    def __init__(
        self, *, base_s: float = 1.0, cap_s: float = 30.0, rng: random.Random | None = None
    ) -> None:
        """Take the bound of the first delay, the bound of all, and the source of chance."""
        self._base_s = base_s
        self._cap_s = cap_s
        self.rng = rng or random.SystemRandom()
        """The source of chance, for others who jitter with it."""
        self._failures = 0

    @property
    def failures(self) -> int:
        """Return how many failures there were since the last success."""
        return self._failures

    def fail(self, at_least_s: float | None = None) -> float:
        """Count a failure; return the seconds to wait.

        Args:
            at_least_s: what the server asked for (Retry-After); honoured up to the cap.
        """
        # 2**16 times any base is beyond every cap; more only makes large numbers.
        bound = min(self._cap_s, self._base_s * 2 ** min(self._failures, 16))
        self._failures += 1
        delay = self.rng.uniform(0, bound)
        return max(delay, min(at_least_s or 0.0, self._cap_s))

    def succeed(self) -> None:
        """Forget the failures."""
        self._failures = 0
