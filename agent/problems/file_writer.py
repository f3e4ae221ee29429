"""A pool's plugin tells the agent of its node what is wrong with it, in a file (`api.nodefiles.pluginproblems`).

The run directory is the agent's, and a tmpfs: a write takes no disk's time. A file that cannot be written
costs the plugin nothing but this; its log and its readiness say the same.
"""

import asyncio
import contextlib
import os
import secrets
from typing import TYPE_CHECKING, Final, NoReturn, final

import msgspec
import structlog

from agent.files import remove_file, replace_file
from agent.problems.registry import NO_PROBLEM
from api.nodefiles.pluginproblems import PROBLEMS_SUFFIX, TELL_EVERY_S, PluginProblem
from telemetry.metrics import TASK_FAILURES

if TYPE_CHECKING:
    from pathlib import Path

    from agent.problems.registry import ProblemRegistry

TASK: Final = "plugin.problems"
GATHER_S: Final = 1.0
"""Problems come and go together, as at the start of the process."""
MAX_NAME_LENGTH: Final = 100
"""Of the pool's name in that of its file, which may have 255 with what makes it unique."""
MAX_TEXT_LENGTH: Final = 1024

_log = structlog.get_logger()


@final
class ProblemsFileWriter:
    """Keeps the file equal to what is wrong; it is there only while something is."""

    def __init__(self, directory: "Path", problems: "ProblemRegistry", *, pool: str) -> None:
        """Take the directory, which may come later; nothing is written before `run`."""
        name = f"{pool[:MAX_NAME_LENGTH]}-{secrets.token_hex(4)}{PROBLEMS_SUFFIX}"
        self.path: Final = directory / name
        self._problems = problems
        self._pool = pool
        self._has_complained = False
        TASK_FAILURES.labels(TASK)

    async def run(self) -> NoReturn:
        """Follow the problems until cancelled, and take the file away then."""
        try:
            while True:
                self._problems.changed.clear()
                self.settle()
                await self._rest()
        finally:
            self._try(None)

    def settle(self) -> None:
        """Write the file, touch one that says this already, or remove it where nothing is wrong."""
        problem = self._problems.verdict()
        if problem == NO_PROBLEM:
            self._try(None)
            return
        said = PluginProblem(
            version="v1",
            pool=self._pool,
            reason=problem.reason.value,
            text=problem.text[:MAX_TEXT_LENGTH],
        )
        self._try(msgspec.json.encode(said))

    async def _rest(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TELL_EVERY_S):
                await self._problems.changed.wait()
                await asyncio.sleep(GATHER_S)

    def _try(self, content: bytes | None) -> None:
        try:
            if content is None:
                remove_file(self.path)
            elif not replace_file(self.path, content):
                os.utime(self.path)
        except OSError as error:
            TASK_FAILURES.labels(TASK).inc()
            if not self._has_complained:
                _log.warning(
                    "problems not told", path=str(self.path), error=error.strerror or str(error)
                )
            self._has_complained = True
        else:
            self._has_complained = False
