"""When a thing that is looked at again and again counts as up or down: not at the first look.

A look is a sample at most once in a period, so that one change that is seen three times in a second is
not three samples. A look that contradicts the samples gathered so far ends their row at once.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

_ROUNDING_S: Final = 1e-3
"""A look that was asked for after a period may come by a rounding error too early."""


class DebouncedState(Enum):
    """What a thing counts as."""

    UNDECIDED = "undecided"
    """It was not seen often enough since the beginning."""
    UP = "up"
    DOWN = "down"


@dataclass(frozen=True, slots=True, kw_only=True)
class DebounceTerms:
    """How many samples in a row change the standing."""

    good_samples: int = 3
    bad_samples: int = 3
    period_s: float = 10.0
    """Looks that are closer together than this are one sample."""

    def __post_init__(self) -> None:
        """Refuse figures that mean nothing."""
        if self.good_samples < 1 or self.bad_samples < 1 or self.period_s < 0:
            raise ValueError(f"samples are counted from 1, a period is no less than 0 s: {self}")


@dataclass(frozen=True, slots=True)
class Track:
    """A standing, and the row of samples that may change it."""

    standing: DebouncedState = DebouncedState.UNDECIDED
    is_good: bool = False
    """What the row consists of."""
    samples: int = 0
    """Length of the row; 0 while looks agree with the standing."""
    at: float = 0.0
    """When the last sample of the row was taken."""

    def after(self, at: float, steadiness: DebounceTerms, *, is_good: bool) -> "Track":
        """Return the track after one more look.

        Args:
            at: when it was so what the look shows (monotonic seconds); the same evidence looked at
                again is no new sample.
            steadiness: how many samples count.
            is_good: what the look shows.
        """
        if self.standing is (DebouncedState.UP if is_good else DebouncedState.DOWN):
            return Track(self.standing) if self.samples else self
        if not self.samples or self.is_good is not is_good:
            row = Track(self.standing, is_good, 1, at)
        elif at > self.at and at - self.at >= steadiness.period_s - _ROUNDING_S:
            row = replace(self, samples=self.samples + 1, at=at)
        else:
            row = self
        wanted = steadiness.good_samples if is_good else steadiness.bad_samples
        if row.samples < wanted:
            return row
        return Track(DebouncedState.UP if is_good else DebouncedState.DOWN)

    def next_sample_in(self, now: float, steadiness: DebounceTerms) -> float | None:
        """Return after how many seconds a look is a new sample; None where none is waited for."""
        if not self.samples:
            return None
        return max(0.0, self.at + steadiness.period_s - now)


STEADY: Final = DebounceTerms()
UNSEEN: Final = Track()
