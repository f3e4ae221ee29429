"""Back-off of shapes, and shapes that are left out."""

import dataclasses
import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaling.request_ids import request_id
from autoscaling.scaling_model import Failure, ObservedRequest, RequestPhase, ShapeHistory
from autoscaling.shape_history import (
    history_from,
    new_failures,
    pause_after,
    shape_statuses,
    updated_history,
)
from tests.support.scale_requests import (
    ID,
    OTHER_ID,
    POOL,
    SHAPES,
    a_claim,
    a_requested_node,
    a_signal,
    after,
    current,
    the_parameters,
)

MINUTES = dt.timedelta(minutes=1)
IDS = [request_id(POOL, f"pod-{number}", "large") for number in range(20)]


def failed(failure: Failure = Failure.INSUFFICIENT_CAPACITY, id_=ID, shape=SHAPES[0], **fields):
    return ObservedRequest(
        id=id_,
        pool=POOL.name,
        shape=shape,
        phase=RequestPhase.FAILED,
        since=after(0),
        failure=failure,
        **fields,
    )


def seen(history, *requests, at_s: float, recorded=(), parameters=None, capabilities=None):
    return updated_history(
        history,
        parameters or the_parameters(),
        requests,
        recorded=[current(item) for item in recorded],
        capabilities=capabilities or {},
        now=after(at_s),
    )


def test_weak_point_15_a_shape_that_failed_is_left_alone_for_three_minutes_and_twice_as_long_each_time():
    history: tuple[ShapeHistory, ...] = ()
    at_s, pauses = 0.0, []
    for id_ in IDS[:6]:
        history = seen(history, failed(id_=id_), at_s=at_s)
        (entry,) = history
        assert entry.retry_after is not None
        pauses.append((entry.retry_after - after(at_s)) / MINUTES)
        at_s = (entry.retry_after - after(0)).total_seconds() + 1
    for pause, expected in zip(pauses, (3, 6, 12, 24, 30, 30), strict=True):
        assert expected <= pause <= expected * 1.1


def test_the_pause_is_told_apart_by_the_id_alone():
    pauses = {pause_after(1, item) for item in IDS}
    assert len(pauses) > 15
    assert pause_after(1, ID) == pause_after(1, ID)


def test_a_failure_counts_once_however_long_it_is_seen():
    history = seen((), failed(), at_s=0)
    assert seen(history, failed(), at_s=5, recorded=[failed()]) == history
    assert new_failures([failed()], [current(failed())]) == ()
    assert new_failures([failed()], []) == (failed(),)


def test_nodes_that_fail_together_are_one_failure():
    history = seen((), *(failed(id_=item) for item in IDS[:8]), at_s=0)
    assert [item.failures for item in history] == [1]
    later = seen(history, failed(id_=OTHER_ID), at_s=30)
    assert later == history


def test_a_pinned_zone_fails_alone():
    signal = a_signal(node_selector={"topology.kubernetes.io/zone": "a"})
    history = seen((), failed(signals=(signal,)), at_s=0)
    assert [(item.shape, item.zone) for item in history] == [("large", "a")]


@pytest.mark.parametrize("failure", [Failure.NOT_SIGNALLED, Failure.SIGNAL_TAMPERED])
def test_an_autoscaler_that_is_silent_is_asked_again_every_minute(failure: Failure):
    history: tuple[ShapeHistory, ...] = ()
    for number, id_ in enumerate(IDS[:5]):
        history = seen(history, failed(failure, id_), at_s=number * 120)
        assert [(item.failures, item.retry_after) for item in history] == [
            (0, after(number * 120 + 60))
        ]


def test_weak_point_6_two_nodes_without_devices_leave_the_shape_out_until_the_spec_changes():
    history = seen((), failed(Failure.NO_DEVICES), at_s=0)
    assert [(item.without_devices, item.excluded_at) for item in history] == [(1, 0)]
    history = seen(history, failed(Failure.NO_DEVICES, OTHER_ID), at_s=1000)
    assert [(item.without_devices, item.excluded_at) for item in history] == [(2, 1)]
    days_later = seen(history, at_s=300_000)
    assert [item.excluded_at for item in days_later] == [1]
    assert seen(days_later, at_s=300_001, parameters=the_parameters(generation=2)) == ()


