"""The problems of the pools' plugins, which the agent takes for its own (`api.nodefiles.pluginproblems`).

The plugins may write the directory and have no rights beside; the agent has all. So what lies there is not
believed: links are not followed, what is no plain file is not opened, only the reasons of a plugin count, and
what makes no sense is logged once and left alone. A look at a directory where nothing changed reads no file.
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
    from pathlib import Path

    from agent.files import FileIdentity
    from agent.problems.registry import ProblemRegistry
    from api.clock import Clock

LOOK_EVERY_S: Final = 1.0
MAX_FILES: Final = 256
"""A node has a few pools; whoever fills the directory costs the agent no more than this."""
PLUGIN_REASONS: Final = (
    AgentDegraded.KUBELET_SILENT,
    AgentDegraded.NOT_REGISTERED,
    AgentDegraded.BAD_CONFIG,
)
"""What a plugin can find, in the order of the enum: of two processes of one pool the first counts."""
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]*" + re.escape(PROBLEMS_SUFFIX))

_log = structlog.get_logger()


@final
@dataclass(frozen=True, slots=True)
class _Seen:
    """What one version of a file said; None where it makes no sense."""

    identity: "FileIdentity"
    said: "tuple[str, Problem] | None"


@final
class ProblemsFileReader:
    """Keeps the agent's problems equal to what the plugins of the node tell."""

    def __init__(self, directory: "Path", problems: "ProblemRegistry", clock: "Clock") -> None:
        """Take the directory; it may come later, or never."""
        self._directory = directory
        self._problems = problems
        self._clock = clock
        self._seen: dict[str, _Seen] = {}
        # name of a file -> what it said
        self._told: frozenset[str] = frozenset()
        # pools
        self._ignored: set[str] = set()
        # names that were logged

    async def run(self) -> NoReturn:
        """Follow the directory until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_EVERY_S)

    def look(self) -> None:
        """Read what changed, and tell it; raises nothing."""
        names = self._names()
        for gone in self._seen.keys() - names:
            del self._seen[gone]
        self._ignored &= {*names, ""}
        now_s = self._clock.utc_now().timestamp()
        for name in names:
            try:
                self._look_at(name, now_s)
            except FileNotFoundError:
                self._seen.pop(name, None)
            except (OSError, BadPoolConfigError) as error:
                self._ignore(name, error)
        self._tell()

    def _tell(self) -> None:
        by_pool: dict[str, Problem] = {}
        for seen in self._seen.values():
            if seen.said is not None:
                pool, problem = seen.said
                by_pool[pool] = min(by_pool.get(pool, problem), problem, key=_rank)
        for pool in self._told - by_pool.keys():
            self._problems.clear(source_of(pool))
        for pool, problem in by_pool.items():
            text = f"plugin of pool {pool}: {problem.text}"
            self._problems.set(source_of(pool), problem.reason, text)
        self._told = frozenset(by_pool)

    def _names(self) -> set[str]:
        """Return the files that are not somebody's unfinished ones."""
        try:
            with os.scandir(self._directory) as entries:
                names = {entry.name for entry in itertools.islice(entries, MAX_FILES)}
        except FileNotFoundError:
            # No plugin had anything to tell yet.
            return set()
        except OSError as error:
            self._ignore("", error)
            return set()
        self._ignored.discard("")
        return {name for name in names if not name.startswith(".")}

    def _look_at(self, name: str, now_s: float) -> None:
        """Read a file if it is another.

        Raises:
            FileNotFoundError: it went away meanwhile.
            OSError: it cannot be looked at or read.
            BadConfig: it is none of a plugin.
        """
        path = self._directory / name
        status = path.lstat()
        if not _NAME.fullmatch(name) or not stat.S_ISREG(status.st_mode):
            raise BadPoolConfigError("it is no file of a plugin")
        if abs(now_s - status.st_mtime) > STALE_S:
            # Of a process that was killed: nobody else takes it away. A time to come is of a clock that was
            # set back; a plugin that is still there writes its file again.
            self._seen.pop(name, None)
            with contextlib.suppress(OSError):
                path.unlink()
            return
        identity = (status.st_dev, status.st_ino, status.st_ctime_ns)
        seen = self._seen.get(name)
        if seen is None or seen.identity != identity:
            # Not read again before it changes, whatever is wrong with it.
            self._seen[name] = _Seen(identity, None)
            self._seen[name] = _Seen(identity, _read(path))

    def _ignore(self, name: str, error: Exception) -> None:
        if name not in self._ignored:
            self._ignored.add(name)
            # As ASCII: somebody else chose the name.
            path = ascii(str(self._directory / name))
            _log.warning("not taken for a plugin's problem", path=path, error=one_line(str(error)))


def source_of(pool: str) -> str:
    """Return under which name the problem of a pool's plugin is noted."""
    return f"plugin {pool}"


def _rank(problem: Problem) -> tuple[int, str]:
    return (PLUGIN_REASONS.index(problem.reason), problem.text)


def _read(path: "Path") -> tuple[str, Problem]:
    """Return whose problem it is, and which.

    Raises:
        OSError: the file cannot be read, or is a link.
        BadConfig: it makes no sense.
    """
    # Neither a link to another file nor a pipe without a writer, whatever took the file's place just now.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise BadPoolConfigError("it is no file of a plugin")
        content = os.read(descriptor, MAX_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(content) > MAX_BYTES:
        raise BadPoolConfigError(f"it is larger than {MAX_BYTES} bytes")
    try:
        found = msgspec.json.decode(content, type=PluginProblem)
        reason = AgentDegraded(found.reason)
    except (ValueError, RecursionError) as error:
        raise BadPoolConfigError(f"it is no problem of a plugin: {error}") from error
    if reason not in PLUGIN_REASONS:
        raise BadPoolConfigError(f"{reason.value} is no problem of a plugin")
    return found.pool, Problem(reason, found.text)
