"""Reports of workload simulations: values that become JSON as they are, one for each strategy."""

import math
from collections import defaultdict
from enum import Enum
from typing import TYPE_CHECKING, Final

from cli.simulation.answers import AnswerModel
from pool.placement.simulation.results import IdleCause

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterator, Sequence

    from pool.placement.simulation.model import PoolSize, SimulatedPod
    from pool.placement.simulation.results import Result

    _Hours = dict[tuple[str, str], float]

_POINTS: Final = 200
"""Points of a curve in a report: more than a picture shows."""
_HOUR_S: Final = 3600


class Axis(Enum):
    """Axis over which curves are drawn."""

    ARRIVED = "Arrived"
    """Demand that has arrived, as a share of the cluster's devices: pods that never end."""
    TIME = "Time"
    """Hours of simulated time."""


class Point(AnswerModel, frozen=True, omit_defaults=False):
    """A point of the curves; shares are of all devices."""

    x: float
    allocated: float
    fragmented: float
    """FGD's measure: the share that the next pod, drawn from the workload, cannot use."""
    waiting: int


class SizeReport(AnswerModel, frozen=True, omit_defaults=False):
    asked: int
    not_placed: int


class DeviceHours(AnswerModel, frozen=True, omit_defaults=False):
    busy: float
    idle: float | None = None
    """Idle hours from the first arrival to the last end; absent for a namespace."""


class StrategyReport(AnswerModel, frozen=True, omit_defaults=False):
    """One run; shares are of all devices of the cluster."""

    strategy: str
    seed: int
    pods: int
    not_placed: int
    allocated: float
    """Allocated share at the end; for a workload in time, the mean from the first arrival to the last event."""
    peak_allocated: float
    fragmented: float
    """Like `allocated`."""
    first_refusal: float | None
    """Arrived demand when a pod found no node first; absent where each found one."""
    by_size: dict[str, SizeReport]
    """Size -> pods: "cpu only", "share" of one device, or the number of devices."""
    refusal_causes: dict[str, int]
    idle: dict[str, float]
    """Cause -> share of devices that stay idle at the end."""
    waited: int
    """Pods that were not placed at once, and were later."""
    mean_wait_s: float
    """Mean wait, in seconds, of all placed pods."""
    longest_wait_s: float
    hours_by_pool: dict[str, DeviceHours]
    hours_by_namespace: dict[str, DeviceHours]
    curve: "list[Point]"


class RunReport(AnswerModel, frozen=True, omit_defaults=False):
    """Several strategies on one workload and cluster."""

    cluster: str
    workload: str
    axis: Axis
    nodes: int
    devices: int
    pods: int
    demand: float
    """Demand of all pods, as a share of the devices."""
    strategies: list[StrategyReport]
    notes: list[str]
    """What the workload asks beyond the cluster, and what of the cluster is left out."""


def report_of(
    result: "Result", pods: "Sequence[SimulatedPod]", pools: "Sequence[PoolSize]", *, axis: Axis
) -> StrategyReport:
    """Return the report of one run."""
    capacity = max(1, result.capacity_milli)
    curve = result.curve
    waits = [wait for wait in result.waited_s if not math.isnan(wait)]
    is_time = axis is Axis.TIME
    lost = curve.fragmentation_milli
    busy = _busy_hours(result, pods, pools) if is_time else {}
    return StrategyReport(
        strategy=result.strategy,
        seed=result.seed,
        pods=len(pods),
        not_placed=sum(item.refused for item in result.refused.values()),
        allocated=_mean(result, curve.allocated_milli) if is_time else result.allocation,
        peak_allocated=max(curve.allocated_milli, default=0) / capacity,
        fragmented=_mean(result, lost) if is_time else (lost[-1] if lost else 0.0) / capacity,
        first_refusal=result.first_refusal,
        by_size={
            size: SizeReport(asked=item.asked, not_placed=item.refused)
            for size, item in result.refused.items()
        },
        refusal_causes={cause.value: count for cause, count in result.refusal_causes.items()},
        idle={cause.value: milli / capacity for cause, milli in result.idle_milli.items()},
        waited=sum(wait > 0 for wait in waits),
        mean_wait_s=sum(waits) / len(waits) if waits else 0.0,
        longest_wait_s=max(waits, default=0.0),
        hours_by_pool=_by_pool(busy, result, pools) if is_time else {},
        hours_by_namespace=_by_namespace(busy),
        curve=list(_points(result, axis)),
    )


