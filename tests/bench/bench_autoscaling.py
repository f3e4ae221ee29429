"""The planner of nodes: what one plan costs, and how many nodes random days of demand get beyond those they need.

The days are lived through by the whole server on Karpenter's double (`tests.support.scaling_days`, which says how nodes
are counted). Correct: every pod gets its units, and nothing is left of a day.
"""

import asyncio
import json
import sys
import time
from typing import TYPE_CHECKING, Final

from api.kinds.gpupool import SlicePlacement
from pool.allocation_state import AllocationState
from tests.bench.report import ROOT, Result, at_most, checked, in_ms
from tests.support.builders import a_slice_pool
from tests.support.scaling_days import DayFigures
from tests.support.scaling_plans import (
    a_shape,
    a_waiting_pod,
    add_node,
    an_index,
    planned,
    some_terms,
)

if TYPE_CHECKING:
    from autoscaling.scaling_model import ScalingTerms
    from pool.model import PodFacts
    from tests.bench.sizes import Sizes

MOST_EXCESS_PCT: Final = 2.0
MOST_PLAN_MS: Final = 300.0
_PLANS: Final = 10
_PROCESSES: Final = 2
"""That share the days."""


async def measure(sizes: "Sizes") -> list[Result]:
    """Measure all of it."""
    return [
        *(_ladder(pods, sizes.scaling_nodes) for pods in sizes.scaling_pods),
        _constrained(max(sizes.scaling_pods)),
        await _days(sizes.scaling_days),
    ]


def _ladder(pods: int, nodes: int) -> Result:
    """Plan for so many pods of eight sizes beside nodes of which every second has a unit free."""
    terms = some_terms(a_shape("eight", 8), a_shape("four", 4), max_units=None)
    state = AllocationState(an_index(terms.pool))
    for number in range(nodes):
        add_node(state, f"n{number}", devices=8, used=8 - number % 2)
    waiting = [a_waiting_pod(f"p{number:05}", units=1 + number * 7 % 8) for number in range(pods)]
    return _timed(f"{pods:,} waiting pods, {nodes:,} nodes", terms, waiting, state)


def _constrained(pods: int) -> Result:
    """Plan for pods whose slices must be on one device each."""
    pool = a_slice_pool(slices=4, slice_placement=SlicePlacement.SAME_DEVICE)
    terms = some_terms(a_shape(units_per_device=4), pool=pool)
    waiting = [
        a_waiting_pod(f"p{number:05}", units=1 + number * 7 % 4, pool="slices")
        for number in range(pods)
    ]
    case = f"{pods:,} waiting pods, slices of one device"
    return _timed(case, terms, waiting, AllocationState(an_index(pool)))


def _timed(
    case: str, terms: "ScalingTerms", waiting: "list[PodFacts]", state: AllocationState
) -> Result:
    samples: list[float] = []
    for _ in range(_PLANS):
        began = time.thread_time()
        plan = planned(terms, waiting, state.index)
        samples.append(time.thread_time() - began)
        assert len(plan.requests) <= terms.max_in_flight
    checked("plan of nodes")
    p50, p99 = in_ms(samples)
    return Result(
        subject="autoscaling",
        case=f"a plan, {case}",
        samples=len(samples),
        p50_ms=p50,
        p99_ms=p99,
        aims=(at_most("p99_ms", MOST_PLAN_MS),),
    )


async def _days(days: int) -> Result:
    """Live through random days, each of its own kind by seed."""
    async with asyncio.TaskGroup() as group:
        shares = [
            group.create_task(_lived(range(number, days, _PROCESSES)))
            for number in range(_PROCESSES)
        ]
    total = DayFigures()
    for share in shares:
        for figures in share.result():
            checked("day of demand")
            total.add(figures)
    claims = max(1, total.claims)
    return Result(
        subject="autoscaling",
        case=f"{days} random days, {total.claims:,} nodes for {total.pods:,} pods",
        excess_nodes_pct=100 * total.too_many / claims,
        unused_nodes_pct=100 * total.unused / claims,
        aims=(at_most("excess_nodes_pct", MOST_EXCESS_PCT),),
    )


async def _lived(seeds: range) -> list[DayFigures]:
    """Live through the days of these seeds in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench.demand_process", *map(str, seeds)),
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    lines, _ = await process.communicate()
    assert process.returncode == 0, "a day ended badly: see above"
    lived = [DayFigures(**json.loads(line)) for line in lines.splitlines()]
    assert len(lived) == len(seeds)
    return lived
