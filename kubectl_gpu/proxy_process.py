"""The process of `kubectl proxy`, which listens on a unix socket in a directory that only this user may enter."""

import os
import select
import shutil
import signal
import subprocess
from functools import partial
from typing import TYPE_CHECKING, Final, final

from cli.parent_process import end_with_parent
from kubectl_gpu.errors import UnreadableError

if TYPE_CHECKING:
    from collections.abc import Sequence

KUBECTL: Final = "kubectl"
_START_WITHIN_S: Final = 30.0
"""kubectl may have to run a credential plugin."""
_END_WITHIN_S: Final = 5.0
_LONGEST: Final = 70
"""Bytes of the path of the socket's directory: 103 are allowed on macOS, 33 are below the directory."""


@final
class ProxyProcess:
    """One process; nothing runs before `start`."""

    def __init__(self, flags: "Sequence[str]" = ()) -> None:
        self._flags = tuple(flags)
        self._directory: str | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> str:
        """Return the path of the socket, once something listens there; later calls change nothing.

        Raises:
            UnreadableError: kubectl cannot be run, or does not listen.
        """
        if self._directory is None:
            self._directory = _private_directory()
        path = f"{self._directory}/api"
        if self._process is None:
            with open(f"{self._directory}/log", "wb") as log:  # noqa: PTH123  # pathlib takes 10 ms to import
                self._process = _started(
                    [KUBECTL, "proxy", f"--unix-socket={path}", *self._flags], log.fileno()
                )
            self._await_start()
        return path

    def fileno(self) -> int:
        """Return a descriptor that is readable for ever once the process has ended."""
        process = self._process
        if process is None or process.stdout is None:
            raise AssertionError("the proxy is watched before it is started")
        return process.stdout.fileno()

    def end(self) -> UnreadableError | None:
        """Return why it ended; None where it was interrupted, as Ctrl-C interrupts all of a terminal's programs.

        To be called when there is something to read; what it printed is of no interest.

        Raises:
            BlockingIOError: it has not ended, and printed something.
        """
        process = self._process
        if process is None or os.read(self.fileno(), 4_096):
            raise BlockingIOError
        if process.wait(_END_WITHIN_S) == -signal.SIGINT:
            return None
        return UnreadableError(f"kubectl proxy ended: {self.last_error_line() or _status(process)}")

    def last_error_line(self) -> str:
        """Return the last line that the process wrote to its error stream."""
        try:
            with open(f"{self._directory}/log", "rb") as log:  # noqa: PTH123
                lines = log.read().decode(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return lines[-1].removeprefix("error: ") if lines else ""

    def close(self) -> None:
        """End the process and remove its socket. Idempotent."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(_END_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
        directory, self._directory = self._directory, None
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)

    def _await_start(self) -> None:
        """Wait for the line that kubectl prints once it listens."""
        process = self._process
        if process is None or process.stdout is None:
            raise AssertionError("the proxy is awaited before it is started")
        ready, _, _ = select.select([process.stdout], [], [], _START_WITHIN_S)
        if not ready:
            raise UnreadableError(f"kubectl proxy does not start within {_START_WITHIN_S:g} s")
        if not process.stdout.readline():
            process.wait()
            raise UnreadableError(
                f"kubectl cannot be used: {self.last_error_line() or _status(process)}"
            )


def run_kubectl(*arguments: str) -> "subprocess.CompletedProcess[bytes]":
    """Run kubectl to its end; raises UnreadableError where it cannot be run."""
    try:
        return subprocess.run([KUBECTL, *arguments], capture_output=True, check=False)  # noqa: S603  # no shell
    except OSError as error:
        raise _not_runnable(error) from error


def _started(command: "list[str]", log: int) -> "subprocess.Popen[bytes]":
    try:
        # Unbuffered, so that nothing is read but what was asked for.
        return subprocess.Popen(  # noqa: S603  # no shell
            command,
            stdout=subprocess.PIPE,
            stderr=log,
            bufsize=0,
            preexec_fn=partial(end_with_parent, os.getpid()),  # noqa: PLW1509  # no other thread runs yet
        )
    except OSError as error:
        raise _not_runnable(error) from error


def _status(process: "subprocess.Popen[bytes]") -> str:
    return f"it ended with status {process.returncode}"


def _not_runnable(error: OSError) -> UnreadableError:
    if isinstance(error, FileNotFoundError):
        return UnreadableError(
            "kubectl is not on PATH: clusters are read with its credentials; install it, or set PATH"
        )
    return UnreadableError(f"kubectl cannot be run: {error.strerror}")


def _private_directory() -> str:
    """Return a new directory for this user alone; `tempfile` takes 15 ms to import."""
    parents = (os.environ.get("XDG_RUNTIME_DIR", ""), os.environ.get("TMPDIR", ""), "/tmp")  # noqa: S108  # 0700 below
    parent = next(item for item in parents if 0 < len(os.fsencode(item)) <= _LONGEST)
    path = f"{parent.rstrip('/')}/kubectl-gpu-{os.urandom(8).hex()}"
    try:
        os.mkdir(path, mode=0o700)  # noqa: PTH102  # it fails where the path exists
    except OSError as error:
        raise UnreadableError(
            f"no directory for the socket of kubectl proxy can be made in {parent}:"
            f" {error.strerror}; set TMPDIR"
        ) from error
    return path
