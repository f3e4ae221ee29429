"""How long to wait before trying again: exponential, full jitter, capped.

Full jitter, because what fails for one of our watches fails for all of them at once,
and they should not come back in step.
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
        rng: random.Random | None = None,
        jitter: bool = True,
    ) -> None:
        """Start without failures.

        Args:
            base_s: the bound of the first delay.
            cap_s: the bound of all delays.
            rng: the source of chance.
            jitter: False waits for the whole bound: for a peer that has no other clients of this kind, such as
                the kubelet of the same node.
        """
        self._base_s = base_s
        self._cap_s = cap_s
        self.rng = rng or _SYSTEM_RANDOM
        """The source of chance, for others who jitter with it."""
        self._jitter = jitter
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
        delay = self.rng.uniform(0, bound) if self._jitter else bound
        return max(delay, min(at_least_s or 0.0, self._cap_s))

    def succeed(self) -> None:
        """Forget the failures."""
        self._failures = 0
