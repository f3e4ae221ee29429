"""Runs of a workload with several strategies, one after another, with progress; and the scenarios of a trace."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from api.kinds.gpupool import SlicePlacement
from api.text import nearest
from cli.simulation.errors import BadInputError
from cli.simulation.workload.run_report import (
    Axis,
    RunReport,
    demand_of,
    excess_notes,
    report_of,
)
from cli.simulation.workload.workload_file import read_workload
from pool.errors import InvariantViolatedError
from pool.placement.same_device import is_valid_size, nearest_sizes
from pool.placement.simulation import openb
from pool.placement.simulation.engine import run_workload
from pool.placement.simulation.model import Workload
from pool.placement.simulation.ranked_nodes import RankedNodes
from pool.placement.simulation.results import Mode
from pool.placement.simulation.strategies import STRATEGIES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from pool.placement.simulation.model import (
        Cluster,
        PoolSize,
        SimulatedPod,
        SimulatedPool,
    )
    from pool.placement.simulation.placing_cluster import PlacingCluster

    Progress = Callable[[str, int, int], None]
    """Told the strategy, how many pods have arrived, and of how many."""

TRACE_STRATEGIES: Final = ("LeastFragmentation",)
"""On nodes of a trace, where no other is named."""
_TRACE_UNIT: Final = 10
"""Milli of one unit in a cluster of the trace whose workload is not of it: 100 units a device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is simulated."""

    pods: "Sequence[SimulatedPod]"
    cluster: "Callable[[str, int], PlacingCluster]"
    """Returns the cluster at the start, for a strategy and a seed."""
    axis: Axis
    cluster_name: str
    workload_name: str
    notes: "Sequence[str]" = ()


def check_strategies(names: "Sequence[str]", known: "Collection[str]") -> None:
    """Refuse unknown strategies, with the nearest name.

    Raises:
        BadInputError: a strategy is unknown.
    """
    for name in names:
        if name in known:
            continue
        if name in STRATEGIES:
            raise BadInputError(
                f"strategy {name} is one for nodes of a trace (--nodes); pools have {', '.join(known)}"
            )
        meant = nearest(name, known)
        hint = f"did you mean {meant}?" if meant else f"there are {', '.join(known)}"
        raise BadInputError(f"no such strategy {name}; {hint}")


def trace_experiment(nodes: "Path", pods: "Path", *, inflate: float, seed: int) -> Scenario:
    """Return the published experiment with the trace's files.

    Raises:
        BadInputError: a file cannot be read; row and column are named.
    """
    try:
        cluster, workload = openb.experiment(
            openb.read_nodes(lines_of(nodes), str(nodes)),
            openb.read_pods(lines_of(pods), str(pods)),
            inflate=inflate,
            seed=seed,
        )
    except openb.TraceError as error:
        raise BadInputError(str(error)) from error
    return _on_trace(
        cluster,
        workload,
        axis=Axis.ARRIVED,
        names=(str(nodes), inflated_name(pods, inflate, seed)),
    )


def trace_history(nodes: "Path", pods: "Path") -> Scenario:
    """Return the trace with its own times.

    Raises:
        BadInputError: a file cannot be read; row and column are named.
    """
    try:
        cluster, workload = openb.history(
            openb.read_nodes(lines_of(nodes), str(nodes)),
            openb.read_pods(lines_of(pods), str(pods)),
        )
    except openb.TraceError as error:
        raise BadInputError(str(error)) from error
    return _on_trace(cluster, workload, axis=Axis.TIME, names=(str(nodes), str(pods)))


def workload_on_trace_nodes(nodes: "Path", file: "Path") -> Scenario:
    """Return a workload of ours on the trace's nodes, whose one pool has 100 units a device.

    Raises:
        BadInputError: a file cannot be read, or a pod names another pool.
    """
    try:
        read = sorted(openb.read_nodes(lines_of(nodes), str(nodes)), key=lambda node: node.name)
    except openb.TraceError as error:
        raise BadInputError(str(error)) from error
    cluster, found = openb.cluster_of(read, _TRACE_UNIT), read_workload(file)
    if any(item is not None for item in found.objects):
        raise BadInputError(
            f"{file} has Pods or pod templates, and nodes of a trace have no pools for them; give groups with pool,"
            " units, cpu and memory, or a cluster of pools"
        )
    pools = {pool.name: pool for pool in cluster.pools}
    for pod in found.pods:
        fault = _fault_of(pod, pools) if pod.pool else None
        if fault is not None:
            raise BadInputError(f"{file}: pod {pod.name} {fault}")
    return _on_trace(
        cluster, Workload(found.pods), axis=axis_of(found.pods), names=(str(nodes), str(file))
    )


def axis_of(pods: "Sequence[SimulatedPod]") -> Axis:
    """Return what the curves of a workload are drawn over."""
    in_time = any(pod.arrival_s or pod.duration_s is not None for pod in pods)
    return Axis.TIME if in_time else Axis.ARRIVED


def run(
    scenario: Scenario, strategies: "Sequence[str]", *, seed: int, progress: "Progress | None"
) -> RunReport:
    """Simulate each strategy on the same cluster and workload.

    Raises:
        BadInputError: the cluster's objects contradict each other.
    """
    try:
        return _reported(scenario, strategies, seed=seed, progress=progress)
    except InvariantViolatedError as error:
        raise BadInputError(
            f"the objects of {scenario.cluster_name} contradict each other: {error}"
        ) from error


def _reported(
    scenario: Scenario, strategies: "Sequence[str]", *, seed: int, progress: "Progress | None"
) -> RunReport:
    reports = []
    said: dict[str, list[str]] = {}
    sizes: Sequence[PoolSize] = ()
    nodes = 0
    for name in dict.fromkeys(strategies):
        cluster = scenario.cluster(name, seed)
        sizes, nodes = cluster.sizes, cluster.node_count
        result = run_workload(
            cluster,
            scenario.pods,
            seed=seed,
            mode=Mode.WAIT if scenario.axis is Axis.TIME else Mode.DROP,
            progress=None if progress is None else _named(progress, name),
        )
        reports.append(report_of(result, scenario.pods, sizes, axis=scenario.axis))
        for note in cluster.notes():
            said.setdefault(note, []).append(name)
    return RunReport(
        cluster=scenario.cluster_name,
        workload=scenario.workload_name,
        axis=scenario.axis,
        nodes=nodes,
        devices=sum(pool.devices for pool in sizes),
        pods=len(scenario.pods),
        demand=demand_of(scenario.pods, sizes),
        strategies=reports,
        notes=[
            *scenario.notes,
            *(
                note if len(names) == len(reports) else f"{', '.join(names)}: {note}"
                for note, names in said.items()
            ),
            *excess_notes(scenario.pods, sizes),
        ],
    )


def _on_trace(
    cluster: "Cluster", workload: "Workload", *, axis: Axis, names: tuple[str, str]
) -> Scenario:
    return Scenario(
        pods=workload.pods,
        cluster=lambda strategy, seed: RankedNodes(cluster, workload, strategy, seed=seed),
        axis=axis,
        cluster_name=names[0],
        workload_name=names[1],
    )


def _fault_of(pod: "SimulatedPod", pools: "Mapping[str, SimulatedPool]") -> str | None:
    """Return why no pool could ever serve the pod."""
    pool = pools.get(pod.pool)
    if pool is None:
        return unknown_pool(pod.pool, pools)
    slices = pool.units_per_device
    if pool.placement is SlicePlacement.DISTINCT_DEVICES or is_valid_size(pod.units, slices):
        return None
    nearest_ones = " or ".join(map(str, nearest_sizes(pod.units, slices)))
    return (
        f"asks pool {pod.pool} for {pod.units} units, and a container gets up to {slices} units on one"
        f" device or a multiple of it; ask for {nearest_ones}"
    )


def unknown_pool(name: str, pools: "Collection[str]") -> str:
    """Say of a pod that its pool does not exist."""
    meant = nearest(name, pools)
    hint = f"did you mean {meant}?" if meant else f"there are {', '.join(sorted(pools))}"
    return f"asks for units of pool {name}, which the cluster lacks; {hint}"


def inflated_name(pods: "Path", inflate: float, seed: int) -> str:
    return f"{pods} (inflated to {inflate:.0%}, seed {seed})"


def lines_of(file: "Path") -> list[str]:
    """Return the lines of a file.

    Raises:
        BadInputError: it cannot be read.
    """
    try:
        return file.read_text(encoding="utf-8-sig").splitlines(keepends=True)
    except OSError as error:
        raise BadInputError(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInputError(f"{file} is no text in UTF-8: byte {error.start}") from error


def _named(progress: "Progress", name: str) -> "Callable[[int, int], None]":
    return lambda arrived, total: progress(name, arrived, total)
