"""Which waiting pods are touched, and when: units that came free unseen are offered to one pod at a time."""

import itertools

import pytest

from api.names import NodeName
from kube.client import KubeClient
from kube.config.connection import StaticConnection
from reconciler.pod.requeue import FIRST_PAUSE_S, FITS_FOR_S, MAX_TOUCHES, SchedulerRequeue
from tests.support.allocation_state import (
    a_bound_pod,
    commit_to,
    some_allocation_state,
    some_devices,
)
from tests.support.builders import a_device, a_pod_facts, a_pool, at
from tests.support.loop_clock import LoopClock

OTHER = a_pod_facts("other")
"""It takes a unit, and gives it back."""


class Time:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self):
        return at(self.seconds)


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def allocation_state():
    return some_allocation_state(devices=some_devices(1))


@pytest.fixture
def requeue_of(time):
    # `due` decides and sends nothing.
    client = KubeClient(StaticConnection("http://127.0.0.1:1", token="none"), LoopClock())
    return lambda allocation_state: SchedulerRequeue(
        client, allocation_state.index, time.now, reader=allocation_state.reader
    )


@pytest.fixture
def requeue(allocation_state, requeue_of):
    return requeue_of(allocation_state)


def wait_for_units(allocation_state, *names: str) -> None:
    for number, name in enumerate(names):
        allocation_state.observe_pod(
            a_pod_facts(name, created=f"2026-01-01T00:00:0{number}Z"), at(0)
        )


def touched(requeue, time, *, until: float) -> "list[tuple[float, str]]":
    """Ask twice a second, and return when which pod was touched."""
    found = []
    while time.seconds <= until:
        found += [(time.seconds, pod.name) for pod in requeue.due()]
        time.seconds += 0.5
    return found


def test_pod_is_touched_once_it_has_fitted_for_a_while(allocation_state, requeue, time):
    wait_for_units(allocation_state, "first", "second")
    assert touched(requeue, time, until=FITS_FOR_S) == [(FITS_FOR_S, "first")]


def test_pod_that_was_touched_and_did_not_come_leaves_the_units_to_the_next(
    allocation_state, requeue, time
):
    wait_for_units(allocation_state, "stuck", "next")
    assert touched(requeue, time, until=4 * FITS_FOR_S) == [
        (FITS_FOR_S, "stuck"),
        (3 * FITS_FOR_S, "next"),
    ]


def test_pod_that_never_comes_is_not_touched_for_ever(allocation_state, requeue, time):
    wait_for_units(allocation_state, "stuck")
    times = [when for when, _ in touched(requeue, time, until=40 * FIRST_PAUSE_S)]
    assert len(times) == MAX_TOUCHES
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert pauses == [FIRST_PAUSE_S * 2**number for number in range(MAX_TOUCHES - 1)]


def test_queue_of_pods_that_never_come_is_not_touched_for_ever(allocation_state, requeue, time):
    """There is one unit: whose turn it is changes all the time, and nobody's count is lost by that."""
    names = [f"stuck-{number}" for number in range(4)]
    wait_for_units(allocation_state, *names)
    touches = [name for _, name in touched(requeue, time, until=80 * FIRST_PAUSE_S)]
    assert {name: touches.count(name) for name in names} == dict.fromkeys(names, MAX_TOUCHES)


def test_pod_that_fits_again_after_it_did_not_is_touched_like_a_new_one(
    allocation_state, requeue, time
):
    wait_for_units(allocation_state, "stuck")
    assert len(touched(requeue, time, until=40 * FIRST_PAUSE_S)) == MAX_TOUCHES
    commit_to(allocation_state, OTHER)
    assert requeue.due() == []
    allocation_state.release(OTHER.uid)
    began = time.seconds
    found = touched(requeue, time, until=began + FITS_FOR_S)
    assert found == [(began + FITS_FOR_S, "stuck")]


def test_preemptor_is_touched_once_its_victim_is_gone(allocation_state, requeue, time):
    """kube-scheduler misses the end of a victim that was gone before it asked for its deletion."""
    allocation_state.observe_pod(a_bound_pod("victim", "GPU-n1-0"), at(0))
    preemptor = a_pod_facts("preemptor", nominated_node=NodeName("n1"))
    allocation_state.observe_pod(preemptor, at(0))
    assert touched(requeue, time, until=2 * FITS_FOR_S) == []
    allocation_state.discard_pod(a_bound_pod("victim").uid)
    began = time.seconds
    found = touched(requeue, time, until=began + FITS_FOR_S)
    assert found == [(began + FITS_FOR_S, "preemptor")]


