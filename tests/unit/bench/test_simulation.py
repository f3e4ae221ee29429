"""Workloads on clusters in virtual time, against rules that share no code with the engine."""

import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.kinds.gpupool import SlicePlacement, Strategy
from pool.model import ContainerRole
from pool.placement.fragmentation.target_workload import TargetShape, TargetWorkload
from pool.placement.same_device import Groups, groups_of, plan_same_device
from pool.placement.simulation.model import SimulatedPod
from pool.placement.simulation.results import IdleCause, Mode, RefusalCause
from tests.bench.placement.ranked_nodes import simulate
from tests.bench.placement.strategies import STRATEGIES
from tests.bench.placement.trace_cluster import (
    Cluster,
    SimulatedDevice,
    SimulatedNode,
    SimulatedPool,
    Workload,
)

if TYPE_CHECKING:
    from pool.placement.simulation.results import Result

WHOLE_DEVICES = SimulatedPool("whole")
SLICES = SimulatedPool("slices", units_per_device=4)
SHARED = SimulatedPool("shared", units_per_device=3, placement=SlicePlacement.DISTINCT_DEVICES)
POOLS = (WHOLE_DEVICES, SLICES, SHARED)


def a_device(pool: SimulatedPool, free: int | None = None) -> SimulatedDevice:
    capacity = pool.units_per_device
    return SimulatedDevice(pool.name, capacity, capacity if free is None else free)


def a_node(name: str, *devices: SimulatedDevice, **changes: Any) -> SimulatedNode:
    return SimulatedNode(name, devices, **changes)


def a_pod(pool: SimulatedPool | None = None, units: int = 0, **changes: Any) -> SimulatedPod:
    return SimulatedPod("pod", pool.name if pool else "", units, **changes)


def run(
    nodes: list[SimulatedNode], pods: list[SimulatedPod], strategy: str = "BinPack", **options: Any
) -> "Result":
    return simulate(Cluster(POOLS, tuple(nodes)), Workload(tuple(pods)), strategy, **options)


def places(result: "Result") -> list[tuple[int, tuple[int, ...]]]:
    return list(zip(result.nodes, result.devices, strict=True))


def fits(pool: SimulatedPool, free: list[int], units: int) -> bool:
    """Say by the rules of docs whether units fit on devices."""
    size = pool.units_per_device
    if pool.placement is SlicePlacement.DISTINCT_DEVICES:
        return sum(free) >= units
    if units < size:
        return any(left >= units for left in free)
    return units % size == 0 and free.count(size) >= units // size


@given(st.lists(st.integers(0, 4), max_size=6), st.integers(1, 20))
def test_slices_of_one_container_fit_as_in_the_live_plan(free, units):
    groups = groups_of(((ContainerRole.MAIN, units),), 4)
    live = isinstance(groups, Groups) and plan_same_device(groups, free, strategy=Strategy.BIN_PACK)
    node = a_node("x", *[a_device(SLICES, left) for left in free])
    assert (run([node], [a_pod(SLICES, units)]).nodes[0] == 0) is bool(live)


NODES = st.lists(
    st.builds(
        lambda devices, cpu, memory, pods, model: SimulatedNode(
            "node", tuple(devices), cpu, memory, pods, model
        ),
        st.lists(
            st.sampled_from(POOLS).flatmap(
                lambda pool: st.integers(0, pool.units_per_device).map(
                    lambda free: a_device(pool, free)
                )
            ),
            max_size=5,
        ),
        st.none() | st.integers(0, 12),
        st.none() | st.integers(0, 12),
        st.none() | st.integers(0, 4),
        st.sampled_from(["a", "b"]),
    ),
    max_size=4,
)
PODS = st.lists(
    st.builds(
        lambda asked, cpu, memory, models, arrival, duration: SimulatedPod(
            "pod", asked[0], asked[1], cpu, memory, models, arrival, duration
        ),
        st.sampled_from([("", 0), *((pool.name, n) for pool in POOLS for n in (1, 2, 3, 4, 5, 8))]),
        st.integers(0, 6),
        st.integers(0, 6),
        st.sampled_from([(), ("a",), ("a", "b")]),
        st.integers(0, 20).map(float),
        st.none() | st.integers(0, 10).map(float),
    ),
    max_size=25,
).map(lambda pods: sorted(pods, key=lambda pod: pod.arrival_s))


