"""Exponential backoff with a cap and jitter.

Full jitter by default: a failure of the API server ends all watches at once, and they should not come back in
step.
"""

import random
from typing import Final, final

_SYSTEM_RANDOM: Final = random.SystemRandom()
# It has no state, so that all share it.


@final
class Backoff:
    """Delays of one sequence of failures."""

    def __init__(
        self,
        *,
        base_s: float = 1.0,
        cap_s: float = 30.0,
        jitter: float = 1.0,
        rng: random.Random | None = None,
    ) -> None:
        """Start without failures.

        Args:
            base_s: bound of the first delay; each later one is twice as long.
            cap_s: bound of all delays.
            jitter: the share of each delay that is random: 1 is full jitter, 0 none, for a peer that has no
                other clients of this kind, such as the kubelet of the same node.
            rng: the source of randomness.
        """
        self._base_s = base_s
        self._cap_s = cap_s
        self._jitter = jitter
        self.rng = rng or _SYSTEM_RANDOM
        """The source of randomness, for callers that jitter with it."""
        self._failures = 0

    @property
    def failures(self) -> int:
        return self._failures

    def fail(self, at_least_s: float | None = None) -> float:
        """Count a failure; return the seconds to wait.

        Args:
            at_least_s: what the server asked for (Retry-After); honoured up to the cap.
        """
        # 2**16 times any base is beyond every cap; more only makes large numbers.
        bound = min(self._cap_s, self._base_s * 2 ** min(self._failures, 16))
        self._failures += 1
        delay = self.rng.uniform((1 - self._jitter) * bound, bound)
        return max(delay, min(at_least_s or 0.0, self._cap_s))

    def succeed(self) -> None:
        self._failures = 0
