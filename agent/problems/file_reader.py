"""Reader of the problems of the pools' plugins, which become problems of the agent.

The plugins may write the directory and have no rights beyond that; the agent has all rights. So the content is
not trusted: links are not followed, only plain files are opened, only the reasons of a plugin are accepted, and
an invalid file is logged once and left alone. Unchanged files are not read again. Format:
`api.nodefiles.pluginproblems`.
"""

import asyncio
import contextlib
import itertools
import os
import re
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn, final

import msgspec
import structlog

from agent.errors import BadPoolConfigError
from agent.problems.registry import Problem
from api.nodefiles.pluginproblems import MAX_BYTES, PROBLEMS_SUFFIX, STALE_S, PluginProblem
from kube.errors import one_line
from telemetry.conditions import AgentDegraded

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agent.files import FileIdentity
    from agent.problems.registry import ProblemRegistry
    from api.clock import Clock

POLL_EVERY_S: Final = 1.0
MAX_FILES: Final = 256
"""A node has a few pools; a full directory costs the agent no more than this."""
PLUGIN_REASONS: Final = (
    AgentDegraded.KUBELET_SILENT,
    AgentDegraded.NOT_REGISTERED,
    AgentDegraded.BAD_CONFIG,
)
"""Reasons that a plugin may have, in the order of the enum: of two processes of one pool the first counts."""
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]*" + re.escape(PROBLEMS_SUFFIX))

_log = structlog.get_logger()


PoolProblem = tuple[str, Problem]
"""A pool, and the problem of its plugin."""


@final
@dataclass(frozen=True, slots=True)
class _ReadFile:
    """Content of one version of a file; None for an invalid one."""

    identity: "FileIdentity"
    problem: "PoolProblem | None"


@final
class ProblemsFileReader:
    """Keeps the registry equal to the files of the node's plugins."""

    def __init__(
        self,
        directory: "Path",
        problems: "ProblemRegistry",
        clock: "Clock",
        *,
        read: "Callable[[Path], PoolProblem] | None" = None,
    ) -> None:
        """The directory may be created later, or never."""
        self._directory = directory
        self._problems = problems
        self._clock = clock
        self._files: dict[str, _ReadFile] = {}
        # file name -> its content
        self._pools: frozenset[str] = frozenset()
        # pools with a registered problem
        self._ignored: set[str] = set()
        # file names that were logged
        self._read = read or read_problem

    async def run(self) -> NoReturn:
        """Follow the directory until cancelled."""
        while True:
            self.read()
            await asyncio.sleep(POLL_EVERY_S)

    def read(self) -> None:
        """Read the files that changed, and update the registry; raises nothing."""
        names = self._names()
        for gone in self._files.keys() - names:
            del self._files[gone]
        self._ignored &= {*names, ""}
        now_s = self._clock.utc_now().timestamp()
        for name in names:
            try:
                self._read_file(name, now_s)
            except FileNotFoundError:
                self._files.pop(name, None)
            except (OSError, BadPoolConfigError) as error:
                self._ignore(name, error)
        self._update_registry()

    def _update_registry(self) -> None:
        by_pool: dict[str, Problem] = {}
        for file in self._files.values():
            if file.problem is not None:
                pool, problem = file.problem
                by_pool[pool] = min(by_pool.get(pool, problem), problem, key=_rank)
        for pool in self._pools - by_pool.keys():
            self._problems.clear(source_of(pool))
        for pool, problem in by_pool.items():
            text = f"plugin of pool {pool}: {problem.text}"
            self._problems.set(source_of(pool), problem.reason, text)
        self._pools = frozenset(by_pool)

    def _names(self) -> set[str]:
        """Return the names of the files, without temporary ones."""
        try:
            with os.scandir(self._directory) as entries:
                names = {entry.name for entry in itertools.islice(entries, MAX_FILES)}
        except FileNotFoundError:
            # No plugin has had a problem yet.
            return set()
        except OSError as error:
            self._ignore("", error)
            return set()
        self._ignored.discard("")
        return {name for name in names if not name.startswith(".")}

    def _read_file(self, name: str, now_s: float) -> None:
        """Read a file if it changed.

        Raises:
            FileNotFoundError: it was removed meanwhile.
            OSError: it cannot be read.
            BadPoolConfigError: it is not a plugin's file.
        """
        path = self._directory / name
        status = path.lstat()
        if not _NAME.fullmatch(name) or not stat.S_ISREG(status.st_mode):
            raise BadPoolConfigError("it is not a plugin's file")
        if abs(now_s - status.st_mtime) > STALE_S:
            # Its process was killed and cannot remove it. A time in the future is that of a clock that was set
            # back; a live plugin writes its file again.
            self._files.pop(name, None)
            with contextlib.suppress(OSError):
                path.unlink()
            return
        identity = (status.st_dev, status.st_ino, status.st_ctime_ns)
        file = self._files.get(name)
        if file is None or file.identity != identity:
            # Not read again before it changes, valid or not.
            self._files[name] = _ReadFile(identity, None)
            self._files[name] = _ReadFile(identity, self._read(path))

    def _ignore(self, name: str, error: Exception) -> None:
        if name not in self._ignored:
            self._ignored.add(name)
            # As ASCII: the name is foreign text.
            path = ascii(str(self._directory / name))
            _log.warning(
                "file of a plugin's problem ignored", path=path, error=one_line(str(error))
            )


def source_of(pool: str) -> str:
    """Return the source under which the problem of a pool's plugin is registered."""
    return f"plugin {pool}"


def _rank(problem: Problem) -> tuple[int, str]:
    return (PLUGIN_REASONS.index(problem.reason), problem.text)


def read_problem(path: "Path") -> PoolProblem:
    """Return the problem in a plugin's file.

    Raises:
        OSError: the file cannot be read, or is a link.
        BadPoolConfigError: its content is invalid.
    """
    # Opens neither a link to another file nor a pipe without a writer, if one took the file's place just now.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise BadPoolConfigError("it is not a plugin's file")
        content = os.read(descriptor, MAX_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(content) > MAX_BYTES:
        raise BadPoolConfigError(f"it is larger than {MAX_BYTES} bytes")
    try:
        found = msgspec.json.decode(content, type=PluginProblem)
        reason = AgentDegraded(found.reason)
    except (ValueError, RecursionError) as error:
        raise BadPoolConfigError(f"it has no valid problem of a plugin: {error}") from error
    if reason not in PLUGIN_REASONS:
        raise BadPoolConfigError(f"{reason.value} is no reason of a plugin")
    return found.pool, Problem(reason, found.text)
