"""Placement: the choice of devices on a node, and strategies on the openb trace.

Correct: the published allocation of each deterministic policy is met in every seed to the last digit (the table is in
hkust-adsl/kubernetes-scheduler-simulator, experiments/analysis/expected_results), that of Random on average.

The trace is read from a folder: `--trace`, else $OPENB_TRACE. Every `openb_pod_list_*.csv` in it is replayed; without
the folder there is a message, and workloads made up by seed.
"""

import os
import random
import re
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pool.placement.simulation import openb
from tests.bench.bench_placement_sets import measure_sets
from tests.bench.placement.derived_workloads import DERIVED, derive
from tests.bench.placement.ranked_nodes import simulate
from tests.bench.placement.strategies import STRATEGIES
from tests.bench.placement.trace_experiment import TraceNode, experiment, read_nodes
from tests.bench.report import Result, at_least, at_most, checked

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pool.placement.simulation.results import Result as Outcome
    from tests.bench.sizes import Sizes

DEMAND: Final = 1.3
SEEDS: Final = tuple(range(42, 52))
FRESH_SEEDS: Final = (501, 502)
"""Of derived workloads, which no strategy was tuned on."""
NODES: Final = "openb_node_list_gpu_node.csv"
DEFAULT: Final = "default"
SIZES: Final = ("cpu only", "share", "1", "2", "4", "8")
PUBLISHED: Final = {
    "FGD": (95.29, 95.32, 95.44, 95.48, 95.49, 95.27, 95.37, 95.47, 95.35, 95.43),
    "BestFit": (93.13, 93.25, 93.09, 93.14, 93.19, 93.04, 92.95, 93.21, 92.87, 92.89),
    "GpuPacking": (91.57, 92.06, 92.10, 92.79, 91.30, 91.29, 92.78, 92.06, 91.69, 92.38),
    "GpuClustering": (91.53, 91.97, 91.88, 92.96, 90.81, 91.42, 92.60, 92.34, 91.56, 91.71),
    "DotProd": (90.54, 90.84, 91.03, 90.89, 90.74, 90.75, 91.28, 90.93, 90.76, 90.73),
}
"""Allocation at 130 % of demand by seed, 42 to 51."""
PUBLISHED_RANDOM: Final = (87.47, 0.8)
"""Mean of ten seeds, and how far another mean may be: two and a half times the standard deviation of one seed."""
OURS: Final = "LeastFragmentation"


@dataclass(frozen=True, slots=True)
class Replay:
    """One workload placed by one strategy."""

    folder: str
    """Empty: nodes and pods are made up."""
    workload: str
    """A variant in the folder, or "derived NAME"."""
    strategy: str
    seed: int


@dataclass(frozen=True, slots=True)
class Replayed:
    """What it found."""

    replay: Replay
    allocation_pct: float
    first_refusal_pct: float
    asked: dict[str, int]
    refused: dict[str, int]
    pods: int
    cpu_s: float
    rss_mib: float


async def measure(sizes: "Sizes") -> list[Result]:
    """Measure the choice of devices, then strategies on the trace and on what is derived from it."""
    results = measure_sets(sizes.placement_questions)
    folder = folder_of(sizes)
    if folder is None:
        seeds: Sequence[int] = SEEDS[: sizes.placement_seeds]
        say("no trace (--trace FOLDER with openb_*.csv): strategies are shown on a made-up one")
        found = replay_all(
            [Replay("", DEFAULT, name, seed) for name in STRATEGIES for seed in seeds]
        )
        return results + [_result(found, name, DEFAULT, None) for name in STRATEGIES]
    return results + _published(folder, sizes) + _variants(folder, sizes)


def folder_of(sizes: "Sizes") -> Path | None:
    """Return the folder of the trace, if there is one and it is not a smoke test."""
    if not sizes.placement_reads_trace:
        return None
    named = sizes.trace or Path(os.environ.get("OPENB_TRACE", ""))
    return named if (named / NODES).exists() else None