def excess_notes(pods: "Sequence[SimulatedPod]", pools: "Sequence[PoolSize]") -> "Iterator[str]":
    """Say which pods no node of the empty cluster could take, and where the demand exceeds the devices."""
    asked: defaultdict[str, int] = defaultdict(int)
    too_large: defaultdict[str, int] = defaultdict(int)
    size_of = {pool.name: pool for pool in pools}
    for pod in pods:
        if pod.pool in size_of:
            asked[pod.pool] += pod.units if pod.duration_s is None else 0
            too_large[pod.pool] += pod.units > size_of[pod.pool].largest_node
    for name in sorted(asked):
        size = size_of[name]
        if too_large[name]:
            yield (
                f"pods that ask pool {name} for more than its largest node has, {size.largest_node} units,"
                f" and are never placed: {too_large[name]}"
            )
        if asked[name] > size.units:
            yield (
                f"the workload is larger than the cluster: pods that never end ask pool {name} for"
                f" {asked[name]} units, it has {size.units}; at least"
                f" {1 - size.units / asked[name]:.0%} of the demand is not placed"
            )


def demand_of(pods: "Sequence[SimulatedPod]", pools: "Sequence[PoolSize]") -> float:
    """Return the devices that all pods ask for, as a share of the cluster's."""
    per_device = {pool.name: pool.units_per_device for pool in pools}
    asked = sum(pod.units / per_device[pod.pool] for pod in pods if pod.pool in per_device)
    there = sum(pool.devices for pool in pools)
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


def _mean(result: "Result", values: "array[int] | array[float]") -> float:
    """Return the mean over time of a curve, as a share of all devices."""
    times, capacity = result.curve.time_s, max(1, result.capacity_milli)
    if not times:
        return 0.0
    if times[-1] <= times[0]:
        return values[-1] / capacity
    area = sum(
        values[number] * (times[number + 1] - times[number]) for number in range(len(times) - 1)
    )
    return area / (times[-1] - times[0]) / capacity


def _busy_hours(
    result: "Result", pods: "Sequence[SimulatedPod]", pools: "Sequence[PoolSize]"
) -> "_Hours":
    """Return the device-hours of the workload's pods by (pool, namespace), until the last event."""
    per_device = {pool.name: pool.units_per_device for pool in pools}
    end_s = result.curve.time_s[-1] if result.curve.time_s else 0.0
    busy: _Hours = defaultdict(float)
    for pod, waited_s in zip(pods, result.waited_s, strict=True):
        if not pod.pool or math.isnan(waited_s):
            continue
        start_s = pod.arrival_s + waited_s
        lasted_s = end_s - start_s if pod.duration_s is None else pod.duration_s
        namespace = pod.name.rpartition("/")[0]
        busy[pod.pool, namespace] += lasted_s * pod.units / per_device[pod.pool] / _HOUR_S
    return busy


def _by_pool(
    busy: "_Hours", result: "Result", pools: "Sequence[PoolSize]"
) -> dict[str, DeviceHours]:
    """Return the busy and idle device-hours; what pods had before the workload is busy all the time."""
    times = result.curve.time_s
    hours = (times[-1] - times[0]) / _HOUR_S if times else 0.0
    found: dict[str, DeviceHours] = {}
    for pool in pools:
        own = sum(count for (name, _), count in busy.items() if name == pool.name)
        all_busy = own + pool.taken_devices * hours
        found[pool.name] = DeviceHours(
            busy=all_busy, idle=max(0.0, pool.devices * hours - all_busy)
        )
    return found


def _by_namespace(busy: "_Hours") -> dict[str, DeviceHours]:
    names = sorted({namespace for _, namespace in busy if namespace})
    return {
        name: DeviceHours(busy=sum(hours for (_, of), hours in busy.items() if of == name))
        for name in names
    }


IDLE_TEXTS: Final = {
    IdleCause.NOT_ASKED.value: "not asked for",
    IdleCause.EXCLUDED.value: "node excluded",
    IdleCause.MODEL.value: "model not wanted",
    IdleCause.HOLE.value: "hole too small",
    IdleCause.TOPOLOGY.value: "not together",
    IdleCause.CPU.value: "CPU gone",
    IdleCause.MEMORY.value: "memory gone",
    IdleCause.PODS.value: "no more pods",
}
"""Cause of idle devices -> its column."""
