"""Random days of demand on the double of Karpenter, in virtual time and so in a process of its own.

    python -m tests.bench.demand_process SEED [SEED ...]

Prints the figures of each day as a line of JSON.
"""

import argparse
import asyncio
import dataclasses
import functools
import json
import logging
import sys
import tempfile
from pathlib import Path

import looptime
import structlog

from tests.support.scaling_days import live_days

AT_ONCE = 4
"""Days in one cluster: they share what time alone costs. More of them cost more than they share, each look of the
doubles being at all their objects."""


async def main(seeds: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for figures in await live_days(Path(folder), seeds, at_once=AT_ONCE):
            sys.stdout.write(json.dumps(dataclasses.asdict(figures)) + "\n")


if __name__ == "__main__":
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    parser = argparse.ArgumentParser()
    parser.add_argument("seeds", nargs="+", type=int)
    loops = functools.partial(looptime.new_event_loop, noop_cycles=10)
    with asyncio.Runner(loop_factory=loops) as runner:
        runner.run(main(parser.parse_args().seeds))