def say(line: str) -> None:
    sys.stdout.write(f"  {line}\n")
    sys.stdout.flush()


def replay_all(replays: "Iterable[Replay]") -> list[Replayed]:
    """Replay on all cores; a new process for each worker, so that its memory is its own."""
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as executor:
        return list(executor.map(replay_one, replays))


def _peak_mib() -> float:
    """Return the peak of this process alone: getrusage's is at least that of the process that started it."""
    (line,) = re.findall(
        r"^VmHWM:\s+([0-9]+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE
    )
    return int(line) / 1024


def replay_one(replay: Replay) -> Replayed:
    """Replay one workload; the processor time is that of placing."""
    nodes, pods = _read(replay.folder, replay.workload)
    cluster, workload = experiment(nodes, pods, inflate=DEMAND, seed=replay.seed)
    began = time.process_time()
    outcome = simulate(cluster, workload, replay.strategy, seed=replay.seed)
    cpu_s = time.process_time() - began
    return Replayed(
        replay,
        allocation_at(outcome, 130),
        100 * (outcome.first_refusal or DEMAND),
        {size: item.asked for size, item in outcome.refused.items()},
        {size: item.refused for size, item in outcome.refused.items()},
        len(workload.pods),
        cpu_s,
        _peak_mib(),
    )


def allocation_at(outcome: "Outcome", arrived_pct: int) -> float:
    """Return the published figure: the mean of the rounded allocation over the events at a rounded arrival.

    Without such events, as in a small cluster, it is the allocation at the end.
    """
    capacity, curve = outcome.capacity_milli, outcome.curve
    there = [
        round(100 * allocated / capacity, 2)
        for arrived, allocated in zip(curve.arrived_milli, curve.allocated_milli, strict=True)
        if round(100 * arrived / capacity) == arrived_pct
    ]
    return statistics.mean(there) if there else 100 * outcome.allocation


@cache
def _read(folder: str, workload: str) -> tuple[list[TraceNode], list[openb.TracePod]]:
    if not folder:
        return _made_up(random.Random(workload))
    variant, _, seed = workload.partition(" derived ")
    path = Path(folder)
    with (path / NODES).open(encoding="utf-8") as lines:
        nodes = read_nodes(lines, NODES)
    file = f"openb_pod_list_{DEFAULT if seed else variant}.csv"
    with (path / file).open(encoding="utf-8") as lines:
        pods = openb.read_pods(lines, file)
    return nodes, derive(variant, pods, int(seed)) if seed else pods


def _made_up(rng: random.Random) -> tuple[list[TraceNode], list[openb.TracePod]]:
    nodes = [TraceNode(f"node-{n:02}", 96_000, 400_000, 8, "a") for n in range(12)]
    sizes = ((0, 0), (1, 460), (1, 810), (1, 1000), (1, 1000), (8, 1000))
    pods = []
    for number in range(100):
        devices, milli = rng.choice(sizes)
        cpu = 1000 * rng.randint(1, 12)
        pod = openb.TracePod(f"pod-{number:03}", cpu, 4096, devices, milli, (), None, None)
        pods.append(pod)
    return nodes, pods


def _published(folder: Path, sizes: "Sizes") -> list[Result]:
    """Return all strategies on the default workload; the published ones are checked first."""
    seeds = SEEDS[: sizes.placement_seeds]
    found = replay_all(
        [Replay(str(folder), DEFAULT, name, seed) for name in STRATEGIES for seed in seeds]
    )
    for name, published in PUBLISHED.items():
        got = tuple(round(item.allocation_pct, 2) for item in found if item.replay.strategy == name)
        # One curve of fifty differs in the last digit: floats are added in another order.
        near = [abs(mine - theirs) < 0.015 for mine, theirs in zip(got, published, strict=False)]
        assert all(near), (name, got, published)
        assert len(near) == len(seeds)
        checked("published allocation of a policy")
    mean = statistics.mean(
        item.allocation_pct for item in found if item.replay.strategy == "Random"
    )
    assert abs(mean - PUBLISHED_RANDOM[0]) < PUBLISHED_RANDOM[1], mean
    checked("published allocation of Random")
    fgd = [item for item in found if item.replay.strategy == "FGD"]
    return [_result(found, name, DEFAULT, fgd) for name in STRATEGIES]