class NaiveNode:
    """A node that counts its pods again for every question."""

    def __init__(self, node: SimulatedNode) -> None:
        self.node = node
        self.pods: list[tuple[SimulatedPod, tuple[int, ...], dict[int, int]]] = []

    def free(self, position: int) -> int:
        taken = sum(units.get(position, 0) for _, _, units in self.pods)
        return self.node.devices[position].free - taken

    def can_take(self, pod: SimulatedPod) -> bool:
        node, pods = self.node, [item for item, _, _ in self.pods]
        limits = (
            (node.cpu_milli, sum(item.cpu_milli for item in pods) + pod.cpu_milli),
            (node.memory_mib, sum(item.memory_mib for item in pods) + pod.memory_mib),
            (node.pods, len(pods) + 1),
        )
        if any(limit is not None and requested > limit for limit, requested in limits):
            return False
        if pod.models and node.model not in pod.models:
            return False
        if not pod.pool:
            return True
        pool = next(item for item in POOLS if item.name == pod.pool)
        of_pool = [at for at, device in enumerate(node.devices) if device.pool == pod.pool]
        return bool(of_pool) and fits(pool, [self.free(at) for at in of_pool], pod.units)

    def take(self, pod: SimulatedPod, devices: tuple[int, ...]) -> None:
        assert self.can_take(pod)
        assert {self.node.devices[at].pool for at in devices} <= {pod.pool}
        units = dict.fromkeys(devices, 0)
        assert len(units) == len(devices)
        for _ in range(pod.units):
            # Which device of several has one more is told by what is left on each.
            at = next(
                at
                for at in sorted(devices, key=lambda device: units[device])
                if self.free(at) > units[at]
            )
            units[at] += 1
        assert sum(units.values()) == pod.units
        self.pods.append((pod, devices, units))
        assert all(self.free(at) >= 0 for at in range(len(self.node.devices)))


@given(NODES, PODS, st.sampled_from(sorted(STRATEGIES)))
def test_a_pod_that_never_ends_is_placed_if_and_only_if_a_node_fits(nodes, pods, strategy):
    pods = [a_lasting(pod) for pod in pods]
    result = run(nodes, pods, strategy, seed=7)
    naive = [NaiveNode(node) for node in nodes]
    for pod, (node, devices) in zip(pods, places(result), strict=True):
        if node < 0:
            assert not any(item.can_take(pod) for item in naive)
        else:
            naive[node].take(pod, devices)
    assert result.curve.waiting == result.curve.waiting.__class__("q", [0] * len(pods))
    unplaced = sum(node < 0 for node in result.nodes)
    assert sum(item.refused for item in result.refused.values()) == unplaced
    assert sum(item.asked for item in result.refused.values()) == len(pods)
    assert sum(result.refusal_causes.values()) == unplaced
    assert (result.first_refusal is None) is (unplaced == 0)


def a_lasting(pod: SimulatedPod) -> SimulatedPod:
    return SimulatedPod(pod.name, pod.pool, pod.units, pod.cpu_milli, pod.memory_mib, pod.models)


@given(NODES, PODS, st.sampled_from(sorted(STRATEGIES)), st.sampled_from(Mode))
def test_pods_end_wait_and_are_never_together_more_than_a_node_has(nodes, pods, strategy, mode):
    result = run(nodes, pods, strategy, mode=mode)
    starts = [pod.arrival_s + waited for pod, waited in zip(pods, result.waited_s, strict=True)]
    for at, node in enumerate(nodes):
        mine = [number for number, item in enumerate(result.nodes) if item == at]
        for moment in {starts[number] for number in mine}:
            running = [
                number
                for number in mine
                if starts[number] <= moment
                and (
                    pods[number].duration_s is None or moment < starts[number] + lasts(pods, number)
                )
            ]
            assert node.cpu_milli is None or node.cpu_milli >= sum(
                pods[number].cpu_milli for number in running
            )
            assert node.pods is None or len(running) <= node.pods
            for position, device in enumerate(node.devices):
                alone = [n for n in running if result.devices[n] == (position,)]
                assert sum(pods[n].units for n in alone) <= device.free
    if mode is Mode.WAIT and result.curve.waiting:
        assert result.curve.waiting[-1] == sum(node < 0 for node in result.nodes)
    assert all(waited >= 0 for waited in result.waited_s if not math.isnan(waited))


