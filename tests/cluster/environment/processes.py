"""Child processes of a test run: started with a log file, watched, and certainly gone at its end.

`Run` owns everything that outlives a single call: the directory of the run (logs, kubeconfigs,
certificates), the children, and the reaper that kills them when the run itself is killed.
Every child leads a process group of its own, so Ctrl-C reaches pytest only and pytest stops the
children in order; a signal to a child reaches its descendants too.

Nothing here is tied to an event loop: a child started in one loop can be awaited in another.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TAIL_LINES = 30
_KEPT_RUNS = 10
_POLL_S = 0.05


class ProcessDiedError(AssertionError):
    """A process ended while it was needed; the message carries the end of its log."""


class NotReadyError(AssertionError):
    """A process did not become ready in time; the message carries why and the end of its log."""


class Probe(Protocol):
    async def __call__(self) -> str | None:
        """Return None when ready, else why not. Must be bounded in time."""


@final
class ChildProcess:
    """One program that can be started, paused, stopped, killed and started again.

    All its lives append to one log file.
    """

    def __init__(
        self, run: "Run", name: str, argv: "Sequence[str]", *, env: "Mapping[str, str]"
    ) -> None:
        self.name = name
        self.log_path = run.directory / f"{name}.log"
        self._run = run
        self._argv = list(argv)
        self._env = dict(env)
        self._process: subprocess.Popen[bytes] | None = None
        self._swept = True

    @property
    def running(self) -> bool:
        return self._process is not None and self._poll(self._process) is None

    @property
    def pid(self) -> int:
        if self._process is None or not self.running:
            raise ProcessDiedError(f"{self.name} is not running{self._log_report()}")
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit status of the latest life, negative for a signal; None while it runs."""
        return None if self._process is None else self._poll(self._process)

    def start(self) -> None:
        """Start the program; returns at once, ready or not."""
        if self.running:
            raise AssertionError(f"{self.name} is already running as process {self.pid}")
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self._env},
                start_new_session=True,
            )
        self._swept = False
        self._run.started(self._process.pid)

    async def wait_ready(self, probe: Probe, *, within: float) -> None:
        """Poll `probe` until it is satisfied; a process that ends meanwhile fails at once."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        while True:
            why = await probe()
            if not self.running:
                raise ProcessDiedError(
                    f"{self.name} ended with status {self.returncode} before it was ready"
                    f"{self._log_report()}"
                )
            if why is None:
                return
            if loop.time() > deadline:
                raise NotReadyError(
                    f"{self.name} was not ready within {within:g} s: {why}{self._log_report()}"
                )
            await asyncio.sleep(_POLL_S)

    async def terminate(self, *, within: float = 120) -> int:
        """Send SIGTERM and return the exit status; past `within` it is killed and that is an error."""
        process = self._require_process()
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)  # a paused process would never see it
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        while (status := self._poll(process)) is None:
            if loop.time() > deadline:
                self.kill9()
                raise AssertionError(
                    f"{self.name} did not end within {within:g} s of SIGTERM{self._log_report()}"
                )
            await asyncio.sleep(_POLL_S)
        return status

    def kill9(self) -> None:
        """Kill the whole process group; returns when the process is gone. No-op when it is not running."""
        if self._process is None:
            return
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._poll(self._process)

    def pause(self) -> None:
        """Stop the process in its tracks (SIGSTOP): its connections stay open and nothing answers."""
        self._require_process()
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._require_process()
        self._signal(signal.SIGCONT)

    def logs(self) -> str:
        """Return what all lives of the process wrote so far."""
        if not self.log_path.exists():
            return ""
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def _require_process(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise AssertionError(f"{self.name} was never started")
        return self._process

    def _signal(self, number: signal.Signals) -> None:
        # Once swept, the number of the group may be another client's.
        if not self._swept:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._require_process().pid, number)

    def _poll(self, process: subprocess.Popen[bytes]) -> int | None:
        """Return the exit status; at the end, kill the descendants that outlive the process, once."""
        status = process.poll()
        if status is not None and not self._swept:
            self._signal(signal.SIGKILL)
            self._swept = True
            self._run.ended(process.pid)
        return status

    def _log_report(self) -> str:
        tail = "\n".join(self.logs().splitlines()[-_TAIL_LINES:])
        return f"\nlog: {self.log_path}, which ends with\n{tail}"


@final
class Run:
    """The directory and the children of one test run; a context manager that leaves nothing running."""

    def __init__(self, parent: Path) -> None:
        _prune(parent)
        self.directory = parent / f"{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}"
        self.scratch = self.directory / "scratch"
        """For what nobody reads afterwards; deleted at the end."""
        self.scratch.mkdir(parents=True)
        self._children: list[ChildProcess] = []
        self._reaper = subprocess.Popen(
            [sys.executable, "-I", str(Path(__file__).with_name("reaper.py"))],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def child(
        self, name: str, argv: "Sequence[str]", *, env: "Mapping[str, str] | None" = None
    ) -> ChildProcess:
        """Return a program that is not started yet; `name` names its log and must be new."""
        if any(child.name == name for child in self._children):
            raise AssertionError(f"this run already has a process called {name}")
        child = ChildProcess(self, name, argv, env=env or {})
        self._children.append(child)
        return child

    def close(self) -> None:
        """Kill every child, the latest first, then let the reaper go. Idempotent."""
        for child in reversed(self._children):
            child.kill9()
        if self._reaper.stdin is not None and not self._reaper.stdin.closed:
            self._reaper.stdin.close()
        self._reaper.wait()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def started(self, process_group: int) -> None:
        self._send(f"+{process_group}\n")

    def ended(self, process_group: int) -> None:
        self._send(f"-{process_group}\n")

    def _send(self, line: str) -> None:
        pipe = self._reaper.stdin
        if pipe is None or pipe.closed:
            return
        pipe.write(line.encode())
        pipe.flush()


def _prune(parent: Path) -> None:
    """Delete the oldest directories of runs that are over; sorted by name is sorted by age."""
    if not parent.exists():
        return
    over = [entry for entry in sorted(parent.iterdir()) if not _is_live(entry)]
    for entry in over[: -(_KEPT_RUNS - 1)]:
        shutil.rmtree(entry, ignore_errors=True)


def _is_live(directory: Path) -> bool:
    return Path(f"/proc/{directory.name.rpartition('-')[2]}").exists()
