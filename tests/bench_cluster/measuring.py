"""Turns: one setup, one burst of pods, everything checked before a figure counts."""

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.bench.report import Result, at_least, percentile
from tests.bench_cluster import figures, load
from tests.cluster.environment import pods

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.bench_cluster.cluster import BenchCluster
    from tests.bench_cluster.setups import Running, Setup

_AIMS: Final = (at_least("ratio", 0.9), at_least("cpu_ratio", 0.9))
"""Of the echo extender's rate. Rates say nothing on a machine that other work shares; then both count."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How large a case is."""

    nodes: int
    devices: int
    """Of each node that is new at this size."""
    pods: int
    all_wait: bool = False
    """All pods wait before kube-scheduler starts, so that creating them costs it nothing: what it does
    on a machine where others do not take its processor time."""

    def __str__(self) -> str:
        how = " waiting" if self.all_wait else ""
        return f"{self.nodes:,} nodes, {self.pods:,} pods{how}"


async def measure(
    cluster: "BenchCluster",
    setups: "Sequence[Setup]",
    size: Size,
    *,
    rounds: int,
    progress: "Callable[[str], None]",
) -> dict[str, figures.Turn]:
    """Give every setup its turn in every round; return name -> the median of its turns."""
    turns: dict[str, list[figures.Turn]] = {item.name: [] for item in setups}
    for round_ in range(rounds):
        # Who comes first meets an API server that has just had a pause: let it be another each time.
        first = round_ % len(setups)
        for setup in (*setups[first:], *setups[:first]):
            turn = await _turn(cluster, setup, size, prefix=f"p{round_}")
            turns[setup.name].append(turn)
            progress(f"  {size}, round {round_ + 1}, {setup.name}: {_text(turn)}")
    return {name: figures.median_turn(taken) for name, taken in turns.items()}


def results_of(
    size: Size, turns: "dict[str, figures.Turn]", *, echo: str, idle: str
) -> list[Result]:
    """Return what the report shows of one size; ratios are to the echo extender's rate.

    `idle` is the setup that asks webhooks too: what asking them leaves is the limit of ours.
    """
    base, limit = turns[echo].rate_per_s, turns[idle].rate_per_s
    base_cpu_ms = turns[echo].all_cpu_ms
    return [
        Result(
            subject="cluster",
            case=f"{name}, {size}",
            p50_ms=turn.bound_p50_ms,
            p99_ms=turn.bound_p99_ms,
            rate_per_s=turn.rate_per_s,
            ratio=turn.rate_per_s / base,
            ratio_to_limit=turn.rate_per_s / limit,
            scheduling_ms=turn.algorithm_ms,
            scheduler_cpu_ms=turn.cpu_ms["scheduler"],
            apiserver_cpu_ms=turn.cpu_ms["apiserver"],
            cpu_ms=turn.all_cpu_ms,
            cpu_ratio=base_cpu_ms / turn.all_cpu_ms,
            writes_per_pod=turn.writes_per_pod,
            aims=_AIMS if name.startswith("ours") else (),
        )
        for name, turn in turns.items()
    ]


async def _turn(
    cluster: "BenchCluster", setup: "Setup", size: Size, *, prefix: str
) -> figures.Turn:
    async with setup.running() as running:
        mark = await cluster.plane.audit.mark()
        lot = load.Load(
            cluster.api,
            size.pods,
            prefix=prefix,
            resource=setup.resource,
            scheduler=setup.scheduler_name,
        )
        scheduler = running.scheduler
        if size.all_wait:
            await scheduler.stop()
            await lot.create()
            await load.wait_for_nominations(cluster.api)
            meter = figures.CpuMeter(_pids(cluster, running))
            burst = await lot.drain(scheduler.start)
        else:
            meter = figures.CpuMeter(_pids(cluster, running))
            burst = await lot.burst()
        meter.follow("scheduler", scheduler.process.pid)
        cpu_ms = meter.per_pod(size.pods)
        metrics = await figures.scheduler_metrics(scheduler.url)
        writes = await cluster.plane.audit.writes(mark)
        bound = await load.all_pods(cluster.api)
        assert len(bound) == size.pods, f"{len(bound)} of {size.pods} pods are there"
        missing = [pod["metadata"]["name"] for pod in bound if not pods.is_bound(pod)]
        assert not missing, f"not bound: {missing}"
        share_as_held = setup.check(bound)
        taken_over = None if running.taken_over is None else await running.taken_over()
        await load.delete_all(cluster.api)
    return figures.Turn(
        rate_per_s=size.pods / burst.seconds,
        bound_p50_ms=percentile(burst.bound_after_s, 0.5) * 1e3,
        bound_p99_ms=percentile(burst.bound_after_s, 0.99) * 1e3,
        algorithm_ms=figures.algorithm_ms(metrics, size.pods),
        attempts_per_pod=figures.attempts_per_pod(metrics, size.pods),
        points_ms=figures.points_ms(metrics, size.pods),
        cpu_ms=cpu_ms,
        writes=figures.writes_per_pod(writes, size.pods),
        share_as_held=share_as_held,
        share_taken_over=None if taken_over is None else taken_over / size.pods,
    )


def _pids(cluster: "BenchCluster", running: "Running") -> dict[str, int]:
    """Return the processes that run; kube-scheduler may be about to start."""
    pids = {
        "apiserver": cluster.plane.apiserver.pid,
        "etcd": cluster.plane.etcd.pid,
        "load": os.getpid(),
    }
    if running.scheduler.process.running:
        pids["scheduler"] = running.scheduler.process.pid
    return pids if running.extender is None else {**pids, "extender": running.extender.pid}


def _text(turn: figures.Turn) -> str:
    spent = ", ".join(f"{name} {value:.1f}" for name, value in sorted(turn.cpu_ms.items()))
    writes = ", ".join(f"{kind} {times:.2f}" for kind, times in turn.writes.items())
    held = "" if turn.share_as_held is None else f", {turn.share_as_held:.0%} where held"
    if turn.share_taken_over is not None:
        held += f", {turn.share_taken_over:.1%} taken over before they were seen"
    return (
        f"{turn.rate_per_s:.0f} pods/s, scheduling {turn.algorithm_ms:.2f} ms, "
        f"{turn.attempts_per_pod:.2f} attempts, CPU ms ({spent}), writes ({writes}){held}"
    )
