"""How much longer than configured the times of a Lease should be, for an API server that is slow.

Short times make a short hand-over, and would have nobody lead where the API server takes a second to
answer. A factor, because the proof in `kube.leader_election` needs the times' proportions and not their length.
"""

from typing import Final, final

MAX_STRETCH: Final = 8
"""The default times become 16 and 12 s, about client-go's."""
PROMPT_CALLS: Final = 20
"""So many prompt ones in a row, and half the time is asked for."""


@final
class Pace:
    """Doubles with each call that was slow, and is halved after many that were not."""

    def __init__(self, prompt_s: float) -> None:
        """Take how long a call may take, where nothing is stretched, without being slow."""
        self.stretch = 1
        self._prompt_s = prompt_s
        self._prompt_calls = 0

    def took(self, seconds: float) -> None:
        """Note how long a call took that was answered."""
        slow_s = self._prompt_s * self.stretch
        if seconds > slow_s:
            self.timed_out()
        elif self.stretch > 1 and seconds < slow_s / 4:
            self._prompt_calls += 1
            if self._prompt_calls >= PROMPT_CALLS:
                self.stretch //= 2
                self._prompt_calls = 0
        else:
            self._prompt_calls = 0

    def timed_out(self) -> None:
        """Note that a call got no answer in time."""
        self.stretch = min(2 * self.stretch, MAX_STRETCH)
        self._prompt_calls = 0
