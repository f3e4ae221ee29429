"""Runs of a workload: which cluster, which workload, which strategies; one after another, with progress."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from api.kinds.gpupool import SlicePlacement
from api.text import nearest
from cli.simulation.errors import BadInputError
from cli.simulation.run_report import Axis, RunReport, demand_of, excess_notes, report_of
from cli.simulation.workload_file import read_workload
from pool.placement.same_device import is_valid_size, nearest_sizes
from pool.placement.simulation import openb
from pool.placement.simulation.ranked_nodes import simulate
from pool.placement.simulation.results import Mode
from pool.placement.simulation.strategies import STRATEGIES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pool.placement.simulation.model import Cluster, SimulatedPod, SimulatedPool, Workload

    Progress = Callable[[str, int, int], None]
    """Told the strategy, how many pods have arrived, and of how many."""

DEFAULT_STRATEGIES: Final = ("LeastFragmentation",)
_TRACE_UNIT: Final = 10
"""Milli of one unit in a cluster of the trace whose workload is not of it: 100 units a device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is simulated."""

    cluster: "Cluster"
    workload: "Workload"
    axis: Axis
    cluster_name: str
    workload_name: str
    notes: "Sequence[str]" = ()


def check_strategies(names: "Sequence[str]") -> None:
    """Refuse unknown strategies, with the nearest name.

    Raises:
        BadInputError: a strategy is unknown.
    """
    for name in names:
        if name not in STRATEGIES:
            meant = nearest(name, STRATEGIES)
            hint = f"did you mean {meant}?" if meant else f"there are {', '.join(STRATEGIES)}"
            raise BadInputError(f"no such strategy {name}; {hint}")


def trace_experiment(nodes: "Path", pods: "Path", *, inflate: float, seed: int) -> Scenario:
    """Return the published experiment with the trace's files.

    Raises:
        BadInputError: a file cannot be read; row and column are named.
    """
    try:
        cluster, workload = openb.experiment(
            openb.read_nodes(_lines(nodes), str(nodes)),
            openb.read_pods(_lines(pods), str(pods)),
            inflate=inflate,
            seed=seed,
        )
    except openb.TraceError as error:
        raise BadInputError(str(error)) from error
    return Scenario(
        cluster=cluster,
        workload=workload,
        axis=Axis.ARRIVED,
        cluster_name=str(nodes),
        workload_name=f"{pods} (inflated to {inflate:.0%}, seed {seed})",
    )


def trace_history(nodes: "Path", pods: "Path") -> Scenario:
    """Return the trace with its own times.

    Raises:
        BadInputError: a file cannot be read; row and column are named.
    """
    try:
        cluster, workload = openb.history(
            openb.read_nodes(_lines(nodes), str(nodes)), openb.read_pods(_lines(pods), str(pods))
        )
    except openb.TraceError as error:
        raise BadInputError(str(error)) from error
    return Scenario(
        cluster=cluster,
        workload=workload,
        axis=Axis.TIME,
        cluster_name=str(nodes),
        workload_name=str(pods),
    )


def workload_on_trace_nodes(nodes: "Path", file: "Path") -> Scenario:
    """Return a workload of ours on the trace's nodes, whose one pool has 100 units a device.

    Raises:
        BadInputError: a file cannot be read, or a pod names another pool.
    """
    try:
        read = sorted(openb.read_nodes(_lines(nodes), str(nodes)), key=lambda node: node.name)
    except openb.TraceError as error:
        raise BadInputError(str(error)) from error
    return workload_on(openb.cluster_of(read, _TRACE_UNIT), file, name=str(nodes))


def workload_on(
    cluster: "Cluster", file: "Path", *, name: str, notes: "Sequence[str]" = ()
) -> Scenario:
    """Return a workload of ours on a cluster.

    Raises:
        BadInputError: the file cannot be read, or names a pool that the cluster lacks.
    """
    workload = read_workload(file)
    pools = {pool.name: pool for pool in cluster.pools}
    for pod in workload.pods:
        fault = _fault_of(pod, pools) if pod.pool else None
        if fault is not None:
            raise BadInputError(f"{file}: pod {pod.name} {fault}")
    in_time = any(pod.arrival_s or pod.duration_s is not None for pod in workload.pods)
    return Scenario(
        cluster=cluster,
        workload=workload,
        axis=Axis.TIME if in_time else Axis.ARRIVED,
        cluster_name=name,
        workload_name=str(file),
        notes=notes,
    )


def run(
    scenario: Scenario, strategies: "Sequence[str]", *, seed: int, progress: "Progress | None"
) -> RunReport:
    """Simulate each strategy on the same cluster and workload."""
    cluster, workload = scenario.cluster, scenario.workload
    reports = []
    for name in dict.fromkeys(strategies):
        result = simulate(
            cluster,
            workload,
            name,
            seed=seed,
            mode=Mode.WAIT if scenario.axis is Axis.TIME else Mode.DROP,
            progress=None if progress is None else _named(progress, name),
        )
        reports.append(report_of(result, cluster, workload, axis=scenario.axis))
    return RunReport(
        cluster=scenario.cluster_name,
        workload=scenario.workload_name,
        axis=scenario.axis,
        nodes=len(cluster.nodes),
        devices=sum(len(node.devices) for node in cluster.nodes),
        pods=len(workload.pods),
        demand=demand_of(cluster, workload.pods),
        strategies=reports,
        notes=[*scenario.notes, *excess_notes(cluster, workload)],
    )


def _fault_of(pod: "SimulatedPod", pools: "Mapping[str, SimulatedPool]") -> str | None:
    """Return why no pool could ever serve the pod."""
    pool = pools.get(pod.pool)
    if pool is None:
        meant = nearest(pod.pool, pools)
        hint = f"did you mean {meant}?" if meant else f"there are {', '.join(pools)}"
        return f"asks for units of pool {pod.pool}, which the cluster lacks; {hint}"
    slices = pool.units_per_device
    if pool.placement is SlicePlacement.DISTINCT_DEVICES or is_valid_size(pod.units, slices):
        return None
    nearest_ones = " or ".join(map(str, nearest_sizes(pod.units, slices)))
    return (
        f"asks pool {pod.pool} for {pod.units} units, and a container gets up to {slices} units on one"
        f" device or a multiple of it; ask for {nearest_ones}"
    )


def _named(progress: "Progress", name: str) -> "Callable[[int, int], None]":
    return lambda arrived, total: progress(name, arrived, total)


def _lines(file: "Path") -> list[str]:
    try:
        return file.read_text(encoding="utf-8-sig").splitlines(keepends=True)
    except OSError as error:
        raise BadInputError(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInputError(f"{file} is no text in UTF-8: byte {error.start}") from error
