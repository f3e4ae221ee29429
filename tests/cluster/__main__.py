"""The tests on a real Kubernetes: two lanes beside each other, then what failed once more, alone.

    python -m tests.cluster              all of them
    python -m tests.cluster --stories    what each commit runs: all but those that nightly.txt names

A test that fails beside others and passes alone is flaky: the run goes on, and names it among its last lines
with what both runs of it logged. Each belongs into tests/flaky.md, with its cause. More than `MOST_FLAKY`
failures are no flakes, and nothing is run again.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cli.parent_process import end_with_parent
from tests.cluster.environment import outcomes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT: Final = Path(__file__).parents[2]
BUILD: Final = ROOT / "build"
SUITES: Final = "tests/cluster"
SECOND_LANE: Final = tuple(
    f"{SUITES}/{name}"
    for name in (
        *("chart", "console", "image", "kubectl_gpu", "node", "uninstall", "upgrades"),
        "operator_states",
    )
)
"""Suites with a control plane of their own that run beside the others, in this order; both lanes take as long."""
DURATIONS: Final = ("--durations=25", "--durations-min=5")
MOST_FLAKY: Final = 5
PASSED, FAILED = 0, 1
"""Exit statuses of pytest of a run that was complete."""


@dataclass(frozen=True)
class Lane:
    """One run of pytest, with control plane and logs of its own."""

    name: str
    arguments: tuple[str, ...]

    @property
    def outcomes(self) -> Path:
        return BUILD / f"cluster-{self.name}.jsonl"

    @property
    def output(self) -> Path:
        return BUILD / f"cluster-{self.name}.log"

    def command(self) -> list[str]:
        pytest = (sys.executable, "-m", "pytest", "--with-cluster", f"--outcomes={self.outcomes}")
        return [*pytest, *DURATIONS, *self.arguments]


def lanes_of(*, stories: bool) -> tuple[Lane, Lane]:
    selection = ("-m", "not nightly") if stories else ()
    others = tuple(f"--ignore={suite}" for suite in SECOND_LANE)
    return (
        Lane("first", (SUITES, *others, *selection)),
        Lane("second", (*SECOND_LANE, *selection)),
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("--stories", action="store_true", help="no test that nightly.txt names")
    first, second = lanes_of(stories=parser.parse_args().stories)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(FAILED))  # so that lanes end before this program
    print(f"{', '.join(SECOND_LANE)} run beside the others; their output follows at the end")
    with _started(second, current=False) as beside, _started(first, current=True) as current:
        statuses = [current.wait(), beside.wait()]
    sys.stdout.write(second.output.read_text(encoding="utf-8", errors="replace"))
    if set(statuses) - {PASSED, FAILED}:
        return max(statuses)
    failed = [*outcomes.read(first.outcomes), *outcomes.read(second.outcomes)]
    if not failed:
        return PASSED
    if len({outcome.test for outcome in failed}) > MOST_FLAKY:
        return FAILED
    return _run_again(failed)


def _run_again(failed: "Sequence[outcomes.Outcome]") -> int:
    tests = dict.fromkeys(outcome.test for outcome in failed)
    print(f"\n{len(tests)} failed and run once more, alone", flush=True)
    again = Lane("again", ("--run-again", *tests))
    with _started(again, current=True) as process:
        status = process.wait()
    if status != PASSED:
        return status
    passed = {outcome.test: outcome.last_lines for outcome in outcomes.read(again.outcomes)}
    for outcome in failed:
        print(f"flaky: {outcome.test}; enter it into tests/flaky.md with its cause")
        for line in outcome.last_lines:
            print(f"  failed: {line}")
        for line in passed.get(outcome.test, []):
            print(f"  passed: {line}")
    return PASSED


@contextlib.contextmanager
def _started(lane: Lane, *, current: bool) -> "Iterator[subprocess.Popen[bytes]]":
    """Start a lane, and end it with this program; its output goes to the terminal, or into a file."""
    lane.outcomes.parent.mkdir(exist_ok=True)
    lane.outcomes.write_bytes(b"")
    sys.stdout.flush()
    with lane.output.open("wb") as output:
        process = subprocess.Popen(
            lane.command(),
            cwd=ROOT,
            stdout=None if current else output,
            stderr=None if current else subprocess.STDOUT,
            preexec_fn=partial(end_with_parent, os.getpid()),  # noqa: PLW1509  # this program has no thread yet
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    raise SystemExit(main())