def lasts(pods: list[SimulatedPod], number: int) -> float:
    return pods[number].duration_s or 0.0


@given(NODES, PODS, st.sampled_from(sorted(STRATEGIES)))
def test_equal_arguments_give_equal_results(nodes, pods, strategy):
    results = [repr(run(nodes, pods, strategy, seed=3, mode=Mode.WAIT)) for _ in range(2)]
    assert results[0] == results[1]


def test_binpack_fills_a_node_and_spread_alternates() -> None:
    nodes = [
        a_node("x", *[a_device(WHOLE_DEVICES)] * 2),
        a_node("y", *[a_device(WHOLE_DEVICES)] * 2),
    ]
    pods = [a_pod(WHOLE_DEVICES, 1)] * 3
    assert places(run(nodes, pods, "BinPack")) == [(0, (0,)), (0, (1,)), (1, (0,))]
    assert places(run(nodes, pods, "Spread")) == [(0, (0,)), (1, (0,)), (0, (1,))]


def test_least_fragmentation_keeps_devices_together_for_large_pods() -> None:
    nodes = [
        a_node("x", *[a_device(WHOLE_DEVICES)] * 8),
        a_node("y", *[a_device(WHOLE_DEVICES)] * 3),
    ]
    shapes = [TargetShape(0, 1000, 8), *[TargetShape(0, 1000, 1)] * 5]
    workload = Workload((a_pod(WHOLE_DEVICES, 1),), {"whole": TargetWorkload.of(shapes)})
    result = simulate(Cluster(POOLS, tuple(nodes)), workload, "LeastFragmentation")
    assert places(result) == [(1, (0,))]


def test_slices_lie_on_one_device_and_multiples_on_whole_ones() -> None:
    node = a_node("x", a_device(SLICES, 2), a_device(SLICES), a_device(SLICES))
    pods = [
        a_pod(SLICES, 3),
        a_pod(SLICES, 2),
        a_pod(SLICES, 8),
        a_pod(SLICES, 4),
        a_pod(SLICES, 5),
    ]
    assert places(run([node], pods)) == [(0, (1,)), (0, (0,)), (-1, ()), (0, (2,)), (-1, ())]


def test_distinct_slices_lie_on_as_many_devices_as_there_are() -> None:
    node = a_node("x", a_device(SHARED), a_device(SHARED))
    assert places(run([node], [a_pod(SHARED, 3), a_pod(SHARED, 3), a_pod(SHARED, 1)])) == [
        (0, (0, 1)),
        (0, (0, 1)),
        (-1, ()),
    ]


def test_a_waiting_pod_is_placed_when_another_has_ended() -> None:
    node = a_node("x", a_device(WHOLE_DEVICES))
    pods = [a_pod(WHOLE_DEVICES, 1, duration_s=10.0), a_pod(WHOLE_DEVICES, 1, arrival_s=4.0)]
    waited = run([node], pods, mode=Mode.WAIT)
    assert list(waited.nodes) == [0, 0]
    assert list(waited.waited_s) == [0.0, 6.0]
    assert list(waited.curve.time_s) == [0.0, 4.0, 10.0]
    assert list(waited.curve.waiting) == [0, 1, 0]
    assert list(waited.curve.allocated_milli) == [1000, 1000, 1000]
    dropped = run([node], pods)
    assert list(dropped.nodes) == [0, -1]
    assert list(dropped.curve.allocated_milli) == [1000, 1000, 0]


