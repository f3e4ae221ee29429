"""Waits between the attempts of one request: exponential with full jitter, or what the registry asks for.

All nodes of a pool pull the same image at the same moment; without jitter they would come back in step.
"""

import datetime as dt
import random
from email.utils import parsedate_to_datetime
from typing import Final

BASE_S: Final = 0.5
CAP_S: Final = 15.0
LONGEST_ASKED_FOR_S: Final = 120.0
"""A registry that asks for more is refused at once: the caller's next look is the better wait."""

_RANDOM: Final = random.SystemRandom()


def retry_delay_s(failures: int, asked_for_s: float | None) -> float | None:
    """Return the seconds to wait after so many failures, at least one; None to give up at once.

    Args:
        failures: of this request so far.
        asked_for_s: the value of `Retry-After`, if the registry sent one.
    """
    if asked_for_s is not None and asked_for_s > LONGEST_ASKED_FOR_S:
        return None
    # 2**16 times the base is beyond the cap; more only makes large numbers.
    bound = min(CAP_S, BASE_S * 2 ** min(failures - 1, 16))
    return max(_RANDOM.uniform(0, bound), asked_for_s or 0.0)


def parse_retry_after(value: str | None, now: dt.datetime) -> float | None:
    """Return the seconds that `Retry-After` names, as a number or a date; None where it is neither."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdecimal():
        return float(text[:9])
    try:
        until = parsedate_to_datetime(text)
    except ValueError:
        return None
    if until.tzinfo is None:
        until = until.replace(tzinfo=dt.UTC)
    return max(0.0, (until - now).total_seconds())
