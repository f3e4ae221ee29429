"""Debouncing: an observed state counts only after several samples in a row.

Observations within one period are one sample, so that one change that is observed three times in a second
is not three samples. An observation that contradicts the current run of samples ends it at once.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

_ROUNDING_S: Final = 1e-3
"""An observation that was scheduled one period later may come too early by a rounding error."""


class DebouncedState(Enum):
    """The state that counts."""

    UNDECIDED = "undecided"
    """Too few samples since the start."""
    UP = "up"
    DOWN = "down"


@dataclass(frozen=True, slots=True, kw_only=True)
class DebounceLimits:
    """How many samples in a row change the state."""

    good_samples: int = 3
    bad_samples: int = 3
    period_s: float = 10.0
    """Observations closer together than this are one sample."""

    def __post_init__(self) -> None:
        if self.good_samples < 1 or self.bad_samples < 1 or self.period_s < 0:
            raise ValueError(f"samples are counted from 1, a period is no less than 0 s: {self}")


@dataclass(frozen=True, slots=True)
class DebounceCounter:
    """A debounced state, and the run of samples that may change it."""

    state: DebouncedState = DebouncedState.UNDECIDED
    is_good: bool = False
    """Whether the samples of the run are good ones."""
    samples: int = 0
    """Length of the run; 0 while observations agree with the state."""
    at: float = 0.0
    """Time of the last sample of the run."""

    def after(self, at: float, limits: DebounceLimits, *, is_good: bool) -> "DebounceCounter":
        """Return the counter after one more observation.

        Args:
            at: the time of the evidence (monotonic seconds); the same evidence is no second sample.
            limits: how many samples count.
            is_good: the observation.
        """
        if self.state is (DebouncedState.UP if is_good else DebouncedState.DOWN):
            return DebounceCounter(self.state) if self.samples else self
        if not self.samples or self.is_good is not is_good:
            run = DebounceCounter(self.state, is_good, 1, at)
        elif at > self.at and at - self.at >= limits.period_s - _ROUNDING_S:
            run = replace(self, samples=self.samples + 1, at=at)
        else:
            run = self
        required = limits.good_samples if is_good else limits.bad_samples
        if run.samples < required:
            return run
        return DebounceCounter(DebouncedState.UP if is_good else DebouncedState.DOWN)

    def next_sample_in(self, now: float, limits: DebounceLimits) -> float | None:
        """Return the seconds until an observation is a new sample; None outside a run."""
        if not self.samples:
            return None
        return max(0.0, self.at + limits.period_s - now)


DEFAULT_DEBOUNCE: Final = DebounceLimits()
NO_SAMPLES: Final = DebounceCounter()
