"""How much of the machine other programs used meanwhile; beside busy ones, milliseconds are theirs as well."""

import time
from collections.abc import Callable
from typing import Final, NamedTuple, final

import psutil

_IDLE: Final = ("idle", "iowait", "guest", "guest_nice")
"""No work, or counted as `user` already."""


class CpuReading(NamedTuple):
    """Seconds: of the clock, and of processor time."""

    at: float
    machine: float
    own: float
    """Of this process and of those that it started, ended ones included."""


def read_cpu() -> CpuReading:
    """Read all of the machine."""
    me = psutil.Process()
    own = 0.0
    for child in (me, *me.children(recursive=True)):
        try:
            own += sum(
                child.cpu_times()[:4]
            )  # its own, and those of the children that it waited for
        except psutil.NoSuchProcess:
            continue  # ended between the two looks: its parent has its time
    times = psutil.cpu_times()._asdict()
    machine = sum(spent for kind, spent in times.items() if kind not in _IDLE)
    return CpuReading(time.perf_counter(), machine, own)


@final
class OtherPrograms:
    """Looks at the machine from its construction on."""

    def __init__(self, read: Callable[[], CpuReading] = read_cpu) -> None:
        self._read = read
        self._before = read()

    def cores(self) -> float:
        """Return how many cores all programs but this one and its children have used on average."""
        now, before = self._read(), self._before
        others = (now.machine - before.machine) - (now.own - before.own)
        return max(0.0, others / (now.at - before.at))
