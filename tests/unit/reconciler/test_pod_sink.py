"""Pods on their way into the allocation state: lists and events, in any order, end in the same state."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from api.kinds.gpudevice import GPUDevice
from api.meta import ObjectMeta
from api.names import NodeName, PodUid, PoolName
from pool.allocation_state import AllocationState
from pool.compute_resources import NOTHING, ComputeResources
from pool.model import PodFacts, PodPhase, UnitlessPod
from reconciler.sinks.device import DeviceSink, ObservedDevice
from reconciler.sinks.node import NodeSink
from reconciler.sinks.pod import PodSink
from tests.support.allocation_state import (
    a_bound_pod,
    commit_to,
    note_of,
    reserve,
    some_allocation_state,
    some_devices,
    uid_of,
)
from tests.support.builders import a_demand, a_device, a_node, a_pod_facts, a_pool, at

WHOLE = PoolName("whole")


def capacity(allocation_state: AllocationState) -> tuple[int, int, int]:
    figures = allocation_state.index.state(WHOLE).capacity()
    return figures.available, figures.reserved, figures.used


def a_sink(allocation_state: AllocationState) -> PodSink:
    return PodSink(allocation_state, lambda: at(0))


def an_ended_pod(name: str, *units: str) -> PodFacts:
    return a_bound_pod(name, *units, phase=PodPhase.ENDED)


def a_pod_with_note(name: str, *, held_in: AllocationState) -> PodFacts:
    """A pending pod whose annotation names a reservation of the first device that is free there."""
    reservation = reserve(held_in, a_demand(1), id_=f"r-{name}")
    return a_pod_facts(name, reservation=note_of(reservation))


def test_a_list_leaves_exactly_its_pods():
    allocation_state = some_allocation_state(devices=some_devices(3))
    sink = a_sink(allocation_state)
    sink.replace_all([a_bound_pod("a", "GPU-n1-0"), a_bound_pod("b", "GPU-n1-1")])
    sink.replace_all([a_bound_pod("b", "GPU-n1-1"), a_bound_pod("c", "GPU-n1-2")])
    assert {pod.name for pod in allocation_state.reader.pods.all()} == {"b", "c"}
    assert capacity(allocation_state) == (1, 0, 2)


def test_a_list_leaves_exactly_what_its_pods_without_units_take():
    allocation_state = some_allocation_state(devices=some_devices(3))
    sink = a_sink(allocation_state)

    def takes(uid: str, cpu_milli: int, node: str = "n1") -> UnitlessPod:
        return UnitlessPod(PodUid(uid), NodeName(node), ComputeResources(cpu_milli, 10))

    def taken(node: str = "n1") -> ComputeResources:
        return allocation_state.index.requests.on(NodeName(node))

    with_units = a_bound_pod("a", "GPU-n1-0", requests=ComputeResources(4_000))
    sink.replace_all([with_units, takes("b", 100), takes("c", 200), takes("far", 1, "n9")])
    assert taken() == ComputeResources(4_300, 20)
    assert taken("n9") == ComputeResources(1, 10)
    sink.replace_all([with_units, takes("c", 250)])
    assert taken() == ComputeResources(4_250, 10)
    assert taken("n9") == NOTHING
    sink.upsert(takes("c", 300))
    assert taken() == ComputeResources(4_300, 10)
    sink.discard(takes("c", 300))
    assert taken() == ComputeResources(4_000)
    assert capacity(allocation_state) == (2, 0, 1)


def test_a_pod_that_came_back_under_its_name_is_another_pod():
    allocation_state = some_allocation_state(devices=some_devices(2))
    sink = a_sink(allocation_state)
    sink.upsert(a_bound_pod("web-0", "GPU-n1-0"))
    sink.replace_all([a_bound_pod("web-0", "GPU-n1-1", uid="uid-second")])
    assert [pod.uid for pod in allocation_state.reader.pods.all()] == ["uid-second"]
    assert capacity(allocation_state) == (1, 0, 1)


def test_a_reservation_written_into_a_pod_cannot_take_the_units_of_a_bound_one_in_the_same_list():
    held = a_pod_with_note("held", held_in=some_allocation_state(devices=some_devices(1)))
    allocation_state = some_allocation_state(devices=some_devices(1))
    a_sink(allocation_state).replace_all([held, a_bound_pod("bound", "GPU-n1-0")])
    assert capacity(allocation_state) == (0, 0, 1)
    assert allocation_state.ledger.of_pod(uid_of("held")) is None


def test_a_reservation_written_into_a_pod_is_taken_up_where_its_units_are_free():
    """Lesson 21: the ledger is there again before anything is answered."""
    held = a_pod_with_note("held", held_in=some_allocation_state(devices=some_devices(1)))
    allocation_state = some_allocation_state(devices=some_devices(2))
    a_sink(allocation_state).replace_all([held, an_ended_pod("ended", "GPU-n1-0")])
    assert capacity(allocation_state) == (1, 1, 0)


def test_the_same_list_again_changes_nothing():
    allocation_state = some_allocation_state(devices=some_devices(3))
    pods = [
        a_pod_with_note("held", held_in=some_allocation_state(devices=some_devices(1))),
        a_bound_pod("bound", "GPU-n1-1"),
        a_pod_facts("waiting"),
    ]
    sink = a_sink(allocation_state)
    sink.replace_all(pods)
    generation, figures = allocation_state.index.generation, capacity(allocation_state)
    sink.replace_all(pods)
    sink.replace_all(pods[::-1])
    assert (allocation_state.index.generation, capacity(allocation_state)) == (generation, figures)


def test_a_list_without_a_pod_ends_its_reservation_and_its_commitment():
    allocation_state = some_allocation_state(devices=some_devices(2))
    sink = a_sink(allocation_state)
    pod = a_pod_facts("p")
    sink.upsert(pod)
    commit_to(allocation_state, pod)
    sink.replace_all([])
    assert capacity(allocation_state) == (2, 0, 0)
    assert len(allocation_state.ledger) == 0


def test_a_list_keeps_a_reservation_whose_pod_the_api_server_has_not_stored_yet():
    allocation_state = some_allocation_state(devices=some_devices(2))
    reservation = reserve(allocation_state, a_demand(1))
    a_sink(allocation_state).replace_all([])
    assert allocation_state.ledger.get(reservation.id) is reservation


def test_a_pod_that_ended_frees_its_units():
    allocation_state = some_allocation_state(devices=some_devices(1))
    sink = a_sink(allocation_state)
    sink.upsert(a_bound_pod("p", "GPU-n1-0"))
    sink.upsert(an_ended_pod("p", "GPU-n1-0"))
    assert capacity(allocation_state) == (1, 0, 0)


def test_a_pod_that_is_deleted_frees_its_units_even_if_that_is_said_twice():
    allocation_state = some_allocation_state(devices=some_devices(1))
    sink = a_sink(allocation_state)
    pod = a_bound_pod("p", "GPU-n1-0")
    sink.upsert(pod)
    sink.discard(pod)
    sink.discard(pod)
    assert capacity(allocation_state) == (1, 0, 0)


def test_an_older_event_that_comes_late_does_not_unbind_a_pod():
    allocation_state = some_allocation_state(devices=some_devices(1))
    sink = a_sink(allocation_state)
    sink.upsert(a_bound_pod("p", "GPU-n1-0"))
    sink.upsert(a_pod_facts("p"))
    assert capacity(allocation_state) == (0, 0, 1)


def test_a_binding_is_logged_once_with_its_node_and_devices():
    sink = a_sink(some_allocation_state(devices=some_devices(1)))
    with capture_logs() as logs:
        sink.upsert(a_pod_facts("p"))
        sink.upsert(a_bound_pod("p", "GPU-n1-0"))
        sink.upsert(a_bound_pod("p", "GPU-n1-0"))
    (line,) = logs
    assert line["event"] == "pod bound"
    assert (line["pod"], line["node"], line["devices"]) == (
        "default/p",
        "n1",
        {"c0": ("GPU-n1-0",)},
    )


# --- any order --------------------------------------------------------------------------------------

PODS: "dict[str, list[PodFacts]]" = {
    "a": [a_pod_facts("a"), a_bound_pod("a", "GPU-n1-0"), an_ended_pod("a", "GPU-n1-0")],
    "b": [a_pod_facts("b"), a_bound_pod("b", "GPU-n1-0")],
    "c": [a_bound_pod("c", "GPU-n2-0", node="n2")],
    "d": [a_bound_pod("d", node="n1")],
}
"""Histories; b gets a's device, and nobody knows what d has."""


