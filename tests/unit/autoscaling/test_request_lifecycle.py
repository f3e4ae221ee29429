"""Phases of requests for nodes, their deadlines, and what makes them fail."""

import dataclasses
import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.kinds.autoscaling import ScaleRequestStatus
from autoscaling.request_lifecycle import foreign_claims
from autoscaling.request_state import LAUNCHED_WITHIN, REGISTERED_WITHIN
from autoscaling.scaling_model import DEVICES_WITHIN, ConditionFacts, Failure, RequestPhase
from tests.support.scale_requests import (
    ID,
    OTHER_ID,
    RequestHistory,
    a_claim,
    a_requested_node,
    a_signal,
    after,
    the_parameters,
    true_since,
)

LAUNCHED = a_claim(launched=true_since(5))
REGISTERED = a_claim(launched=true_since(5), registered=true_since(60), node="n1")


def test_a_request_comes_to_its_node():
    days = RequestHistory()
    assert days.phase(0, signals=[a_signal()]) is RequestPhase.SIGNALLED
    assert days.phase(2, signals=[a_signal()], claims=[a_claim()]) is RequestPhase.LAUNCHED
    assert days.phase(9, signals=[a_signal()], claims=[LAUNCHED]) is RequestPhase.LAUNCHED
    node = a_requested_node()
    found = days.one(61, signals=[a_signal()], claims=[REGISTERED], nodes=[node])
    assert (found.phase, found.since) == (RequestPhase.REGISTERED, after(60))
    ready = a_requested_node(units=8)
    found = days.one(90, signals=[a_signal()], claims=[REGISTERED], nodes=[ready])
    assert (found.phase, found.since) == (RequestPhase.AGENT_READY, after(90))
    assert found.is_in_flight
    found = days.one(95, claims=[REGISTERED], nodes=[ready])
    assert (found.phase, found.since) == (RequestPhase.AGENT_READY, after(90))
    held = a_requested_node(units=8, reserved_units=2)
    found = days.one(96, claims=[REGISTERED], nodes=[held])
    assert (found.phase, found.since) == (RequestPhase.RESERVED, after(96))
    assert found.is_in_flight
    untainted = a_requested_node(units=8, has_startup_taint=False)
    assert days.observe(97, claims=[REGISTERED], nodes=[untainted]) == ()


def test_kubelet_has_to_know_the_units_too():
    found = RequestHistory().one(
        70,
        signals=[a_signal()],
        claims=[REGISTERED],
        nodes=[a_requested_node(units=8, allocatable_units=0)],
    )
    assert found.phase is RequestPhase.REGISTERED
    assert found.message == "kubelet of node n1 allocates 0 of 8 units of gpu.deckhouse.io/whole"


def test_a_signal_that_is_left_after_the_handover_is_told():
    node = a_requested_node(units=8, has_startup_taint=False)
    found = RequestHistory().one(70, signals=[a_signal()], claims=[REGISTERED], nodes=[node])
    assert (found.phase, found.is_in_flight) == (RequestPhase.RELEASED, False)


# --- deadlines ---


def test_weak_point_2_a_signal_without_answer_ends_though_it_is_never_bound():
    """`activeDeadlineSeconds` does not count for a pod that kubelet never saw."""
    days = RequestHistory()
    found = days.one(59, signals=[a_signal()])
    assert (found.phase, found.deadline) == (RequestPhase.SIGNALLED, after(60))
    found = days.one(60, signals=[a_signal()])
    assert (found.phase, found.failure) == (RequestPhase.FAILED, Failure.NOT_SIGNALLED)
    assert "NodePool whole allows one more node" in found.message
    again = days.one(63, signals=[a_signal()])
    assert (again.since, again.failure, again.message) == (
        found.since,
        found.failure,
        found.message,
    )
    assert days.phase(240, signals=[a_signal(230)]) is RequestPhase.SIGNALLED


def test_weak_point_3_a_node_that_takes_longer_than_ten_minutes_is_awaited():
    """Karpenter's own limits are 5 and 15 minutes, and drivers come on top."""
    days = RequestHistory()
    signals = [a_signal()]
    assert days.phase(5 * 60, signals=signals, claims=[a_claim()]) is RequestPhase.LAUNCHED
    late = a_claim(launched=true_since(300))
    found = days.one(19 * 60, signals=signals, claims=[late])
    assert (found.phase, found.deadline) == (RequestPhase.LAUNCHED, after(300 + 16 * 60))
    come = dataclasses.replace(late, registered=true_since(1200), node="n1")
    found = days.one(34 * 60, signals=signals, claims=[come], nodes=[a_requested_node(1200)])
    assert (found.phase, found.deadline) == (RequestPhase.REGISTERED, after(1200 + 15 * 60))
    assert found.is_in_flight