def _variants(folder: Path, sizes: "Sizes") -> list[Result]:
    """Return FGD and ours on the other variants in the folder, and on what is derived from the default one."""
    files = sorted(folder.glob("openb_pod_list_*.csv"))
    variants = {path.stem.removeprefix("openb_pod_list_") for path in files} - {DEFAULT}
    replays = [
        Replay(str(folder), variant, name, seed)
        for variant in sorted(variants)
        for seed in SEEDS[: sizes.placement_seeds]
        for name in ("FGD", OURS)
    ]
    replays += [
        Replay(str(folder), f"{made} derived {seed}", name, seed)
        for made in DERIVED
        for seed in FRESH_SEEDS
        for name in ("FGD", OURS)
    ]
    found = replay_all(replays)
    results = []
    for variant in dict.fromkeys(item.replay.workload.partition(" derived ")[0] for item in found):
        for is_derived in (False, True):
            mine = [
                item
                for item in found
                if item.replay.workload.partition(" derived ")[0] == variant
                and (" derived " in item.replay.workload) is is_derived
            ]
            fgd = [item for item in mine if item.replay.strategy == "FGD"]
            label = f"{variant}, derived" if is_derived else variant
            results += [_result(mine, name, label, fgd) for name in ("FGD", OURS) if mine]
    return results


def _result(
    found: "Sequence[Replayed]", name: str, workload: str, fgd: "Sequence[Replayed] | None"
) -> Result:
    mine = [item for item in found if item.replay.strategy == name]
    allocations = [item.allocation_pct for item in mine]
    allocation = statistics.mean(allocations)
    aims = [at_most("rss_mib", 200)]
    if name in ("FGD", OURS) and workload == DEFAULT:
        aims.append(at_most("cpu_s", 8 if name == "FGD" else 4))
        aims.append(at_most("cpu_ms", 0.5))
    base = None if fgd is None else statistics.mean(item.allocation_pct for item in fgd)
    if name == OURS and fgd is not None:
        if workload == DEFAULT:
            aims.append(at_least("allocation_pct", 96.1))
            aims.append(at_least("first_refusal_pct", 94))
        aims.append(at_least("over_fgd_pct", 0))
        asked = sum(item.asked.get("8", 0) for item in fgd)
        allowed = sum(item.refused.get("8", 0) for item in fgd)
        more = 0 if workload == DEFAULT else 0.05 * asked
        aims.append(at_most("refused_8", (allowed + more) / len(fgd)))
    return Result(
        subject="placement",
        case=f"openb {workload}, {name}",
        samples=len(mine),
        allocation_pct=allocation,
        allocation_sd=statistics.pstdev(allocations),
        over_fgd_pct=None if base is None or name == "FGD" else allocation - base,
        first_refusal_pct=statistics.mean(item.first_refusal_pct for item in mine),
        refused_8=statistics.mean(item.refused.get("8", 0) for item in mine),
        refused=" · ".join(
            f"{statistics.mean(item.refused.get(size, 0) for item in mine):.0f}"
            f"/{statistics.mean(item.asked.get(size, 0) for item in mine):.0f}"
            for size in SIZES
        ),
        cpu_s=statistics.mean(item.cpu_s for item in mine),
        cpu_ms=statistics.mean(item.cpu_s / item.pods * 1e3 for item in mine),
        rss_mib=max(item.rss_mib for item in mine),
        aims=tuple(aims),
    )
