"""What a process takes while it idles: processor time, and memory by who would be charged for it.

Memory is judged by what a node loses to a lone agent: all its resident pages. The kernel charges a container's
cgroup for anonymous pages, and for those of files that nobody else had read before; so the pages of Python and
gRPC are the agent's too where no other container of the node has them. Beside that stand the anonymous pages,
which alone can not be dropped and read again: what keeps a container from being killed at its limit.
"""

from pathlib import Path
from typing import NamedTuple

KIB = 1024
MIB = 1024 * KIB


class Footprint(NamedTuple):
    """Memory in MiB."""

    rss: float
    """All resident pages."""
    pss: float
    """Those that other processes share counted by their part; the bench's own Python shares many."""
    anonymous: float


def footprint(pid: int) -> Footprint:
    """Return the memory of a process now."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines()[1:]
    fields = {
        name: int(remaining.split()[0])
        for name, _, remaining in (line.partition(":") for line in lines)
    }
    rss, pss, anonymous = (fields[name] * KIB / MIB for name in ("Rss", "Pss", "Anonymous"))
    return Footprint(rss, pss, anonymous)


def cpu_s(pid: int) -> float:
    """Return the processor time of all threads that live, to the nanosecond."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text("ascii").split()[0]) for task in tasks) / 1e9