def test_a_node_that_comes_after_its_time_is_adopted():
    days = RequestHistory()
    assert days.one(361, signals=[a_signal()], claims=[a_claim()]).failure is Failure.LAUNCH_TIMEOUT
    found = days.one(400, claims=[LAUNCHED])
    assert (found.phase, found.is_in_flight) == (RequestPhase.LAUNCHED, True)
    assert found.shape is not None
    found = days.one(1000, claims=[LAUNCHED])
    assert found.failure is Failure.REGISTRATION_TIMEOUT
    node = a_requested_node(1010, units=8)
    registered = a_claim(launched=true_since(5), registered=true_since(1010), node="n1")
    assert days.phase(1020, claims=[registered], nodes=[node]) is RequestPhase.AGENT_READY


def test_weak_point_6_a_registered_node_without_devices_is_overdue_after_15_minutes():
    days = RequestHistory()
    objects = {"claims": [REGISTERED], "nodes": [a_requested_node()], "signals": [a_signal()]}
    found = days.one(60 + 14 * 60, **objects)
    assert found.deadline == after(60 + 15 * 60)
    # Who deletes the NodeClaim measures the time by a clock that does not jump.
    assert days.phase(60 + 16 * 60, **objects) is RequestPhase.REGISTERED
    ending = dataclasses.replace(REGISTERED, is_terminating=True)
    found = days.one(60 + 16 * 60, claims=[ending], nodes=[a_requested_node()])
    assert found.failure is Failure.NO_DEVICES
    assert "NodePool whole" in found.message
    assert days.one(60 + 17 * 60, claims=[ending]).failure is Failure.NO_DEVICES
    assert days.observe(60 + 18 * 60, deleted=[ending]) == ()


def test_a_driver_that_is_compiled_on_the_node_has_its_minutes_beside():
    within = DEVICES_WITHIN + dt.timedelta(minutes=20)
    days = RequestHistory(dataclasses.replace(the_parameters(), devices_within=within))
    objects = {"claims": [REGISTERED], "nodes": [a_requested_node()], "signals": [a_signal()]}
    assert days.one(60 + 34 * 60, **objects).deadline == after(60 + 35 * 60)
    ending = dataclasses.replace(REGISTERED, is_terminating=True)
    found = days.one(60 + 36 * 60, claims=[ending], nodes=[a_requested_node()])
    assert found.failure is Failure.NO_DEVICES
    assert "within 35 minutes" in found.message
    assert "spec.autoscaling.driverMinutes" in found.message


def test_a_node_without_devices_names_what_its_inventory_lacks():
    obstacle = "the validator has not completed driver-validation"
    node = a_requested_node(obstacle=obstacle)
    found = RequestHistory().one(100, claims=[REGISTERED], signals=[a_signal()], nodes=[node])
    assert found.message == f"node n1 has no device of pool whole yet: {obstacle}"


def test_a_node_whose_devices_go_again_has_15_minutes_once_more():
    days = RequestHistory()
    objects = {"claims": [REGISTERED], "signals": [a_signal()]}
    assert days.phase(100, **objects, nodes=[a_requested_node(units=8)]) is RequestPhase.AGENT_READY
    found = days.one(2000, **objects, nodes=[a_requested_node()])
    assert (found.phase, found.since) == (RequestPhase.REGISTERED, after(2000))
    assert days.one(2010, **objects, nodes=[a_requested_node()]).since == after(2000)


# --- failures ---

NO_ANSWER = ConditionFacts("Unknown", "AwaitingReconciliation", "", None)


@pytest.mark.parametrize(
    ("condition", "age_s", "expected"),
    [
        pytest.param(NO_ANSWER, 3, Failure.INSUFFICIENT_CAPACITY, id="no cause, young"),
        pytest.param(NO_ANSWER, 300, Failure.LAUNCH_TIMEOUT, id="no cause, five minutes"),
        pytest.param(
            ConditionFacts("Unknown", "InsufficientCapacityError", "none in a", None),
            3,
            Failure.INSUFFICIENT_CAPACITY,
            id="capacity",
        ),
        pytest.param(
            ConditionFacts("False", "NodeClassNotReady", "no image", None),
            3,
            Failure.NODE_CLASS_NOT_READY,
            id="NodeClass",
        ),
        pytest.param(
            ConditionFacts("Unknown", "LaunchFailed", "denied", None),
            3,
            Failure.LAUNCH_FAILED,
            id="launch",
        ),
    ],
)
def test_weak_point_15_a_claim_that_is_deleted_before_its_node_failed_for_a_reason(
    condition: ConditionFacts, age_s: float, expected: Failure
):
    """No phase of a NodeClaim says Failed: it is gone."""
    for kind in ("terminating", "deleted"):
        days = RequestHistory()
        days.one(1, signals=[a_signal()], claims=[a_claim()])
        last = a_claim(launched=condition, is_terminating=True)
        found = days.one(
            1 + age_s,
            signals=[a_signal()],
            **({"claims": [last]} if kind == "terminating" else {"deleted": [last]}),
        )
        assert (found.phase, found.failure, found.is_in_flight) == (
            RequestPhase.FAILED,
            expected,
            False,
        )
        assert last.name in found.message
        assert condition.message in found.message


