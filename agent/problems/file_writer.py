"""Writer of a plugin's problems into a file for the agent of its node (`api.nodefiles.pluginproblems`).

The run directory is the agent's, and a tmpfs: a write waits for no disk. A file that cannot be written
degrades nothing else; the plugin's log and its readiness have the same problem.
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
from api.nodefiles.pluginproblems import PROBLEMS_SUFFIX, WRITE_EVERY_S, PluginProblem
from api.text import MAX_MESSAGE_LENGTH, truncate
from telemetry.metrics import TASK_FAILURES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agent.problems.registry import ProblemRegistry

TASK: Final = "plugin.problems"
GATHER_S: Final = 1.0
"""Problems come and go together, as at the start of the process."""
MAX_NAME_LENGTH: Final = 100
"""Greatest length of the pool's name in the file's name, which may have 255 characters with its unique part."""

_log = structlog.get_logger()


@final
class ProblemsFileWriter:
    """Keeps the file equal to the registry; it exists only while there is a problem."""

    def __init__(
        self,
        directory: "Path",
        problems: "ProblemRegistry",
        *,
        pool: str,
        replace: "Callable[[Path, bytes], bool]" = replace_file,
    ) -> None:
        """Nothing is written before `run`; the directory may be created later."""
        name = f"{pool[:MAX_NAME_LENGTH]}-{secrets.token_hex(4)}{PROBLEMS_SUFFIX}"
        self.path: Final = directory / name
        self._problems = problems
        self._pool = pool
        self._replace = replace
        self._has_complained = False
        TASK_FAILURES.labels(TASK)

    async def run(self) -> NoReturn:
        """Write the file at each change until cancelled, and remove it then."""
        try:
            while True:
                self._problems.changed.clear()
                self.write()
                await self._pause()
        finally:
            self._put(None)

    def write(self) -> None:
        """Write the file, touch one that is up to date, or remove it where there is no problem."""
        problem = self._problems.summary()
        if problem == NO_PROBLEM:
            self._put(None)
            return
        found = PluginProblem(
            version="v1",
            pool=self._pool,
            reason=problem.reason.value,
            text=truncate(problem.text, MAX_MESSAGE_LENGTH),
        )
        self._put(msgspec.json.encode(found))

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WRITE_EVERY_S):
                await self._problems.changed.wait()
                await asyncio.sleep(GATHER_S)

    def _put(self, content: bytes | None) -> None:
        try:
            if content is None:
                remove_file(self.path)
            elif not self._replace(self.path, content):
                os.utime(self.path)
        except OSError as error:
            TASK_FAILURES.labels(TASK).inc()
            if not self._has_complained:
                _log.warning(
                    "problems not written", path=str(self.path), error=error.strerror or str(error)
                )
            self._has_complained = True
        else:
            self._has_complained = False
