"""How a demo ends: with what it was to show, or with a sentence and the last lines of the server's log."""

import contextlib
import sys
from typing import TYPE_CHECKING

import aiohttp

from demo.cluster import AdmissionDenied
from demo.run import UntrueError
from kube.errors import KubeError

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from pathlib import Path


async def ended(work: "Awaitable[None]", log: "Path") -> int:
    """Return 0 once the work is done; say what is wrong, with the end of the server's log, where it is not."""
    try:
        await work
    except UntrueError as untrue:
        return _fail(f"NOT TRUE: {untrue}", log)
    except TimeoutError:
        return _fail("NOT DONE in time", log)
    except (KubeError, AdmissionDenied, aiohttp.ClientError, OSError, ExceptionGroup) as error:
        return _fail(f"BROKEN: {type(error).__name__}: {error}", log)
    return 0


def say(text: str = "") -> None:
    """Print a line at once, while the demo runs."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _fail(text: str, log: "Path") -> int:
    say(f"\n{text}")
    lines: list[str] = []
    with contextlib.suppress(OSError):
        lines = log.read_text(encoding="utf-8").splitlines()[-20:]
    if lines:
        say("The last lines of the server's log:")
        for line in lines:
            say(f"  {line}")
    return 1