def a_gpu(node: str, number: int, **changes: Any) -> ObservedDevice:
    facts = a_device(node, number, **changes)
    device = GPUDevice(metadata=ObjectMeta(name=facts.name))
    return ObservedDevice(facts, device)


class World:
    """An allocation state with sinks, as one process has them."""

    def __init__(self) -> None:
        self.allocation_state = some_allocation_state(a_pool(), nodes=())
        self.pods = a_sink(self.allocation_state)
        self.devices = DeviceSink(self.allocation_state.index)
        self.nodes = NodeSink(self.allocation_state.index)

    def picture(self) -> Any:
        index = self.allocation_state.index
        return (
            {entry.facts.name: (entry.observed, entry.assumed) for entry in index.devices.all()},
            dict(index.state(WHOLE).nodes()),
            index.state(WHOLE).capacity(),
            sorted(pod.ref for pod in self.allocation_state.reader.pods.waiting(a_pool().resource)),
            {pod.uid: pod.phase for pod in self.allocation_state.reader.pods.all()},
            len(self.allocation_state.ledger),
        )


DEVICES = [a_gpu(node, number) for node in ("n1", "n2") for number in range(2)]
NODES = [a_node("n1"), a_node("n2", is_cordoned=True)]


def listed() -> World:
    """What a process knows that starts now: one list of each kind."""
    world = World()
    world.nodes.replace_all(NODES)
    world.devices.replace_all(DEVICES)
    world.pods.replace_all([history[-1] for history in PODS.values()])
    return world


@given(st.data())
def test_events_of_several_kinds_in_any_order_and_twice_end_in_the_allocation_state_of_a_list(data):
    streams: list[list[tuple[Any, Any]]] = [
        *([("pods", facts) for facts in history] for history in PODS.values()),
        *([("devices", device)] for device in DEVICES),
        *([("nodes", a_node(node.name)), ("nodes", node)] for node in NODES),
    ]
    order = data.draw(st.permutations([n for n, entry in enumerate(streams) for _ in entry]))
    twice = data.draw(st.sets(st.sampled_from(range(len(order)))))
    ahead = [iter(stream) for stream in streams]
    world = World()
    for step, number in enumerate(order):
        kind, item = next(ahead[number])
        for _ in range(2 if step in twice else 1):
            getattr(world, kind).upsert(item)
    assert world.picture() == listed().picture()


@given(st.permutations(list(PODS)), st.sets(st.sampled_from(list(PODS))))
def test_pods_that_went_unseen_leave_the_allocation_state_of_a_list_without_them(order, gone):
    world = listed()
    left = [PODS[name][-1] for name in order if name not in gone]
    world.pods.replace_all(left)
    fresh = World()
    fresh.nodes.replace_all(NODES)
    fresh.devices.replace_all(DEVICES)
    fresh.pods.replace_all(left)
    assert world.picture() == fresh.picture()
