"""`python -m tests.playground up`, `down`: start the cluster in the background and follow its start, and end it.

A second `up` prints again how to use it, and a second `down` does nothing.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from tests.cluster.environment import binaries
from tests.playground.state import MODULE, State

POLL_S: Final = 0.1
END_WITHIN_S: Final = 60.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.playground", description=__doc__)
    parser.add_argument("verb", choices=("up", "down"))
    parser.add_argument("--folder", type=Path, default=binaries.ROOT / "build" / "playground")
    given = parser.parse_args()
    state = State(given.folder.resolve())
    return up(state) if given.verb == "up" else down(state)


def up(state: State) -> int:
    """Start the cluster unless it runs, and print what it prints until it is ready; return the exit status."""
    if sys.platform != "linux":
        print(f"The playground needs Linux, and this is {sys.platform}.")
        return 1
    if state.process is None:
        down(state)
        try:
            _start(state)
        except KeyboardInterrupt:
            down(state)
            return 128 + signal.SIGINT
    if not state.ready.exists():
        print(f"The playground is not there: see {state.output} and {state.logs}.")
        return 1
    print(state.ready.read_text(encoding="utf-8"))
    return 0


def down(state: State) -> int:
    """End everything that runs, and delete the folder but for its logs; return the exit status."""
    number = state.process
    if number is not None:
        os.kill(number, signal.SIGTERM)
        deadline = time.monotonic() + END_WITHIN_S
        while state.process is not None and time.monotonic() < deadline:
            time.sleep(POLL_S)
        if state.process is not None:
            os.kill(number, signal.SIGKILL)  # its reaper ends the others
        print(f"The playground has ended; its logs are in {state.logs}.")
    for entry in state.folder.glob("*"):
        if entry.is_dir() and entry != state.logs:
            shutil.rmtree(entry)
        elif entry != state.logs:
            entry.unlink()
    return 0


def _start(state: State) -> None:
    """Start the process, and print its output until the cluster is ready or the process ends."""
    state.folder.mkdir(parents=True, exist_ok=True)
    with state.output.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", MODULE, str(state.folder)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=binaries.ROOT,
            start_new_session=True,
        )
    state.pid.write_text(f"{process.pid}", encoding="utf-8")
    with state.output.open(encoding="utf-8", errors="replace") as printed:
        is_over = False
        while not is_over:
            is_over = state.ready.exists() or process.poll() is not None
            sys.stdout.write(printed.read())
            sys.stdout.flush()
            time.sleep(POLL_S)


if __name__ == "__main__":
    raise SystemExit(main())