def test_node_that_fits_besides_is_a_new_chance(requeue_of, time):
    allocation_state = some_allocation_state(
        devices=[*some_devices(1, "n1"), *some_devices(1, "n2")]
    )
    requeue = requeue_of(allocation_state)
    commit_to(allocation_state, OTHER)
    wait_for_units(allocation_state, "stuck")
    assert len(touched(requeue, time, until=40 * FIRST_PAUSE_S)) == MAX_TOUCHES
    allocation_state.release(OTHER.uid)
    began = time.seconds
    found = touched(requeue, time, until=began + 40 * FIRST_PAUSE_S)
    assert found[0] == (began + FITS_FOR_S, "stuck")
    assert len(found) == MAX_TOUCHES


def test_nodes_that_come_and_go_are_one_chance_in_a_while(requeue_of, time):
    allocation_state = some_allocation_state(
        devices=[*some_devices(1, "n1"), *some_devices(1, "n2")]
    )
    requeue = requeue_of(allocation_state)
    wait_for_units(allocation_state, "stuck")
    times = []
    for _ in range(100):
        commit_to(allocation_state, OTHER)
        times += [when for when, _ in touched(requeue, time, until=time.seconds)]
        allocation_state.release(OTHER.uid)
        times += [when for when, _ in touched(requeue, time, until=time.seconds)]
    assert len(times) > MAX_TOUCHES
    assert all(later - earlier >= FIRST_PAUSE_S for earlier, later in itertools.pairwise(times))


def test_new_chances_of_pods_that_never_come_leave_its_turn_to_the_next(requeue_of, time):
    """Each of the first ones has a chance again before the last one had any."""
    allocation_state = some_allocation_state(
        devices=[*some_devices(1, "n1"), *some_devices(1, "n2")]
    )
    requeue = requeue_of(allocation_state)
    names = [f"stuck-{number}" for number in range(9)]
    wait_for_units(allocation_state, *names, "able")
    order = []
    while "able" not in order:
        commit_to(allocation_state, OTHER)
        order += [name for _, name in touched(requeue, time, until=time.seconds)]
        allocation_state.release(OTHER.uid)
        order += [name for _, name in touched(requeue, time, until=time.seconds + 1)]
        assert time.seconds < 60
    assert {*names, "able"} == set(order)


def test_younger_pool_of_a_resource_wakes_no_pod(requeue_of, time):
    """The older one serves it: what is free in the younger one is for nobody."""
    older = a_pool("whole", created="2026-01-01T00:00:00Z")
    younger = a_pool("twin", resource=older.resource, created="2026-01-02T00:00:00Z")
    allocation_state = some_allocation_state(
        older, younger, devices=[*some_devices(1), a_device("n2", pool="twin")]
    )
    requeue = requeue_of(allocation_state)
    commit_to(allocation_state, OTHER)
    wait_for_units(allocation_state, "p")
    assert touched(requeue, time, until=FIRST_PAUSE_S) == []


def test_gated_pods_take_no_turns(allocation_state, requeue, time):
    for number in range(100):
        created = f"2026-01-01T00:{number // 60:02}:{number % 60:02}Z"
        allocation_state.observe_pod(
            a_pod_facts(f"gated-{number}", is_gated=True, created=created), at(0)
        )
    allocation_state.observe_pod(a_pod_facts("able", created="2026-01-02T00:00:00Z"), at(0))
    assert touched(requeue, time, until=8 * FIRST_PAUSE_S)[0] == (FITS_FOR_S, "able")
    assert {name for _, name in touched(requeue, time, until=40 * FIRST_PAUSE_S)} == {"able"}


def test_pod_that_awaits_capacity_has_its_turn_and_is_not_touched(allocation_state, requeue, time):
    allocation_state.observe_pod(a_pod_facts("awaits", awaits_capacity=True), at(0))
    allocation_state.observe_pod(a_pod_facts("able", created="2026-01-02T00:00:00Z"), at(0))
    assert touched(requeue, time, until=4 * FITS_FOR_S) == [(3 * FITS_FOR_S, "able")]


def test_pod_that_would_not_fit_is_left_alone(allocation_state, requeue, time):
    allocation_state.observe_pod(a_pod_facts("large", 2), at(0))
    assert touched(requeue, time, until=10) == []
