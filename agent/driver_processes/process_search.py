"""Searches the node's processes in a thread that may never return: the kernel shows no mappings of a process that a driver keeps."""

import os
from typing import TYPE_CHECKING, Final, final

from agent.driver_processes.open_drivers import driver_majors, processes_with_driver
from agent.errors import HiddenProcessesError
from agent.kubelet.pod_processes import pods_of_processes
from agent.nvml.call_thread import CallThread

if TYPE_CHECKING:
    from pathlib import Path

    from agent.driver_processes.reported_processes import Reading
    from api.clock import Clock

WITHIN_S: Final = 10.0
"""A node with 5,000 processes and the most files that are examined takes two seconds."""
_CALL: Final = "open_files"


@final
class ProcessSearch:
    """One search at a time."""

    def __init__(self, clock: "Clock", *, procfs: "Path", processes: "Path") -> None:
        """Take the directories of the kernel's list of devices, and of the node's processes."""
        self._procfs = procfs
        self._processes = processes
        self._calls: CallThread[None] = CallThread(clock, lambda: None, lambda _: None)

    async def find(self) -> "Reading":
        """Return the processes that have the driver open, but for this one.

        Raises:
            HiddenProcessesError: other processes of the node cannot be seen.
            DriverUnavailableError: the kernel does not answer in time.
        """
        return await self._calls.call(_CALL, lambda _: self._read(), WITHIN_S)

    def close(self) -> None:
        self._calls.end()

    def _read(self) -> "Reading":
        majors = driver_majors(self._procfs)
        if not majors:
            return {}
        own = _own_pid(self._processes)
        _check_visible(self._processes, own)
        found = processes_with_driver(majors, self._processes, but={own})
        pods = pods_of_processes((item.pid for item in found), self._processes)
        return {item: pods[item.pid] for item in found if item.pid in pods}


def _own_pid(processes: "Path") -> int:
    """Return this process' id there; 0 where the directory is no procfs."""
    try:
        return int((processes / "self").readlink().name)
    except (OSError, ValueError):
        return 0


def _check_visible(processes: "Path", own: int) -> None:
    """Raise where processes of other pods are not shown, or not what they have open."""
    if own == 1:
        raise HiddenProcessesError("the agent has a PID namespace of its own: set hostPID")
    try:
        os.scandir(processes / "1" / "fd").close()
    except PermissionError:
        raise HiddenProcessesError(
            "the agent may not read the open files of other processes: it is to be privileged"
        ) from None
    except OSError:
        return
