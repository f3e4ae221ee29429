"""The run's side of `forkserver`: servers to start, pause, end and kill."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.cluster.environment import processes

_SCRIPT: Final = Path(__file__).with_name("forkserver.py")
_POLL_S: Final = 0.05


@final
class ForkServer:
    """One process that forks; the reaper of the run knows it and all its children."""

    def __init__(self, run: "processes.Run") -> None:
        self.run = run
        self._process = subprocess.Popen(
            [sys.executable, str(_SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        run.started(self._process.pid)

    def ask(self, request: "Mapping[str, Any]") -> Any:
        """Ask and return the answer; takes as long as a fork."""
        process = self._process
        if process.stdin is None or process.stdout is None:
            raise AssertionError("the fork server has no pipes")
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise AssertionError(f"the fork server ended with status {process.wait()}")
        return json.loads(line)

    def close(self) -> None:
        """End it; its children are killed before by their parents."""
        with self._process as process:
            process.kill()
        self.run.ended(self._process.pid)


@final
class ForkedServer:
    """One server that can be started again and again; all its lives append to one log."""

    def __init__(
        self, forks: ForkServer, log: Path, arguments: "Sequence[str]", env: "Mapping[str, str]"
    ) -> None:
        self.log_path = log
        self._forks = forks
        self._arguments = list(arguments)
        self._env = dict(env)
        self._pid: int | None = None
        self._was_asked_to_end = False
        self.crashes: list[int] = []
        """Exit statuses of lives that ended as nobody asked: neither by SIGKILL nor well."""

    @property
    def running(self) -> bool:
        return self._pid is not None and self._poll() is None

    def start(self) -> None:
        """Start it; returns at once, ready or not."""
        if self.running:
            raise AssertionError(f"the server of {self.log_path} is running")
        self._was_asked_to_end = False
        request = {"start": self._arguments, "log": str(self.log_path), "env": self._env}
        self._pid = self._forks.ask(request)
        self._forks.run.started(self._required_pid())

    def kill9(self) -> None:
        """Kill it; returns when it is gone. No-op when it is not running."""
        while self.running:
            self._signal(signal.SIGKILL)

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    async def terminate(self, *, within: float) -> None:
        """Ask it to end, and return when it has; past `within` that is a failure."""
        self._was_asked_to_end = True
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)  # a paused process would never see it
        deadline = asyncio.get_running_loop().time() + within
        pid = self._pid
        while self._pid == pid and self.running:
            if asyncio.get_running_loop().time() > deadline:
                raise AssertionError(f"did not end within {within:g} s of SIGTERM: {self.log_path}")
            await asyncio.sleep(_POLL_S)

    def _poll(self) -> int | None:
        """Return the exit status of this life, once; None while it runs."""
        pid = self._required_pid()
        status: int | None = self._forks.ask({"poll": pid})
        if status is not None:
            self._forks.run.ended(pid)
            self._pid = None
            if status not in {0, -signal.SIGKILL} and not self._ended_by_sigterm(status):
                self.crashes.append(status)
        return status

    def _ended_by_sigterm(self, status: int) -> bool:
        """Say whether it was told to end in its first or last moments, when it listens to no signal."""
        return status == -signal.SIGTERM and self._was_asked_to_end

    def _signal(self, number: signal.Signals) -> None:
        if self._pid is not None:
            # The child may not have made its group yet, which is the first thing it does.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, number)

    def _required_pid(self) -> int:
        if self._pid is None:
            raise AssertionError(f"the server of {self.log_path} was never started")
        return self._pid
