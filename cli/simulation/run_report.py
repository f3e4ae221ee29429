"""Reports of workload simulations: values that become JSON as they are, one for each strategy."""

import math
from collections import defaultdict
from enum import Enum
from typing import TYPE_CHECKING, Final

from cli.simulation.answers import Model
from pool.placement.simulation.results import IdleCause

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pool.placement.simulation.model import Cluster, SimulatedPod, Workload
    from pool.placement.simulation.results import Result

_POINTS: Final = 400
"""Of a curve in a report: more than a picture shows."""
_HOUR_S: Final = 3600


class Axis(Enum):
    """What curves are drawn over."""

    ARRIVED = "Arrived"
    """Demand that has arrived, as a share of the cluster's devices: pods that never end."""
    TIME = "Time"
    """Hours."""


class Point(Model, frozen=True, omit_defaults=False):
    """A point of the curves; shares are of all devices."""

    x: float
    allocated: float
    fragmented: float
    """FGD's measure: the share that the next pod, drawn from the workload, cannot use."""
    waiting: int


class SizeReport(Model, frozen=True, omit_defaults=False):
    asked: int
    not_placed: int


class DeviceHours(Model, frozen=True, omit_defaults=False):
    busy: float
    idle: float | None = None
    """From the first arrival to the last end; absent for a namespace."""


class StrategyReport(Model, frozen=True, omit_defaults=False):
    """One run; shares are of all devices of the cluster."""

    strategy: str
    seed: int
    pods: int
    not_placed: int
    allocated: float
    """At the end; for a workload in time, the mean from the first arrival to the last event."""
    peak_allocated: float
    fragmented: float
    """At the end."""
    first_refusal: float | None
    """Arrived demand when a pod found no node first; absent where each found one."""
    by_size: dict[str, SizeReport]
    """Size -> pods: "cpu only", "share" of one device, or the number of devices."""
    refusal_causes: dict[str, int]
    idle: dict[str, float]
    """Cause -> share of devices that stay idle at the end."""
    mean_wait_s: float
    longest_wait_s: float
    hours_by_pool: dict[str, DeviceHours]
    hours_by_namespace: dict[str, DeviceHours]
    curve: "list[Point]"


class RunReport(Model, frozen=True, omit_defaults=False):
    """Several strategies on one workload and cluster."""

    cluster: str
    workload: str
    axis: Axis
    nodes: int
    devices: int
    pods: int
    demand: float
    """Of all pods, as a share of the devices."""
    strategies: list[StrategyReport]
    notes: list[str]
    """What the workload asks beyond the cluster, and what of the cluster is left out."""


def report_of(
    result: "Result", cluster: "Cluster", workload: "Workload", *, axis: Axis
) -> StrategyReport:
    """Return the report of one run."""
    capacity = max(1, result.capacity_milli)
    curve = result.curve
    waits = [wait for wait in result.waited_s if not math.isnan(wait)]
    allocated = _mean_allocated(result) if axis is Axis.TIME else result.allocation
    return StrategyReport(
        strategy=result.strategy,
        seed=result.seed,
        pods=len(workload.pods),
        not_placed=sum(one.refused for one in result.refused.values()),
        allocated=allocated,
        peak_allocated=max(curve.allocated_milli, default=0) / capacity,
        fragmented=(curve.fragmentation_milli[-1] if curve.fragmentation_milli else 0.0) / capacity,
        first_refusal=result.first_refusal,
        by_size={
            size: SizeReport(asked=one.asked, not_placed=one.refused)
            for size, one in result.refused.items()
        },
        refusal_causes={cause.value: count for cause, count in result.refusal_causes.items()},
        idle={cause.value: milli / capacity for cause, milli in result.idle_milli.items()},
        mean_wait_s=sum(waits) / len(waits) if waits else 0.0,
        longest_wait_s=max(waits, default=0.0),
        hours_by_pool=_hours_by_pool(result, cluster),
        hours_by_namespace=_hours_by_namespace(result, workload, cluster),
        curve=list(_points(result, axis)),
    )


