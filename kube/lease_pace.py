"""Pace of the calls by which a Lease is renewed, and the factor for its times that follows from it."""

from typing import Final, final

_MAX_STRETCH: Final = 8
"""The default times become 16 and 12 s, about client-go's."""
_PROMPT_CALLS: Final = 20
"""Prompt calls in a row after which the times are halved."""


@final
class LeasePace:
    """The factor by which the times of the Lease exceed the configured ones, for a slow API server.

    Short times make a short hand-over, and leave no leader where the API server takes a second to answer. It is
    a factor because the proof above needs the proportions of the times, not their lengths. A slow call doubles
    it, many prompt calls halve it.
    """

    def __init__(self, prompt_s: float) -> None:
        """Take the longest duration of a prompt call with nothing stretched."""
        self.stretch = 1
        self._prompt_s = prompt_s
        self._prompt_calls = 0

    def took(self, seconds: float) -> None:
        """Note the duration of an answered call."""
        slow_s = self._prompt_s * self.stretch
        if seconds > slow_s:
            self.timed_out()
        elif self.stretch > 1 and seconds < slow_s / 4:
            self._prompt_calls += 1
            if self._prompt_calls >= _PROMPT_CALLS:
                self.stretch //= 2
                self._prompt_calls = 0
        else:
            self._prompt_calls = 0

    def timed_out(self) -> None:
        self.stretch = min(2 * self.stretch, _MAX_STRETCH)
        self._prompt_calls = 0
