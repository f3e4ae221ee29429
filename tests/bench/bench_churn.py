"""One day's churn replayed at speed through webhooks, extender and watch feed of the real server."""

import asyncio
import heapq
import statistics
import tempfile
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench import world
from tests.bench.admitting import PodKind
from tests.bench.bench_binding import caches
from tests.bench.day import Fate, jobs
from tests.bench.driven_api import DrivenApi
from tests.bench.processes import make_certificates, measured_server
from tests.bench.report import Result, at_most, checked, percentile
from tests.bench.scheduling import Way
from tests.bench.wire import connect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.day import Job
    from tests.bench.processes import MeasuredServer
    from tests.bench.sizes import Sizes
    from tests.bench.wire import Connection

LANES = 16
"""Pods on their way at a time."""
ENDED_KEPT = 300
"""Pods that have ended and are not deleted yet, as Jobs leave them."""
SAMPLES = 150
TRIES = 3
_SIZES = ((world.SLICES, 1), *((world.WHOLE, units) for units in range(1, world.DEVICES + 1)))


@dataclass
class Day:
    """What went on."""

    arrived: int = 0
    bound: int = 0
    unfit: int = 0
    live: list[tuple[float, str]] = field(default_factory=list)
    """A heap of (the arrival by which it ends, name)."""
    ended: deque[str] = field(default_factory=deque)
    memory_mib: list[float] = field(default_factory=list)
    known: list[int] = field(default_factory=list)
    """Reservations and pods that the server keeps, when its memory was measured."""


async def measure(sizes: "Sizes") -> list[Result]:
    """Replay the day, then see that nothing is left of it."""
    cluster = world.World(nodes=sizes.churn_nodes)
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        context = make_certificates(directory)
        async with DrivenApi() as api:
            caches(api, cluster)
            settings = {"leadership": {"enabled": False}}
            async with measured_server(directory, api.url, **settings) as server:
                await server.wait_ready()
                await server.wait_capacity(total=cluster.units(), used=0)
                lanes = [await connect(server.port, context) for _ in range(LANES)]
                first, started = len(server.turns), time.perf_counter()
                day = await _replay(sizes, cluster, (api, server), lanes)
                seconds = time.perf_counter() - started
                left_over = await _left_over(server)
                await server.next_turns(1)  # what is told of the last second comes after it
                turns = server.turns[first:]
                for lane in lanes:
                    lane.close()
    trace = "" if sizes.trace is None else ", from a trace"
    half = len(day.memory_mib) // 2
    second_half, known = day.memory_mib[half:], day.known[half:]
    return [
        Result(
            subject="churn",
            case=f"{day.bound:,} pods bound, {day.unfit:,} did not fit; {sizes.churn_nodes} nodes{trace}",
            samples=day.arrived,
            rate_per_s=day.arrived / seconds,
            stall_ms=percentile([one.gap_ms for one in turns], 1.0),
            stall_cpu_ms=percentile([one.cpu_ms for one in turns], 1.0),
            rss_mib=max(day.memory_mib),
            growth_mib=_growth_mib(day.memory_mib),
            left_over=left_over,
            aims=(at_most("left_over", 0),),
        ),
        Result(
            subject="churn",
            case=f"its second half, {known[0]:,} pods known at first, {known[-1]:,} at last",
            samples=day.arrived // 2,
            rss_mib=max(second_half),
            growth_mib=_growth_mib(second_half),
            aims=(at_most("growth_mib", 5),),
        ),
    ]


async def _replay(
    sizes: "Sizes",
    cluster: world.World,
    ends: "tuple[DrivenApi, MeasuredServer]",
    lanes: "list[Connection]",
) -> Day:
    api, server = ends
    kinds = {one: await PodKind.learn(lanes[0], *one) for one in _SIZES}
    by_pool: dict[str, list[str]] = {}
    for number in range(cluster.nodes):
        by_pool.setdefault(cluster.pool_of(number), []).append(world.node_name(number))
    day = Day()
    plan = jobs(sizes.churn_pods, cluster, sizes.trace)
    every = max(1, sizes.churn_pods // SAMPLES)

    async def work(way: Way, plan: "Iterator[Job]") -> None:
        for job in plan:
            day.arrived += 1
            if day.arrived % every == 0:
                day.memory_mib.append(server.rss_mib)
                day.known.append(server.turns[-1].known if server.turns else 0)
            name = f"pod-{day.arrived}"
            await _live(name, job, way, kinds[job.pool, job.units], api, day, by_pool[job.pool])

    async with asyncio.TaskGroup() as group:
        for lane in lanes:
            group.create_task(work(Way(api, lane), plan))
    day.arrived += 10**9  # everybody's time is over
    _end(api, day)
    day.arrived -= 10**9
    while day.ended:
        api.delete(day.ended.popleft())
    assert not api.owners, f"{len(api.owners)} units have an owner that is gone"
    checked("no unit is left with an owner")
    return day


async def _live(
    name: str,
    job: "Job",
    way: Way,
    kind: PodKind,
    api: DrivenApi,
    day: Day,
    nodes: list[str],
) -> None:
    """Bring one pod to its node, and end those whose time has come."""
    note = await way.mutate(kind, name)
    if job.fate is Fate.REFUSED:
        return
    await way.store(kind, name, note)
    if job.fate is Fate.DELETED:
        api.delete(name)
        return
    if not await _schedule(name, way, nodes):
        day.unfit += 1
        api.delete(name)
        return
    day.bound += 1
    heapq.heappush(day.live, (day.arrived + job.lives, name))
    _end(api, day)


async def _schedule(name: str, way: Way, nodes: list[str]) -> bool:
    """Bind the pod; try again where its units were held for another pod meanwhile."""
    for _ in range(TRIES):
        node = await way.choose(name, nodes)
        if node is None:
            return False
        if await way.bind(name, node) is not None:
            return True
    return False


def _end(api: DrivenApi, day: Day) -> None:
    while day.live and day.live[0][0] <= day.arrived:
        _, name = heapq.heappop(day.live)
        api.finish(name)
        day.ended.append(name)
    while len(day.ended) > ENDED_KEPT:
        api.delete(day.ended.popleft())


async def _left_over(server: "MeasuredServer") -> int:
    """Wait for the reservations of pods that never appeared to end; return what stays."""
    left = -1
    for _ in range(40):
        capacity = await server.capacity()
        known = server.turns[-1].known if server.turns else 0
        left = known + capacity["used"] + capacity["reserved"]
        if not left and capacity["available"] == capacity["total"]:
            return 0
        await asyncio.sleep(0.5)
    return left


def _growth_mib(samples: list[float]) -> float:
    few = max(1, len(samples) // 10)
    return statistics.median(samples[-few:]) - statistics.median(samples[:few])
