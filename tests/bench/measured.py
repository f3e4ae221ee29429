"""The real server with one more task, which tells how long it had to wait for its turns.

    python -m tests.bench.measured --settings FILE

Prints a line of JSON a second: see `tests.bench.processes.Turns`.
"""

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import uvloop

from server import main as wiring
from server.process import ControlPlane
from server.settings import load_settings
from telemetry.logs import configure_logs

TURN_S = 0.001
_planes: list[ControlPlane] = []


def build(*arguments: Any, **options: Any) -> ControlPlane:
    """Build the process's parts as ever, and remember them."""
    _planes.append(ControlPlane(*arguments, **options))
    return _planes[-1]


async def print_turns() -> None:
    """Ask for a turn every millisecond; tell the longest waits of each second."""
    until, gap_s, cpu_s = time.perf_counter() + 1, 0.0, 0.0
    came, spent = time.perf_counter(), time.thread_time()
    while True:
        await asyncio.sleep(TURN_S)
        now, used = time.perf_counter(), time.thread_time()
        gap_s, cpu_s = max(gap_s, now - came), max(cpu_s, used - spent)
        if now >= until:
            recorded = sum(
                len(plane.allocation_state.ledger)
                + len(list(plane.allocation_state.reader.pods.all()))
                for plane in _planes
            )
            reported = {"gap_ms": gap_s * 1e3, "cpu_ms": cpu_s * 1e3, "recorded": recorded}
            sys.stdout.write(json.dumps(reported) + "\n")
            sys.stdout.flush()
            until, gap_s, cpu_s = now + 1, 0.0, 0.0
            now, used = time.perf_counter(), time.thread_time()
        came, spent = now, used


async def main(settings_file: Path) -> None:
    settings = load_settings([], settings_file)
    logs = configure_logs(settings.log_level)
    async with asyncio.TaskGroup() as group:
        turns = group.create_task(print_turns())
        await wiring.serve(settings, logs)
        turns.cancel()


if __name__ == "__main__":
    wiring.ControlPlane = build  # type: ignore[attr-defined,assignment]  # to look into the allocation state
    parser = argparse.ArgumentParser()
    parser.add_argument("--settings", type=Path, required=True)
    uvloop.run(main(parser.parse_args().settings))
