"""The Alibaba trace "openb" as it is published, and the experiment that FGD's authors made of it.

Sources: alibaba/clusterdata (cluster-trace-gpu-v2023); hkust-adsl/kubernetes-scheduler-simulator
(pkg/simulator/core.go and simulator.go): shuffle, inflation to a share of the cluster, order of nodes.
"""

import csv
from math import gcd
from typing import TYPE_CHECKING

import msgspec

from pool.placement.fragmentation.target_workload import (
    WHOLE_DEVICE,
    TargetShape,
    TargetWorkload,
)
from pool.placement.simulation.go_random import GoRandom
from pool.placement.simulation.model import (
    Cluster,
    SimulatedDevice,
    SimulatedNode,
    SimulatedPod,
    SimulatedPool,
    Workload,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

POOL = "openb"
"""Name of the one pool of such a cluster."""
_PODS_PER_NODE = 1001
_INFORMERS = 10
"""Numbers that informers of the published program draw between the pods and the nodes."""


class TraceError(Exception):
    """A trace cannot be read: the file, the row and the column are named."""


class TraceNode(msgspec.Struct, frozen=True):
    """A row of the list of nodes."""

    name: str
    cpu_milli: int
    memory_mib: int
    devices: int
    model: str


class TracePod(msgspec.Struct, frozen=True):
    """A row of the list of pods."""

    name: str
    cpu_milli: int
    memory_mib: int
    devices: int
    milli: int
    """Of each device."""
    models: tuple[str, ...]
    created_s: int | None
    deleted_s: int | None

    @property
    def shape(self) -> TargetShape:
        return TargetShape(self.cpu_milli, self.milli, self.devices, self.models)


def read_nodes(lines: "Iterable[str]", file: str) -> list[TraceNode]:
    """Read `openb_node_list_*.csv`.

    Args:
        lines: its content.
        file: its name, for errors.
    """
    nodes = [
        TraceNode(
            row.text("sn"),
            row.number("cpu_milli"),
            row.number("memory_mib"),
            row.number("gpu"),
            row.optional("model"),
        )
        for row in _rows(lines, file, ("sn", "cpu_milli", "memory_mib", "gpu"))
    ]
    if not nodes:
        raise TraceError(f"{file} has no nodes")
    return nodes


def read_pods(lines: "Iterable[str]", file: str) -> list[TracePod]:
    """Read `openb_pod_list_*.csv`; the column `gpu_spec` and those of times may be missing."""
    needed = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
    return [_pod(row) for row in _rows(lines, file, needed)]


def experiment(
    nodes: "Sequence[TraceNode]",
    pods: "Sequence[TracePod]",
    *,
    inflate: float,
    seed: int,
) -> tuple[Cluster, Workload]:
    """Return the published experiment: pods in random order until they ask for a share of the cluster.

    The same seed gives the published order of pods and of nodes, draw by draw.

    Args:
        nodes: the cluster's.
        pods: the trace's; they are the target workload too.
        inflate: demand for devices as a share of those in the cluster.
        seed: of Go's generator; 42 to 51 are the published ones.
    """
    random = GoRandom(seed)
    devices = sum(node.devices for node in nodes)
    arrivals = _drawn(pods, wanted=inflate * devices * WHOLE_DEVICE, random=random)
    for _ in range(_INFORMERS):
        random.int63()
    ordered = sorted(nodes, key=lambda node: node.name)
    ranks = random.permutation(len(ordered))
    ranked = sorted(zip(ranks, ordered, strict=True), key=lambda pair: pair[0])
    unit = unit_milli(pods)
    cluster = cluster_of([node for _, node in ranked], unit)
    return cluster, Workload(tuple(_simulated(pod, unit) for pod in arrivals), targets(pods))


def drawn(pods: "Sequence[TracePod]", *, devices: int, inflate: float, seed: int) -> list[TracePod]:
    """Return the pods of the experiment on a cluster of so many devices, in the order of their arrival."""
    return _drawn(pods, wanted=inflate * devices * WHOLE_DEVICE, random=GoRandom(seed))


def in_time(pods: "Iterable[TracePod]") -> "Iterator[tuple[TracePod, float, float | None]]":
    """Yield pods as they arrived, with the time of that and their duration."""
    for pod in sorted(pods, key=lambda pod: (pod.created_s or 0, pod.name)):
        created = pod.created_s or 0
        lasted = None if pod.deleted_s is None else float(max(0, pod.deleted_s - created))
        yield pod, float(created), lasted


def history(nodes: "Sequence[TraceNode]", pods: "Sequence[TracePod]") -> tuple[Cluster, Workload]:
    """Return the trace in its own time: pods arrive and end as they did; nodes are in the order of their names."""
    unit = unit_milli(pods)
    timed = [
        msgspec.structs.replace(_simulated(pod, unit), arrival_s=arrival_s, duration_s=duration_s)
        for pod, arrival_s, duration_s in in_time(pods)
    ]
    cluster = cluster_of(sorted(nodes, key=lambda node: node.name), unit)
    return cluster, Workload(tuple(timed), targets(pods))


def targets(pods: "Iterable[TracePod]") -> dict[str, TargetWorkload]:
    """Return the demand of a trace as the target workload of the pool."""
    return {POOL: TargetWorkload.of(pod.shape for pod in pods)}


def unit_milli(pods: "Iterable[TracePod]") -> int:
    """Return the largest slice of a device of which every pod's demand is a multiple; 10 in the published traces."""
    return gcd(WHOLE_DEVICE, *{pod.milli for pod in pods})


def cluster_of(nodes: "Sequence[TraceNode]", unit: int) -> Cluster:
    """Return an empty cluster of one pool with slices of a size, nodes in this order."""
    slices = WHOLE_DEVICE // unit
    device = SimulatedDevice(POOL, capacity=slices, free=slices)
    return Cluster(
        (SimulatedPool(POOL, units_per_device=slices),),
        tuple(
            SimulatedNode(
                node.name,
                (device,) * node.devices,
                node.cpu_milli,
                node.memory_mib,
                _PODS_PER_NODE,
                node.model,
            )
            for node in nodes
        ),
    )


def _drawn(pods: "Sequence[TracePod]", *, wanted: float, random: GoRandom) -> list[TracePod]:
    random.int63()
    by_name = sorted(pods, key=lambda pod: pod.name)
    arrivals = list(by_name)
    random.shuffle(arrivals)
    _tune(arrivals, by_name, wanted=wanted, random=random)
    return arrivals


def _tune(
    arrivals: list[TracePod], trace: "Sequence[TracePod]", *, wanted: float, random: GoRandom
) -> None:
    """Add pods of the trace, or remove some, until the arrivals ask for a demand."""
    demand = sum(pod.shape.demand for pod in arrivals)
    if demand > wanted:
        while demand > wanted:
            demand -= arrivals.pop(random.below(len(arrivals))).shape.demand
        return
    if demand == wanted or not any(pod.milli for pod in trace):
        return
    while True:
        pod = trace[random.below(len(trace))]
        # The published program compares with the demand on one device.
        if demand + pod.milli > wanted:
            return
        demand += pod.shape.demand
        arrivals.append(pod)


def _simulated(pod: TracePod, unit: int) -> SimulatedPod:
    return SimulatedPod(
        pod.name,
        POOL if pod.devices else "",
        pod.shape.demand // unit,
        pod.cpu_milli,
        pod.memory_mib,
        pod.models,
    )


class _Row(msgspec.Struct, frozen=True):
    """A row, which names itself in errors."""

    cells: "Mapping[str | None, str | None]"
    number_of_line: int
    file: str

    def text(self, column: str) -> str:
        value = self.optional(column)
        if not value:
            raise self.error(column, "is empty")
        return value

    def optional(self, column: str) -> str:
        return (self.cells.get(column) or "").strip()

    def number(self, column: str) -> int:
        text = self.text(column)
        try:
            value = int(text) if text.isdecimal() else float(text)
        except ValueError:
            value = -1.0
        if value < 0 or value != value // 1:
            raise self.error(column, f"is not a whole number of 0 or more: {text[:40]!r}")
        return int(value)

    def optional_number(self, column: str) -> int | None:
        return self.number(column) if self.optional(column) else None

    def error(self, column: str, problem: str) -> TraceError:
        return TraceError(f"{self.file}, row {self.number_of_line}, column {column}: {problem}")


def _rows(lines: "Iterable[str]", file: str, needed: "Sequence[str]") -> "Iterator[_Row]":
    reader = csv.DictReader(lines)
    try:
        missing = [name for name in needed if name not in (reader.fieldnames or ())]
        if missing:
            raise TraceError(f"{file}, row 1: there is no column {', '.join(missing)}")
        for cells in reader:
            row = _Row(cells, reader.line_num, file)
            if None in cells:
                raise TraceError(
                    f"{file}, row {reader.line_num}: there are more cells than columns"
                )
            yield row
    except (csv.Error, UnicodeDecodeError) as error:
        raise TraceError(f"{file}, row {reader.line_num + 1}: {error}") from error


def _pod(row: _Row) -> TracePod:
    devices = row.number("num_gpu")
    milli = row.number("gpu_milli") if devices else 0
    if devices > 1 and milli != WHOLE_DEVICE:
        raise row.error(
            "gpu_milli", f"is {milli}; a pod of {devices} devices asks whole ones, {WHOLE_DEVICE}"
        )
    if devices == 1 and not 0 < milli <= WHOLE_DEVICE:
        raise row.error("gpu_milli", f"is {milli}, not 1 to {WHOLE_DEVICE}")
    return TracePod(
        row.text("name"),
        row.number("cpu_milli"),
        row.number("memory_mib"),
        devices,
        milli,
        tuple(filter(None, row.optional("gpu_spec").split("|"))),
        row.optional_number("creation_time"),
        row.optional_number("deletion_time"),
    )
