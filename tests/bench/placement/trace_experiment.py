"""The experiment that FGD's authors made of the trace openb.

Source: hkust-adsl/kubernetes-scheduler-simulator (pkg/simulator/core.go and simulator.go): shuffle, inflation to a
share of the cluster, order of nodes.
"""

from math import gcd
from typing import TYPE_CHECKING

import msgspec

from pool.placement.fragmentation.target_workload import WHOLE_DEVICE, TargetWorkload
from pool.placement.simulation.model import SimulatedPod
from pool.placement.simulation.openb import TraceError, TracePod, rows, tune
from tests.bench.placement.go_random import GoRandom
from tests.bench.placement.trace_cluster import (
    Cluster,
    SimulatedDevice,
    SimulatedNode,
    SimulatedPool,
    Workload,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

POOL = "openb"
"""Name of the one pool of such a cluster."""
_PODS_PER_NODE = 1001
_INFORMERS = 10
"""Numbers that informers of the published program draw between the pods and the nodes."""


class TraceNode(msgspec.Struct, frozen=True):
    """A row of the list of nodes."""

    name: str
    cpu_milli: int
    memory_mib: int
    devices: int
    model: str


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
        for row in rows(lines, file, ("sn", "cpu_milli", "memory_mib", "gpu"))
    ]
    if not nodes:
        raise TraceError(f"{file} has no nodes")
    return nodes


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
    arrivals = _drawn(pods, requested=inflate * devices * WHOLE_DEVICE, random=random)
    for _ in range(_INFORMERS):
        random.int63()
    ordered = sorted(nodes, key=lambda node: node.name)
    ranks = random.permutation(len(ordered))
    ranked = sorted(zip(ranks, ordered, strict=True), key=lambda pair: pair[0])
    unit = unit_milli(pods)
    cluster = cluster_of([node for _, node in ranked], unit)
    return cluster, Workload(tuple(_simulated(pod, unit) for pod in arrivals), targets(pods))


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


def _drawn(pods: "Sequence[TracePod]", *, requested: float, random: GoRandom) -> list[TracePod]:
    random.int63()
    by_name = sorted(pods, key=lambda pod: pod.name)
    arrivals = list(by_name)
    random.shuffle(arrivals)
    tune(arrivals, by_name, requested=requested, below=random.below)
    return arrivals


def _simulated(pod: TracePod, unit: int) -> SimulatedPod:
    return SimulatedPod(
        pod.name,
        POOL if pod.devices else "",
        pod.shape.demand // unit,
        pod.cpu_milli,
        pod.memory_mib,
        pod.models,
    )
