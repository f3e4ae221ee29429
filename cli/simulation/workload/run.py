"""Runs of a workload with several strategies, one after another, with progress."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from api.text import nearest
from cli.simulation.errors import BadInputError
from cli.simulation.workload import run_report
from pool.errors import InvariantViolatedError
from pool.placement.simulation.engine import run_workload
from pool.placement.simulation.results import Mode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from pool.placement.simulation import model
    from pool.placement.simulation.placing_cluster import PlacingCluster

    Progress = Callable[[str, int, int], None]
    """Called with the strategy, how many pods have arrived, and of how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is simulated."""

    pods: "Sequence[model.SimulatedPod]"
    cluster: "Callable[[str, int], PlacingCluster]"
    """Returns the cluster at the start, for a strategy and a seed."""
    axis: run_report.Axis
    cluster_name: str
    workload_name: str
    notes: "Sequence[str]" = ()


def check_strategies(names: "Sequence[str]", strategies: "Collection[str]") -> None:
    """Refuse unknown strategies, with the nearest name.

    Raises:
        BadInputError: a strategy is unknown.
    """
    for name in names:
        if name in strategies:
            continue
        meant = nearest(name, strategies)
        hint = f"did you mean {meant}?" if meant else f"there are {', '.join(strategies)}"
        raise BadInputError(f"no such strategy {name}; {hint}")


def axis_of(pods: "Sequence[model.SimulatedPod]") -> run_report.Axis:
    """Return what the curves of a workload are drawn over."""
    in_time = any(pod.arrival_s or pod.duration_s is not None for pod in pods)
    return run_report.Axis.TIME if in_time else run_report.Axis.ARRIVED


def run(
    scenario: Scenario, strategies: "Sequence[str]", *, seed: int, progress: "Progress | None"
) -> run_report.RunReport:
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
) -> run_report.RunReport:
    reports = []
    names_by_note: dict[str, list[str]] = {}
    sizes: Sequence[model.PoolSize] = ()
    nodes = 0
    for name in dict.fromkeys(strategies):
        cluster = scenario.cluster(name, seed)
        sizes, nodes = cluster.sizes, cluster.node_count
        result = run_workload(
            cluster,
            scenario.pods,
            seed=seed,
            mode=Mode.WAIT if scenario.axis is run_report.Axis.TIME else Mode.DROP,
            progress=None if progress is None else _named(progress, name),
        )
        reports.append(run_report.report_of(result, scenario.pods, sizes, axis=scenario.axis))
        for note in cluster.notes():
            names_by_note.setdefault(note, []).append(name)
    return run_report.RunReport(
        cluster=scenario.cluster_name,
        workload=scenario.workload_name,
        axis=scenario.axis,
        nodes=nodes,
        devices=sum(pool.devices for pool in sizes),
        pods=len(scenario.pods),
        demand=run_report.demand_of(scenario.pods, sizes),
        strategies=reports,
        notes=[
            *scenario.notes,
            *(
                note if len(names) == len(reports) else f"{', '.join(names)}: {note}"
                for note, names in names_by_note.items()
            ),
            *run_report.excess_notes(scenario.pods, sizes),
        ],
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
