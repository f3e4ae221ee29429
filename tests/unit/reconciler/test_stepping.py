"""Taking over full lists in steps: the same end as in one go, and a little at a time."""

from typing import Any

import pytest

from kube.batches import STEP, steps
from kube.sink import SteppingSink
from pool.catalog import Catalog
from pool.index.device_index import DeviceIndex
from reconciler.pool.gauges import DEVICES_A_STEP, showing_sums
from reconciler.sinks.device import DeviceSink
from reconciler.sinks.node import NodeSink
from reconciler.sinks.pod import PodSink
from telemetry.metrics import REGISTRY
from tests.support.allocation_state import a_bound_pod, some_allocation_state
from tests.support.builders import a_device, a_node, a_pod_facts, at
from tests.unit.reconciler.test_inventory_sinks import an_observed_device


@pytest.mark.parametrize(
    ("count", "expected_sizes"),
    [
        pytest.param(0, [], id="nothing"),
        pytest.param(3, [3], id="less than a step"),
        pytest.param(10, [5, 5], id="whole steps"),
        pytest.param(11, [5, 5, 1], id="a rest"),
    ],
)
def test_steps_are_all_items_in_order(count: int, expected_sizes: list[int]) -> None:
    items = list(range(count))
    taken = list(steps(items, 5))
    assert [len(entry) for entry in taken] == expected_sizes
    assert [item for entry in taken for item in entry] == items


def most_in_a_step(index: DeviceIndex, replacing: Any) -> int:
    """Take the list over; return how many changes the largest step made."""
    most, before = 0, index.generation
    for _ in replacing:
        most = max(most, index.generation - before)
        before = index.generation
    return most


def test_devices_are_taken_over_a_step_at_a_time() -> None:
    index = DeviceIndex()
    sink = DeviceSink(index)
    sink.replace_all([an_observed_device(f"n1-{number}") for number in range(STEP * 3)])
    assert isinstance(sink, SteppingSink)
    listed = [an_observed_device(f"n2-{number}") for number in range(STEP * 3)]
    assert most_in_a_step(index, sink.replace_in_steps(listed)) <= STEP
    assert {entry.facts.name for entry in index.devices.all()} == {
        item.facts.name for item in listed
    }
    assert sink.store.names() == {item.facts.name for item in listed}


def test_nodes_are_taken_over_a_step_at_a_time() -> None:
    index = DeviceIndex()
    sink = NodeSink(index)
    sink.replace_all([a_node(f"n{number}") for number in range(STEP * 2)])
    assert isinstance(sink, SteppingSink)
    listed = [a_node(f"m{number}") for number in range(STEP * 2)]
    assert most_in_a_step(index, sink.replace_in_steps(listed)) <= STEP
    assert all(index.nodes.get(item.name) is not None for item in listed)
    assert index.nodes.get(a_node("n0").name) is None


def test_an_event_between_two_steps_is_not_undone_for_what_the_list_does_not_name() -> None:
    index = DeviceIndex()
    sink = DeviceSink(index)
    stepping = sink.replace_in_steps([an_observed_device("n1-0")])
    next(stepping)
    sink.upsert(an_observed_device("n1-1"))
    assert list(stepping) == []
    assert {entry.facts.name for entry in index.devices.all()} == {"n1-0", "n1-1"}


def test_pods_that_are_gone_come_first_and_pending_ones_last() -> None:
    devices = [a_device(f"n1-{number}") for number in range(2)]
    allocation_state = some_allocation_state(devices=devices)
    sink = PodSink(allocation_state, lambda: at(0))
    sink.replace_all([a_bound_pod("gone", "GPU-n1-0")])
    assert isinstance(sink, SteppingSink)
    pending = [a_pod_facts(f"pending-{number}") for number in range(STEP)]
    stepping = sink.replace_in_steps([*pending, a_bound_pod("bound", "GPU-n1-1")])
    next(stepping)
    assert [pod.name for pod in allocation_state.reader.pods.all()] == []
    next(stepping)
    assert allocation_state.reader.pods.all()
    assert "bound" in {pod.name for pod in allocation_state.reader.pods.all()}
    assert len(list(allocation_state.reader.pods.all())) == STEP
    assert list(stepping) == [None]
    assert len(list(allocation_state.reader.pods.all())) == STEP + 1


def test_sums_over_many_devices_are_taken_in_steps_and_are_right() -> None:
    count = DEVICES_A_STEP + 1
    allocation_state = some_allocation_state(
        devices=[a_device(f"n1-{number}", pool=None) for number in range(count)]
    )
    assert (
        len(
            list(
                showing_sums(
                    allocation_state.reader, Catalog(), at(0), index=allocation_state.index
                )
            )
        )
        == 2
    )
    assert REGISTRY.get_sample_value("gpu_device_unassigned_total") == count
