"""Servers that start at once: forked off a process that has imported everything already.

    python forkserver.py          one JSON request a line on stdin, one answer a line on stdout

A run ends a server every few seconds, and on a busy machine most of a start is imports. Each child leads
a process group of its own, and is as dead after SIGKILL as one that was started from a shell.
"""

import json
import os
import sys
import traceback
from typing import TYPE_CHECKING, Any

import server_entry  # type: ignore[import-not-found]  # beside this file: it runs as a script

if TYPE_CHECKING:
    from typing import NoReturn


def answer(request: dict[str, Any]) -> int | None:
    """Start a server and return its pid, or return the exit status of one, None while it runs."""
    if "start" in request:
        pid = os.fork()
        if pid == 0:
            become(request["start"], request["log"], request["env"])
        return pid
    pid, status = os.waitpid(request["poll"], os.WNOHANG)
    return None if pid == 0 else os.waitstatus_to_exitcode(status)


def become(arguments: list[str], log: str, env: dict[str, str]) -> "NoReturn":
    """Be the server from here on; what a child writes goes to its log."""
    status = 1
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDONLY)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for descriptor, target in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(descriptor, target)
        os.environ.update(env)
        status = server_entry.run(arguments)
    except BaseException:  # noqa: BLE001  # the end of a process, as the interpreter shows it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def main() -> None:
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
