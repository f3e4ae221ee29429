"""A clock that a test moves."""

import datetime as dt

from tests.support.builders import EPOCH


class HandClock:
    """Stands still; `seconds` since the epoch of the builders."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def monotonic(self) -> float:
        return self.seconds

    def utc_now(self) -> dt.datetime:
        return EPOCH + dt.timedelta(seconds=self.seconds)
