"""Our server with a wall clock that the run sets: an hour forth or back, at any moment.

    python server_entry.py --clock FILE serve --settings FILE

FILE holds the offset in seconds. Only the wall clock has one; nobody can set the monotonic clock.
"""

import argparse
import datetime as dt
import sys
from pathlib import Path
from typing import TYPE_CHECKING, final

import uvloop

from api.clock import Instant
from http_edge.system_clock import SystemClock
from server.main import serve
from server.settings import load_settings
from telemetry.logs import configure_logs

if TYPE_CHECKING:
    from collections.abc import Sequence


@final
class SetClock:
    """The machine's clocks, the wall clock shifted by what a file says at that moment."""

    def __init__(self, offset: Path) -> None:
        self._offset = offset
        self._clock = SystemClock()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def utc_now(self) -> dt.datetime:
        return self._clock.utc_now() + dt.timedelta(seconds=float(self._offset.read_text()))

    def instant(self) -> Instant:
        return Instant(self.monotonic(), self.utc_now())


def run(arguments: "Sequence[str]") -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clock", type=Path, required=True)
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("--settings", type=Path, required=True)
    given = parser.parse_args(arguments)
    settings = load_settings((), given.settings)
    logs = configure_logs(settings.log_level)
    try:
        uvloop.run(serve(settings, logs, SetClock(given.clock)))
    except ExceptionGroup:
        return 1  # each failed task has logged itself
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
