"""Objects that Karpenter does nothing about, and those that it does nothing about for another reason."""

import dataclasses
import datetime as dt
from typing import Any

import pytest

from autoscaling.scaling_model import ConditionFacts, NodePoolFacts, RequestPhase
from autoscaling.unserved_objects import (
    BufferFacts,
    UnansweredBuffer,
    unanswered_buffers,
    unserved_node_pools,
)
from tests.support.node_requests import a_node_request, a_shape
from tests.support.scale_requests import a_claim, after
from tests.support.scaling_plans import signalled

POOL = NodePoolFacts(name="static", replicas=2)
ASKED = signalled(a_node_request(shape=a_shape(node_pool="static")), created=after(0), signals=())


def a_buffer(**changes: Any) -> BufferFacts:
    fields: dict[str, Any] = {"name": "b", "created": after(0), "generation": 1}
    return BufferFacts(**{**fields, **changes})


def looked_at(*looks: tuple[float, BufferFacts]) -> dict[str, UnansweredBuffer]:
    found: dict[str, UnansweredBuffer] = {}
    for at_s, buffer in looks:
        found = unanswered_buffers([buffer], found, now=after(at_s))
    return found


def is_overdue(*looks: tuple[float, BufferFacts]) -> bool:
    return any(one.is_overdue(after(looks[-1][0])) for one in looked_at(*looks).values())


@pytest.mark.parametrize(("at_s", "overdue"), [(59, False), (60, True)])
def test_a_buffer_without_conditions_is_overdue_a_minute_after_its_creation(
    at_s: float, overdue: bool
):
    assert is_overdue((at_s, a_buffer())) is overdue


def test_a_change_of_replicas_gives_a_silent_karpenter_no_more_time():
    assert is_overdue((30, a_buffer()), (60, a_buffer(generation=2)))


def test_an_answered_buffer_is_not_waited_for():
    assert looked_at((600, a_buffer(answered=1))) == {}


def test_an_answer_to_an_older_generation_is_waited_for_from_the_first_look():
    stale = a_buffer(generation=2, answered=1)
    assert not is_overdue((600, stale))
    assert not is_overdue((600, stale), (659, stale))
    assert is_overdue((600, stale), (660, stale))
    assert is_overdue((600, stale), (660, dataclasses.replace(stale, generation=3)))


def test_answers_that_lag_behind_many_changes_are_answers():
    looks = [(at, a_buffer(generation=at + 1, answered=at)) for at in range(1, 200, 10)]
    assert not is_overdue(*looks)


def test_a_creation_in_the_future_counts_as_now():
    assert looked_at((0, a_buffer(created=after(30))))["b"].since == after(0)


def unserved(
    *claims: Any, at_s: float = 60, pool: NodePoolFacts = POOL, **changes: Any
) -> tuple[str, ...]:
    request = dataclasses.replace(ASKED, **changes)
    return unserved_node_pools([request], {pool.name: pool}, claims, now=after(at_s))


def static_claim(at_s: float, **changes: Any) -> Any:
    return a_claim(at_s, node_pool="static", request=None, **changes)


def test_a_node_pool_without_a_node_claim_is_unserved_after_a_minute():
    assert unserved() == ("static",)
    assert unserved(at_s=59) == ()
    assert unserved(a_claim(30)) == ("static",)


def test_older_node_claims_are_no_answer():
    assert unserved(static_claim(-600)) == ("static",)


@pytest.mark.parametrize(
    ("claims", "changes"),
    [
        pytest.param([static_claim(1)], {}, id="a NodeClaim came since"),
        pytest.param([], {"phase": RequestPhase.LAUNCHED}, id="the replica has its NodeClaim"),
        pytest.param([], {"shape": None}, id="nothing is asked for any more"),
        pytest.param(
            [static_claim(-600, is_terminating=True)],
            {"pool": dataclasses.replace(POOL, limits={"nodes": 1})},
            id="its limit is reached by a node that is going",
        ),
        pytest.param(
            [],
            {"pool": dataclasses.replace(POOL, ready=ConditionFacts("False", "NodeClassNotFound"))},
            id="it is not Ready",
        ),
        pytest.param([], {"pool": dataclasses.replace(POOL, name="other")}, id="it is gone"),
    ],
)
def test_karpenter_has_another_reason(claims: list[Any], changes: dict[str, Any]):
    assert unserved(*claims, **changes) == ()


def test_the_time_is_that_of_the_oldest_request():
    later = dataclasses.replace(ASKED, since=ASKED.since + dt.timedelta(seconds=50))
    found = unserved_node_pools([later, ASKED], {"static": POOL}, [], now=after(60))
    assert found == ("static",)
