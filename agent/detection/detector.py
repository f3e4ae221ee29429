"""Detector of devices: polls the PCI bus, and sleeps.

It runs on every node, so it is small: this process imports no client of the API server. A report is made by a
child, which imports one, compares, writes where the NodeFeature differs, and ends (`agent.detection.report`).
There is a report when the devices on the bus change, one after a failure, and one every hour, which restores a
NodeFeature that was edited or deleted; it writes nothing where nothing differs.

A device is gone after it was missing in two polls in a row: the kernel's files may be unreadable for a moment
while a device is reset.
"""

import os
import random
import signal
import time
from typing import TYPE_CHECKING, Final, NoReturn, final

from agent.driver.pci import read_devices

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agent.driver.pci import PciDevice

    Report = Callable[[tuple[PciDevice, ...]], bool]

POLL_S: Final = 10.0
"""A poll costs a millisecond for 300 functions."""
CHECK_EVERY_S: Final = 3600.0
FIRST_RETRY_S: Final = 5.0
MAX_RETRY_S: Final = 300.0
REPORT_DEADLINE_S: Final = 60
"""Seconds after which the kernel ends a report."""
_SUCCEEDED: Final = 0
_FAILED: Final = 1


@final
class Detector:
    """Devices on the bus, and what is known to be reported of them; `step` is one poll."""

    def __init__(
        self,
        read: "Callable[[], tuple[PciDevice, ...]]",
        report: "Report",
        *,
        jitter: "Callable[[], float]" = random.random,  # noqa: S311  # it spreads requests
    ) -> None:
        """`jitter` returns a number from 0 to 1: the nodes of a cluster report apart from each other."""
        self._read = read
        self._report = report
        self._jitter = jitter
        self._found: tuple[PciDevice, ...] = ()
        self._missed: frozenset[str] = frozenset()
        self._reported: tuple[PciDevice, ...] | None = None
        self._due = 0.0
        self._retry_s = 0.0
        """Seconds until the next attempt, at most; 0 after a success."""

    def step(self, now: float) -> None:
        """Read the bus; report where that is due. `now` is monotonic."""
        self._found = self._confirmed(self._read())
        is_changed = self._found != self._reported and not self._retry_s
        if not is_changed and now < self._due:
            return
        if self._report(self._found):
            self._reported = self._found
            self._retry_s = 0.0
            self._due = now + CHECK_EVERY_S * (0.5 + self._jitter() / 2)
        else:
            self._retry_s = min(2 * self._retry_s or FIRST_RETRY_S, MAX_RETRY_S)
            self._due = now + self._retry_s * (0.5 + self._jitter() / 2)

    def _confirmed(self, read: "tuple[PciDevice, ...]") -> "tuple[PciDevice, ...]":
        """Return the devices of this poll, and those that are missing for the first time."""
        addresses = {item.address for item in read}
        missed_once = [
            item
            for item in self._found
            if item.address not in addresses and item.address not in self._missed
        ]
        self._missed = frozenset(item.address for item in missed_once)
        return tuple(sorted((*read, *missed_once), key=lambda item: item.address))


def run_detector(sysfs: "Path", report: "Report") -> NoReturn:
    """Poll and report until SIGTERM or SIGINT, which end the process with status 0.

    `report` runs in a child: the modules that it imports stay out of this process.
    """
    child = _Child(report)
    for number in (signal.SIGTERM, signal.SIGINT):
        # The first process of a container has no default for them.
        signal.signal(number, child.stop)
    detector = Detector(lambda: read_devices(sysfs), child.report)
    while True:
        detector.step(time.monotonic())
        time.sleep(POLL_S)


@final
class _Child:
    """The process of a report."""

    def __init__(self, report: "Report") -> None:
        self._report = report
        self._pid = 0

    def report(self, devices: "tuple[PciDevice, ...]") -> bool:
        """Report, and wait for it; return whether it succeeded."""
        self._pid = os.fork()
        if self._pid == 0:
            self._run(devices)
        _, status = os.waitpid(self._pid, 0)
        self._pid = 0
        return os.waitstatus_to_exitcode(status) == _SUCCEEDED

    def _run(self, devices: "tuple[PciDevice, ...]") -> NoReturn:
        """Report, and end this process, which is the child."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        signal.alarm(REPORT_DEADLINE_S)
        raise SystemExit(_SUCCEEDED if self._report(devices) else _FAILED)

    def stop(self, _number: int, _frame: object) -> NoReturn:
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
        raise SystemExit(_SUCCEEDED)