def test_a_shape_that_works_has_no_history():
    history = seen((), failed(Failure.NO_DEVICES), at_s=0)
    claim = a_claim(zone="a")
    ready = ObservedRequest(
        id=OTHER_ID,
        pool=POOL.name,
        shape=SHAPES[0],
        phase=RequestPhase.AGENT_READY,
        since=after(100),
        claim=claim,
    )
    assert seen(history, ready, at_s=100) == ()


def test_what_failed_long_ago_and_shapes_that_are_gone_are_forgotten():
    history = seen((), failed(), at_s=0)
    assert seen(history, at_s=1500) == history
    assert seen(history, at_s=2200) == ()
    assert seen(history, at_s=5, parameters=the_parameters(shapes=SHAPES[1:])) == ()


@pytest.mark.parametrize(("failures", "longest_s"), [(0, 60), (1, 198), (2, 396), (9, 1980)])
def test_a_clock_that_was_ahead_holds_a_shape_no_longer_than_its_failures_do(
    failures: int, longest_s: float
):
    history = (ShapeHistory(shape="large", failures=failures, retry_after=after(3600)),)
    (entry,) = seen(history, at_s=0)
    assert entry.retry_after == after(longest_s)
    (entry,) = seen((entry,), at_s=longest_s - 1)
    assert entry.retry_after == after(longest_s)


@given(st.lists(st.tuples(st.sampled_from(list(Failure)), st.integers(0, 4000)), max_size=12))
def test_weak_point_12_a_restart_keeps_the_history(failures: list[tuple[Failure, int]]):
    history: tuple[ShapeHistory, ...] = ()
    at_s = 0
    for number, (failure, later_s) in enumerate(failures):
        at_s += later_s
        id_ = request_id(POOL, str(number), "large")
        history = seen(history, failed(failure, id_), at_s=at_s)
        restarted = history_from(shape_statuses(history))
        assert [(item.shape, item.failures, item.excluded_at) for item in restarted] == [
            (item.shape, item.failures, item.excluded_at) for item in history
        ]
        for item, again in zip(history, restarted, strict=True):
            assert (item.retry_after is None) is (again.retry_after is None)
            if item.retry_after is not None:
                assert item.retry_after - after(at_s) <= 33 * MINUTES


def test_nodes_with_fewer_devices_than_promised_leave_the_shape_out_and_say_what_came():
    short = failed(Failure.FEWER_DEVICES, id_=IDS[0], message="node n1 brings 1 of 8")
    history = seen((), short, at_s=0)
    assert (history[0].failures, history[0].without_devices) == (1, 1)
    assert history[0].message == "node n1 brings 1 of 8"
    assert history_from(shape_statuses(history))[0].message == "node n1 brings 1 of 8"
    history = seen(history, failed(Failure.FEWER_DEVICES, id_=IDS[1]), at_s=600)
    assert history[0].excluded_at == 1


def test_the_hand_over_of_a_node_with_fewer_devices_is_no_success():
    short = failed(Failure.FEWER_DEVICES)
    history = seen((), short, at_s=0)
    node = a_requested_node(units=1, has_startup_taint=False)
    for at_s, recorded in ((5, short), (10, None)):
        handed_over = ObservedRequest(
            id=ID,
            pool=POOL.name,
            shape=SHAPES[0],
            phase=RequestPhase.RELEASED,
            since=after(at_s),
            node=node,
        )
        assert (
            seen(history, handed_over, at_s=at_s, recorded=[recorded] if recorded else ())
            == history
        )


def test_devices_of_the_last_node_of_a_shape_are_remembered_until_the_spec_changes():
    history = seen((), at_s=0, capabilities={"large": ("8.6",)})
    history = seen(history, failed(), at_s=1)
    kept = history_from(shape_statuses(seen(history, at_s=3 * 3600)))
    assert [(item.shape, item.capabilities, item.failures) for item in kept] == [
        ("large", ("8.6",), 0)
    ]
    changed = dataclasses.replace(the_parameters(), generation=2)
    assert seen(kept, at_s=4 * 3600, parameters=changed) == ()
