"""`kubectl gpu` in a process of its own for each call, forked from one that has its modules already.

The interpreter and the imports are nine tenths of what a verb costs, and are started once for all. Signals,
descriptors, environment and exit codes are those of a process. `python -m kubectl_gpu` itself, and what it
imports for a verb, are for the tests that start it.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from kubectl_gpu.__main__ import main
from kubectl_gpu.command_line import VERBS

ROOT = Path(__file__).resolve().parents[2]
Done = subprocess.CompletedProcess[str]


class PluginForks:
    """The process that forks; it takes one call at a time."""

    def __init__(self, requests: IO[str], answers: IO[str], directory: Path) -> None:
        self._requests = requests
        self._answers = answers
        self._output = (directory / "stdout", directory / "stderr")

    def run(self, arguments: Sequence[str], environment: Mapping[str, str]) -> Done:
        """Wait for the end of `kubectl gpu ARGUMENTS`."""
        call = {
            "arguments": arguments,
            "environment": dict(environment),
            "output": [*map(str, self._output)],
        }
        print(json.dumps(call), file=self._requests, flush=True)
        code = int(self._answers.readline())
        out, err = (path.read_text(encoding="utf-8") for path in self._output)
        return Done([*arguments], code, stdout=out, stderr=err)


@contextlib.contextmanager
def plugin_forks() -> Iterator[PluginForks]:
    with (
        TemporaryDirectory() as directory,
        subprocess.Popen(
            [sys.executable, "-m", "tests.support.plugin_forks"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        # Leaving closes both pipes, which ends the process.
        yield PluginForks(process.stdin, process.stdout, Path(directory))


def _serve() -> None:
    for verb in VERBS.values():
        verb.load()
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _become_plugin(json.loads(line))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _become_plugin(call: dict[str, Any]) -> None:
    os.environ.clear()
    os.environ.update(call["environment"])
    files = [os.devnull, *call["output"]]
    for number, path in enumerate(files):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, number)
        os.close(descriptor)
    encoding = os.environ["PYTHONIOENCODING"]
    sys.stdout = open(1, "w", encoding=encoding, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding=encoding, errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.argv = ["kubectl-gpu", *call["arguments"]]
    code: object = 1
    try:
        main()
    except SystemExit as end:
        code = end.code
    except BaseException:  # noqa: BLE001  # as the interpreter does with what nobody caught
        sys.excepthook(*sys.exc_info())
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    _serve()
