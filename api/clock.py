"""The clock port.

Code that needs the time takes a `Clock`; reading it elsewhere is banned by the linter,
so that tests can move time and wall-clock jumps cannot end a reservation.
"""

from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    import datetime as dt


class Clock(Protocol):
    """Two readings of time that must not be mixed."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start; never goes back. For time-outs and TTLs."""

    def utc_now(self) -> "dt.datetime":
        """Return the wall clock, aware, in UTC. For persisted or displayed times."""


class Instant(msgspec.Struct, frozen=True, gc=False):
    """Both readings of a clock at one moment."""

    monotonic: float
    utc: "dt.datetime"
