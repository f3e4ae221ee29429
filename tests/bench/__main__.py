"""`PYTHONPATH=packaging python -m tests.bench [--quick] [--trace FOLDER] [SUBJECT ...]`."""

import argparse
import dataclasses
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from tests.bench import (
    bench_admission,
    bench_agent,
    bench_binding,
    bench_console,
    bench_extender,
    bench_placement,
    bench_stall,
    bench_startup,
    page,
    report,
)
from tests.bench.sizes import FULL, QUICK

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.bench.report import Result
    from tests.bench.sizes import Sizes

SUBJECTS: "dict[str, Callable[[Sizes], Awaitable[list[Result]]]]" = {
    "extender": bench_extender.measure,
    "admission": bench_admission.measure,
    "binding": bench_binding.measure,
    "startup": bench_startup.measure,
    "stall": bench_stall.measure,
    "placement": bench_placement.measure,
    "agent": bench_agent.measure,
    "console": bench_console.measure,
}


def main(arguments: list[str]) -> int:
    """Measure; a wrong answer of what is measured ends this with its assertion."""
    options = _parse(arguments)
    sizes = dataclasses.replace(QUICK if options.quick else FULL, trace=options.trace)
    for name in options.subjects or SUBJECTS:
        say(f"measuring {name} …")
        started = time.perf_counter()
        results = uvloop.run(measure(name, sizes))
        for result in results:
            say(f"  {result.case}: {_text(result)}")
        say(f"  ({time.perf_counter() - started:.0f} s)")
        if not options.quick:
            report.write(name, results)
    if not options.quick:
        page.write()
        say(f"written: {report.RESULTS.relative_to(report.ROOT)}, docs/performance.md")
    return 0


async def measure(name: str, sizes: "Sizes") -> "list[Result]":
    """Measure one subject."""
    return await SUBJECTS[name](sizes)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help=", ".join(SUBJECTS))
    parser.add_argument("--quick", action="store_true", help="a smoke test: small, nothing written")
    parser.add_argument(
        "--trace",
        type=Path,
        metavar="FOLDER",
        help="placement: the folder of the trace openb, its nodes and all lists of pods",
    )
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.subjects) - SUBJECTS.keys())
    if unknown:
        parser.error(f"no such subject: {', '.join(unknown)}; there are {', '.join(SUBJECTS)}")
    return options


def _text(result: "Result") -> str:
    outcome = page.outcome_of(result)
    text = page.figures_text(result)
    return f"{text}  [{page.aim_text(result)}: {outcome}]" if outcome else text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