def excess_notes(cluster: "Cluster", workload: "Workload") -> "Iterator[str]":
    """Say which pods no node of the empty cluster could take, and where the demand exceeds the devices."""
    devices: defaultdict[str, int] = defaultdict(int)
    largest: defaultdict[str, int] = defaultdict(int)
    for node in cluster.nodes:
        of_node: defaultdict[str, int] = defaultdict(int)
        for device in node.devices:
            of_node[device.pool] += device.capacity
        for pool, units in of_node.items():
            devices[pool] += units
            largest[pool] = max(largest[pool], units)
    asked: defaultdict[str, int] = defaultdict(int)
    too_large: defaultdict[str, int] = defaultdict(int)
    for pod in workload.pods:
        if pod.pool:
            asked[pod.pool] += pod.units if pod.duration_s is None else 0
            too_large[pod.pool] += pod.units > largest[pod.pool]
    for pool in sorted(asked):
        if too_large[pool]:
            yield (
                f"pods that ask pool {pool} for more than its largest node has, {largest[pool]} units,"
                f" and are never placed: {too_large[pool]}"
            )
        if asked[pool] > devices[pool]:
            yield (
                f"the workload is larger than the cluster: pods that never end ask pool {pool} for"
                f" {asked[pool]} units, it has {devices[pool]}; at least"
                f" {1 - devices[pool] / asked[pool]:.0%} of the demand is not placed"
            )


def demand_of(cluster: "Cluster", pods: "Sequence[SimulatedPod]") -> float:
    """Return the devices that all pods ask for, as a share of the cluster's."""
    per_device = {pool.name: pool.units_per_device for pool in cluster.pools}
    asked = sum(pod.units / per_device[pod.pool] for pod in pods if pod.pool)
    there = sum(len(node.devices) for node in cluster.nodes)
    return asked / there if there else 0.0


def _points(result: "Result", axis: Axis) -> "Iterator[Point]":
    curve, capacity = result.curve, max(1, result.capacity_milli)
    count = len(curve.time_s)
    for number in sorted(
        {(count - 1) * step // _POINTS for step in range(_POINTS + 1)} if count else ()
    ):
        is_time = axis is Axis.TIME
        x = curve.time_s[number] / _HOUR_S if is_time else curve.arrived_milli[number] / capacity
        yield Point(
            x=round(x, 4),
            allocated=round(curve.allocated_milli[number] / capacity, 5),
            fragmented=round(curve.fragmentation_milli[number] / capacity, 5),
            waiting=curve.waiting[number],
        )


def _mean_allocated(result: "Result") -> float:
    times, allocated = result.curve.time_s, result.curve.allocated_milli
    if not times or times[-1] <= times[0]:
        return result.allocation
    area = sum(
        allocated[number] * (times[number + 1] - times[number]) for number in range(len(times) - 1)
    )
    return area / (times[-1] - times[0]) / max(1, result.capacity_milli)


def _horizon_s(result: "Result") -> float:
    times = result.curve.time_s
    return times[-1] - times[0] if times else 0.0


def _hours_by_pool(result: "Result", cluster: "Cluster") -> dict[str, DeviceHours]:
    if not result.busy_device_s:
        return {}
    horizon = _horizon_s(result)
    found: dict[str, DeviceHours] = {}
    for pool in cluster.pools:
        devices = sum(one.pool == pool.name for node in cluster.nodes for one in node.devices)
        taken = sum(
            1 - one.free / one.capacity
            for node in cluster.nodes
            for one in node.devices
            if one.pool == pool.name and one.capacity
        )
        busy = result.busy_device_s.get(pool.name, 0.0) + taken * horizon
        idle = max(0.0, devices * horizon - busy)
        found[pool.name] = DeviceHours(busy=busy / _HOUR_S, idle=idle / _HOUR_S)
    return found


def _hours_by_namespace(
    result: "Result", workload: "Workload", cluster: "Cluster"
) -> dict[str, DeviceHours]:
    per_device = {pool.name: pool.units_per_device for pool in cluster.pools}
    busy_s: defaultdict[str, float] = defaultdict(float)
    for pod, node in zip(workload.pods, result.nodes, strict=True):
        namespace, _, name = pod.name.partition("/")
        if name and node >= 0 and pod.pool and pod.duration_s is not None:
            busy_s[namespace] += pod.duration_s * pod.units / per_device[pod.pool]
    return {one: DeviceHours(busy=seconds / _HOUR_S) for one, seconds in sorted(busy_s.items())}


IDLE_TEXTS: Final = {
    IdleCause.NOT_ASKED.value: "not asked for",
    IdleCause.MODEL.value: "model not wanted",
    IdleCause.HOLE.value: "hole too small",
    IdleCause.CPU.value: "CPU gone",
    IdleCause.MEMORY.value: "memory gone",
    IdleCause.PODS.value: "no more pods",
}
"""Cause of idle devices -> its column."""