def test_waiting_pods_are_tried_in_the_order_of_their_arrival() -> None:
    node = a_node("x", a_device(WHOLE_DEVICES), a_device(WHOLE_DEVICES))
    pods = [
        a_pod(WHOLE_DEVICES, 2, duration_s=5.0),
        a_pod(WHOLE_DEVICES, 2, arrival_s=1.0),
        a_pod(WHOLE_DEVICES, 1, arrival_s=2.0),
        a_pod(WHOLE_DEVICES, 1, arrival_s=3.0),
    ]
    assert list(run([node], pods, mode=Mode.WAIT).nodes) == [0, 0, -1, -1]


@pytest.mark.parametrize(
    ("node", "pod", "refusal", "idle"),
    [
        pytest.param(
            a_node("x", a_device(WHOLE_DEVICES), model="a"),
            a_pod(WHOLE_DEVICES, 1, models=("b",)),
            RefusalCause.MODEL,
            IdleCause.MODEL,
            id="model",
        ),
        pytest.param(
            a_node("x", a_device(WHOLE_DEVICES)),
            a_pod(WHOLE_DEVICES, 2),
            RefusalCause.DEVICES,
            IdleCause.HOLE,
            id="devices",
        ),
        pytest.param(
            a_node("x", a_device(WHOLE_DEVICES), cpu_milli=1),
            a_pod(WHOLE_DEVICES, 1, cpu_milli=2),
            RefusalCause.CPU,
            IdleCause.CPU,
            id="cpu",
        ),
        pytest.param(
            a_node("x", a_device(WHOLE_DEVICES), memory_mib=1),
            a_pod(WHOLE_DEVICES, 1, memory_mib=2),
            RefusalCause.MEMORY,
            IdleCause.MEMORY,
            id="memory",
        ),
        pytest.param(
            a_node("x", a_device(WHOLE_DEVICES), pods=0),
            a_pod(WHOLE_DEVICES, 1),
            RefusalCause.PODS,
            IdleCause.PODS,
            id="pods",
        ),
    ],
)
def test_a_refusal_and_what_stays_idle_have_a_cause(node, pod, refusal, idle) -> None:
    result = run([node], [pod])
    assert result.refusal_causes == {refusal: 1}
    assert result.idle_milli == {idle: 1000}


def test_devices_that_nobody_asked_for_are_idle_for_that_reason() -> None:
    result = run(
        [a_node("x", a_device(WHOLE_DEVICES), a_device(SLICES))], [a_pod(WHOLE_DEVICES, 1)]
    )
    assert result.idle_milli == {IdleCause.NOT_ASKED: 1000}
    assert (result.allocation, result.first_refusal) == (0.5, None)


def test_memory_decides_among_nodes_that_score_better() -> None:
    nodes = [
        a_node("x", a_device(WHOLE_DEVICES), memory_mib=1),
        a_node("y", *[a_device(WHOLE_DEVICES)] * 4),
    ]
    assert list(run(nodes, [a_pod(WHOLE_DEVICES, 1, memory_mib=2)] * 2).nodes) == [1, 1]


def test_progress_is_told_until_all_pods_have_arrived() -> None:
    reported: list[tuple[int, int]] = []
    run(
        [a_node("x", a_device(WHOLE_DEVICES))],
        [a_pod()] * 300,
        progress=lambda done, total: reported.append((done, total)),
    )
    assert reported == [(0, 300), (256, 300), (300, 300)]


def test_an_empty_cluster_and_an_empty_workload_have_a_result() -> None:
    assert run([], []).allocation == 0.0
    assert run([], [a_pod(WHOLE_DEVICES, 1)]).refusal_causes == {RefusalCause.MODEL: 1}
    assert run([a_node("x")], [a_pod()]).refused["cpu only"].refused == 0


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_strategies_are_called_by_their_names(strategy: str) -> None:
    assert (
        run([a_node("x", a_device(WHOLE_DEVICES))], [a_pod(WHOLE_DEVICES, 1)], strategy).strategy
        == strategy
    )
