"""The oracle finds a node that was bought for pods that have one, and one beyond the limit of its pool."""

import dataclasses

import pytest

from tests.fault.observations import Claim, Observation, Pod, Pool, thing_of
from tests.fault.rules.bought_nodes import DEMAND_LASTS_S, HOUR_S, BoughtNodes


class Story:
    """Shows the rule what happens, a second apart."""

    def __init__(self) -> None:
        self.rule = BoughtNodes()
        self.at = 0.0
        self.show(Pool(name="a", most_nodes=3))

    def show(self, thing, *, after: float = 1.0, is_gone: bool = False, is_exact: bool = True):
        self.at += after
        version = round(self.at)
        self.rule.see(
            Observation(
                at=self.at, version=version, is_gone=is_gone, thing=thing, is_exact=is_exact
            )
        )

    def buy(self, name: str, **how) -> None:
        self.show(Claim(name=name, pool="a"), **how)

    def bought_too_many(self) -> list[frozenset[str]]:
        return [about for _, about in self.rule.faults()]


def a_pod(name: str, node: str = "") -> Pod:
    return Pod(name=name, uid=f"uid-{name}", pool="a", asked={"c": 1}, node=node)


@pytest.fixture
def story() -> Story:
    return Story()


def test_a_node_for_each_pod_is_all_right(story):
    for name in "pq":
        story.show(a_pod(name))
        story.buy(f"claim-{name}")
        story.show(a_pod(name, node=f"node-{name}"))
    assert story.bought_too_many() == []


def test_second_node_for_one_pod_is_found(story):
    story.show(a_pod("p"))
    story.buy("first")
    story.buy("second")
    assert story.bought_too_many() == [frozenset({"a", "first", "second"})]


def test_second_node_long_after_the_pod_got_the_first_is_found(story):
    story.show(a_pod("p"))
    story.buy("first")
    story.show(a_pod("p", node="n"))
    story.buy("second", after=10 * DEMAND_LASTS_S)
    assert story.bought_too_many() == [frozenset({"a", "first", "second"})]


def test_pods_that_had_a_node_long_before_are_no_demand(story):
    for name in "pq":
        story.show(a_pod(name))
        story.show(a_pod(name, node="old"))
    story.show(a_pod("r"), after=DEMAND_LASTS_S + 5)
    story.buy("first")
    story.buy("second")
    assert len(story.bought_too_many()) == 1


def test_node_that_replaces_one_that_failed_is_all_right(story):
    story.show(a_pod("p"))
    story.buy("first")
    story.show(Claim(name="first", pool="a", is_deleted=True))
    story.buy("second")
    assert story.bought_too_many() == []


def test_request_outlasts_its_pod_for_a_while(story):
    story.show(a_pod("p"))
    story.show(a_pod("p"), is_gone=True)
    story.buy("first", after=DEMAND_LASTS_S - 1)
    assert story.bought_too_many() == []


def test_pod_that_is_seen_after_its_node_was_bought_counts(story):
    story.buy("first")
    story.show(a_pod("p"), after=-0.5)
    assert story.bought_too_many() == []


def test_node_that_a_gap_hides_is_not_judged(story):
    story.buy("first", is_exact=False)
    assert story.bought_too_many() == []


@pytest.mark.parametrize("pause_s", [1.0, HOUR_S])
def test_more_nodes_within_an_hour_than_the_pool_allows_are_found(story, pause_s):
    for number in range(4):
        story.show(a_pod(f"p{number}"))
        story.buy(f"c{number}", after=pause_s / 3)
        story.show(Claim(name=f"c{number}", pool="a"), is_gone=True)
    assert story.bought_too_many() == ([frozenset({"a", "c3"})] if pause_s < HOUR_S else [])


def test_claims_and_limits_are_read():
    metadata = {"name": "c", "labels": {"karpenter.sh/nodepool": "a"}}
    claim = Claim(name="c", pool="a")
    assert thing_of("nodeclaims", {"metadata": metadata}) == claim
    ending = {"metadata": {**metadata, "deletionTimestamp": "now"}}
    assert thing_of("nodeclaims", ending) == dataclasses.replace(claim, is_deleted=True)
    spec = {"autoscaling": {"maxNodesPerHour": 7}}
    pool = thing_of("gpupools", {"metadata": {"name": "a"}, "spec": spec})
    assert pool == Pool(name="a", most_nodes=7)
