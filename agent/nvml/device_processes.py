"""Processes on a device or an instance, from NVML. Blocking, for the thread of a session."""

from typing import TYPE_CHECKING, Final

import pynvml

if TYPE_CHECKING:
    from agent.nvml.errors import Handle, NvmlQueries

_PROCESSES: Final = (
    pynvml.nvmlDeviceGetComputeRunningProcesses_v3,
    pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3,
    pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3,
)


def processes_on(handle: "Handle", queries: "NvmlQueries") -> set[int]:
    """Return the ids of the processes that use a device or an instance, in this PID namespace."""
    found: set[int] = set()
    for function in _PROCESSES:
        found.update(process.pid for process in queries.ask((), function, handle))
    return found