def test_a_claim_that_was_deleted_unseen_is_a_failure():
    days = RequestHistory()
    days.one(1, signals=[a_signal()], claims=[a_claim()])
    found = days.one(30, signals=[a_signal()])
    assert found.failure is Failure.INSUFFICIENT_CAPACITY
    assert "is assumed" in found.message
    days = RequestHistory()
    days.one(70, claims=[REGISTERED], nodes=[a_requested_node()])
    assert days.one(80).failure is Failure.NODE_LOST


def test_a_failure_is_told_until_its_signal_is_gone():
    days = RequestHistory()
    days.one(1, signals=[a_signal()], claims=[a_claim()])
    first = days.one(3, signals=[a_signal()], deleted=[a_claim()])
    later = days.one(9, signals=[a_signal()])
    assert (later.failure, later.message, later.since) == (
        first.failure,
        first.message,
        first.since,
    )
    assert days.observe(12, deleted=[a_claim()]) == ()


def test_karpenter_that_tries_again_by_itself_is_followed():
    days = RequestHistory()
    days.one(1, signals=[a_signal()], claims=[a_claim()])
    found = days.one(12, signals=[a_signal()], claims=[a_claim(11)], deleted=[a_claim()])
    assert (found.phase, found.claim) == (RequestPhase.LAUNCHED, a_claim(11))


def test_a_node_that_is_interrupted_before_its_devices_is_lost():
    days = RequestHistory()
    days.one(70, claims=[REGISTERED], nodes=[a_requested_node()], signals=[a_signal()])
    leaving = a_requested_node(is_leaving=True)
    found = days.one(80, claims=[REGISTERED], nodes=[leaving], signals=[a_signal()])
    assert found.failure is Failure.NODE_LOST


@pytest.mark.parametrize("change", [{"node": "n7"}, {"is_intact": False}])
def test_a_signal_that_somebody_changes_or_binds_fails(change: dict[str, Any]):
    found = RequestHistory().one(5, signals=[a_signal(**change)])
    assert found.failure is Failure.SIGNAL_TAMPERED
    assert found.message.startswith(f"signal scale-{ID} was ")


def test_a_signal_that_is_deleted_after_the_launch_keeps_the_node_on_its_way():
    days = RequestHistory()
    days.one(2, signals=[a_signal()], claims=[a_claim()])
    found = days.one(4, claims=[LAUNCHED])
    assert (found.phase, found.is_in_flight) == (RequestPhase.LAUNCHED, True)


def test_a_signal_that_is_deleted_before_the_launch_leaves_nothing():
    days = RequestHistory()
    days.one(2, signals=[a_signal()])
    found = days.one(3, signals=[a_signal(is_terminating=True)])
    assert (found.phase, found.is_in_flight) == (RequestPhase.SUPERSEDED, False)
    assert days.observe(4) == ()


# --- claims of others, restarts, ordinary nodes ---


def test_a_claim_with_our_label_that_nobody_asked_for_is_not_adopted():
    found = RequestHistory().one(5, claims=[a_claim()])
    assert (found.shape, found.is_in_flight) == (None, False)
    assert list(foreign_claims([found])) == [a_claim()]


def test_weak_point_17_claims_of_other_pools_and_without_our_label_are_left_out():
    days = RequestHistory()
    assert (
        days.observe(5, claims=[a_claim(request=None), a_claim(request="other-0123456789")]) == ()
    )


def test_weak_point_12_a_restart_finds_a_node_whose_signal_is_gone_and_whose_taint_is_not():
    """The server ended between the steps 3 and 4 of the hand-over."""
    status = ScaleRequestStatus(
        id=ID, shape="large", phase="AgentReady", since="2026-03-01T12:01:30Z"
    )
    days = RequestHistory(recorded=(status,))
    found = days.one(100, claims=[REGISTERED], nodes=[a_requested_node(units=8)])
    assert (found.phase, found.since) == (RequestPhase.AGENT_READY, after(90))
    assert found.shape == the_parameters().shape("large")
    without = RequestHistory().one(100, claims=[REGISTERED], nodes=[a_requested_node(units=8)])
    assert without.phase is RequestPhase.AGENT_READY or not without.is_in_flight


