"""The order and number of a trace's pods on pools."""

import pytest

from cli.simulation.workload.pool_run import sample_pods
from pool.placement.simulation.openb import TracePod

PODS = [
    TracePod("pod-0", 12000, 16384, 1, 1000, (), 10, 110),
    TracePod("pod-1", 6000, 12288, 1, 460, (), 5, None),
    TracePod("pod-2", 8000, 4096, 0, 0, (), 7, 8),
    TracePod("pod-3", 32000, 4096, 4, 1000, (), 20, 30),
]


@pytest.mark.parametrize("inflate", [0.5, 0.8, 1.3, 3.0])
def test_arrivals_ask_for_a_share_of_the_devices(inflate: float) -> None:
    for seed in range(42, 47):
        arrivals = sample_pods(PODS, devices=10, inflate=inflate, seed=seed)
        demand = sum(pod.shape.demand for pod in arrivals) / 1000
        if inflate > 0.6:  # the trace asks for 5.46 of 10 devices
            # The last pod is compared by the demand on one device: it asks for up to four.
            assert inflate * 10 - 1 < demand <= inflate * 10 + 3
            assert {pod.name for pod in arrivals[:4]} == {pod.name for pod in PODS}
        else:
            assert demand <= inflate * 10


def test_the_order_depends_on_the_seed_only() -> None:
    orders = [
        sample_pods(given, devices=10, inflate=2, seed=seed)
        for given, seed in ((PODS, 42), (PODS[::-1], 42), (PODS, 43))
    ]
    assert orders[0] == orders[1] != orders[2]


def test_a_trace_without_devices_is_not_inflated() -> None:
    only_cpu = [pod for pod in PODS if not pod.devices]
    assert sample_pods(only_cpu, devices=10, inflate=1.3, seed=42) == only_cpu
