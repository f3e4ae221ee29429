"""How long the event loop is away while watch events pour in, and while everything is listed again."""

import asyncio
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.processes import api_server, make_certificates, measured_server
from tests.bench.report import Result, at_most, checked
from tests.bench.world import DEVICES, World

if TYPE_CHECKING:
    from tests.bench.processes import MeasuredServer, Turns
    from tests.bench.sizes import Sizes

EVENTS = "gpu_informer_events_total{"
RELISTS = "gpu_informer_relists_total{"
KINDS = ("pools", "devices", "nodes", "namespaces", "pods")
TURNS_A_SECOND = 1_000
PATIENCE_S = 60.0
PAUSE_S = 3.0
"""The start is another subject: its lists, and every device read once."""


async def measure(sizes: "Sizes") -> list[Result]:
    """Measure first the events alone, then with the lists taken again."""
    size = sizes.stall_cluster
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        make_certificates(directory)
        with api_server(size) as api:
            async with measured_server(directory, api.url) as server:
                await server.wait_ready()
                await server.wait_capacity(total=World(nodes=size.nodes).units(), used=size.pods)
                await asyncio.sleep(PAUSE_S if sizes.stall_s > PAUSE_S else 0)
                idle = await server.next_turns(_whole(sizes.stall_s / 3))
                api.change(sizes.events_per_s)
                await server.next_turns(1)
                before, started = await _sum(server, EVENTS), time.perf_counter()
                steady = await server.next_turns(_whole(sizes.stall_s))
                pace = (await _sum(server, EVENTS) - before) / (time.perf_counter() - started)
                assert pace > sizes.events_per_s / 2, f"only {pace:,.0f} events a second were seen"
                checked("events")
                api.expire_watches()
                listing = await _while_listing(server)
                memory = server.rss_mib
    cluster = f"{size.nodes:,} nodes, {size.nodes * DEVICES:,} devices, {size.pods:,} pods"
    return [
        _result(f"no events, {cluster}", idle),
        _result(f"{pace:,.0f} events a second, {cluster}", steady, is_aimed=True),
        _result(
            "the same, and all watches gone: everything is listed again",
            listing,
            memory,
            is_aimed=True,
        ),
    ]


async def _while_listing(server: "MeasuredServer") -> "list[Turns]":
    """Return the turns until every kind was listed again, and a second more."""
    start, deadline = len(server.turns), time.perf_counter() + PATIENCE_S
    while await _sum(server, RELISTS) < len(KINDS):
        assert time.perf_counter() < deadline, "not everything was listed again"
        await server.next_turns(1)
    await server.next_turns(1)
    return server.turns[start:]


def _whole(seconds: float) -> int:
    return max(1, round(seconds))


async def _sum(server: "MeasuredServer", prefix: str) -> float:
    series = await server.metrics()
    return sum(value for name, value in series.items() if name.startswith(prefix))


def _result(
    case: str, turns: "list[Turns]", memory: float | None = None, *, is_aimed: bool = False
) -> Result:
    return Result(
        subject="stall",
        case=case,
        samples=len(turns) * TURNS_A_SECOND,
        stall_ms=max(turn.gap_ms for turn in turns),
        stall_cpu_ms=max(turn.cpu_ms for turn in turns),
        rss_mib=memory,
        aims=(at_most("stall_ms", 20),) if is_aimed else (),
    )
