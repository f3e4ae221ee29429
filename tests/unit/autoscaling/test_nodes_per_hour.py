"""Nodes of the last hour are counted by NodeClaim, and forgotten by neither its deletion nor a new leader."""

import dataclasses
import datetime as dt

import pytest

from autoscaling.nodes_per_hour import HOUR, counted_from, counted_statuses, nodes_of_last_hour
from autoscaling.scaling_model import RequestPhase, WaitReason
from tests.support.scale_requests import (
    ID,
    RequestHistory,
    a_claim,
    a_signal,
    after,
    the_parameters,
)
from tests.support.scaling_plans import NOW, a_waiting_pod, launched, planned, some_parameters


def counted(before, at_s: float, *claims, observed=(), **parameters):
    return nodes_of_last_hour(
        before, the_parameters(**parameters), observed, claims=claims, now=after(at_s)
    )


def test_a_claim_counts_for_an_hour_though_it_is_deleted_and_the_leader_is_new():
    found = counted({}, 10, a_claim(1), a_claim(2))
    assert list(found) == ["claim-1", "claim-2"]
    restored = counted_from(counted_statuses(found))
    assert counted(restored, 3600) == found
    assert list(counted(restored, 3601)) == ["claim-2"]


def test_claims_of_other_pools_do_not_count():
    assert counted({}, 10, a_claim(1, request=None), a_claim(2, request="other-0123456789")) == {}


def test_a_request_without_a_claim_counts_once_its_node_is_there():
    signalled = RequestHistory().one(1, signals=[a_signal()])
    assert counted({}, 1, observed=[signalled]) == {}
    registered = dataclasses.replace(signalled, phase=RequestPhase.REGISTERED, since=after(5))
    assert counted({}, 10, observed=[registered]) == {ID: after(5)}


def test_a_clock_that_was_ahead_prolongs_nothing():
    ahead = {"claim-1": after(86_400)}
    assert counted(ahead, 10) == {"claim-1": after(10)}


def test_no_more_than_the_limit_are_kept():
    claims = [a_claim(number) for number in range(9)]
    found = counted({}, 100, *claims, max_nodes_per_hour=4)
    assert list(found) == [f"claim-{number}" for number in range(5, 9)]
    assert counted(found, 105, *claims, max_nodes_per_hour=4) == found


def bought(number: int) -> dict[str, dt.datetime]:
    return {f"claim-{item}": NOW - dt.timedelta(minutes=30) for item in range(number)}


def test_no_node_is_asked_for_beyond_those_of_an_hour():
    parameters = some_parameters(max_nodes_per_hour=3)
    pods = [a_waiting_pod(f"p{number}", 8) for number in range(4)]
    plan = planned(parameters, pods, nodes_of_last_hour=bought(1))
    assert len(plan.requests) == 2
    waits = {wait.reason for wait in plan.waits.values()}
    assert waits == {WaitReason.MAX_NODES_PER_HOUR}
    (message,) = {wait.message for wait in plan.waits.values()}
    assert "maxNodesPerHour" in message
    assert f"{NOW + HOUR / 2:%H:%M:%S}" in message


@pytest.mark.parametrize("is_counted", [True, False])
def test_a_request_on_its_way_counts_once(is_counted):
    parameters = some_parameters(max_nodes_per_hour=2)
    (request,) = planned(parameters, [a_waiting_pod("p0", 8)]).requests
    on_its_way = launched(request)
    claim = on_its_way.claim
    assert claim is not None
    supply = {claim.uid: NOW} if is_counted else {}
    plan = planned(
        parameters,
        [a_waiting_pod("p0", 8), a_waiting_pod("p1", 8)],
        in_flight=(on_its_way,),
        nodes_of_last_hour=supply,
    )
    assert len(plan.requests) == 1
