"""Kills what a test run leaves behind, whatever ended the run.

Runs as a process of its own, in its own session, so that neither Ctrl-C nor a signal to the run's
process group reaches it. It reads `+PGID` and `-PGID` lines on its standard input; the end of that
input means that the run is over, orderly or by SIGKILL, and the groups still named are killed.
"""

import contextlib
import os
import signal
import sys


def main() -> None:
    alive: set[int] = set()
    for line in sys.stdin:
        process_group = int(line[1:])
        if line.startswith("+"):
            alive.add(process_group)
        else:
            alive.discard(process_group)
    for process_group in alive:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process_group, signal.SIGKILL)


if __name__ == "__main__":
    main()