def test_a_node_that_goes_after_its_handover_is_no_failure():
    days = RequestHistory()
    initialized = a_claim(
        launched=true_since(5), registered=true_since(60), initialized=true_since(90), node="n1"
    )
    ordinary = a_requested_node(units=8, has_startup_taint=False)
    ending = dataclasses.replace(initialized, is_terminating=True)
    leaving = a_requested_node(units=8, has_startup_taint=False, is_leaving=True)
    assert days.observe(900, claims=[initialized], nodes=[ordinary]) == ()
    assert days.observe(901, claims=[ending], nodes=[leaving]) == ()
    assert days.observe(902, claims=[ending]) == ()
    assert days.observe(903, deleted=[ending]) == ()


def test_an_older_node_whose_devices_went_is_no_request():
    node = a_requested_node(has_startup_taint=False, is_ready=False)
    initialized = dataclasses.replace(REGISTERED, initialized=true_since(90))
    assert RequestHistory().observe(9000, claims=[initialized], nodes=[node]) == ()


def test_a_node_without_the_startup_taint_is_on_its_way_until_its_devices_come():
    days = RequestHistory()
    days.one(5, signals=[a_signal()], claims=[LAUNCHED])
    node = a_requested_node(has_startup_taint=False)
    found = days.one(70, claims=[REGISTERED], nodes=[node])
    assert (found.phase, found.is_in_flight) == (RequestPhase.REGISTERED, True)


def test_a_shape_that_left_the_spec_is_told():
    days = RequestHistory()
    days.one(0, signals=[a_signal()])
    days.parameters = the_parameters(shapes=())
    found = days.one(1, signals=[a_signal()])
    assert (found.shape, found.is_in_flight) == (None, False)
    assert "shape large is not in spec.autoscaling.shapes any more" in found.message


def test_of_two_claims_the_known_one_counts_and_the_other_is_told():
    days = RequestHistory()
    days.one(5, signals=[a_signal()], claims=[a_claim(3)])
    found = days.one(6, signals=[a_signal()], claims=[a_claim(1), a_claim(3)])
    assert found.claim == a_claim(3)
    assert "1 more NodeClaims have its label" in found.message


def test_weak_point_11_nodes_are_told_apart_by_the_id_of_their_request():
    other = a_signal(name=f"scale-{OTHER_ID}", request=OTHER_ID)
    found = RequestHistory().observe(5, signals=[other, a_signal()], claims=[a_claim()])
    assert {item.id: item.phase for item in found} == {
        ID: RequestPhase.LAUNCHED,
        OTHER_ID: RequestPhase.SIGNALLED,
    }


# --- clocks ---


def test_a_clock_that_was_ahead_makes_nothing_overdue():
    found = RequestHistory().one(0, signals=[a_signal(3600)])
    assert (found.since, found.deadline) == (after(0), after(60))


def test_a_clock_that_is_behind_puts_no_deadline_off():
    """The API server and Karpenter write times that the leader reaches in an hour."""
    days = RequestHistory()
    signal = a_signal(3600)
    assert days.phase(0, signals=[signal]) is RequestPhase.SIGNALLED
    assert days.one(61, signals=[signal]).failure is Failure.NOT_SIGNALLED

    days, claim = RequestHistory(), a_claim(3600)
    found = days.one(0, signals=[a_signal()], claims=[claim])
    assert found.deadline == after(0) + LAUNCHED_WITHIN
    again = days.one(30, signals=[a_signal()], claims=[claim])
    assert (again.since, again.deadline) == (found.since, found.deadline)
    launched = a_claim(3600, launched=true_since(3605))
    whole = LAUNCHED_WITHIN + REGISTERED_WITHIN
    found = days.one(400, signals=[a_signal()], claims=[launched])
    assert found.deadline == after(0) + whole
    found = days.one(int(whole.total_seconds()), signals=[a_signal()], claims=[launched])
    assert found.failure is Failure.REGISTRATION_TIMEOUT


# --- any order ---

_STEPS = ("signal", "claim", "launched", "registered", "ready")


@given(st.data())
def test_a_phase_never_goes_back_whatever_is_seen_first(data: st.DataObject):
    """Informers show a change each in its own time: of each kind of object a later state, never an earlier one."""
    claims = [(), (a_claim(),), (LAUNCHED,), (REGISTERED,)]
    nodes = [(), (a_requested_node(),), (a_requested_node(units=8),)]
    claim = node = 0
    days, last = RequestHistory(), -1
    order = [item.value for item in RequestPhase]
    for at_s in range(1, 9):
        claim = data.draw(st.integers(claim, len(claims) - 1))
        node = data.draw(st.integers(node, len(nodes) - 1))
        found = days.one(at_s + 60, signals=[a_signal(55)], claims=claims[claim], nodes=nodes[node])
        rank = order.index(found.phase.value)
        assert rank >= last
        assert found.is_in_flight
        assert found.since <= after(at_s + 60)
        again = days.one(at_s + 60, signals=[a_signal(55)], claims=claims[claim], nodes=nodes[node])
        assert again == found
        last = rank
