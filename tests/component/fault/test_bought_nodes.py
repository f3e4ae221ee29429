"""The oracle finds a node that was bought for pods that have one, and one beyond the limit of its pool."""

import dataclasses

import pytest

from tests.fault.observations import Claim, Observation, Pod, Pool, observed_object
from tests.fault.rules.bought_nodes import DEMAND_LASTS_S, HOUR_S, BoughtNodes


class PurchaseRun:
    """Feeds the rule observations, a second apart."""

    def __init__(self) -> None:
        self.rule = BoughtNodes()
        self.at = 0.0
        self.observe(Pool(name="a", most_nodes=3))

    def observe(self, subject, *, after: float = 1.0, is_gone: bool = False, is_exact: bool = True):
        self.at += after
        version = round(self.at)
        self.rule.observe(
            Observation(
                at=self.at, version=version, is_gone=is_gone, subject=subject, is_exact=is_exact
            )
        )

    def buy(self, name: str, **how) -> None:
        self.observe(Claim(name=name, pool="a"), **how)

    def bought_too_many(self) -> list[frozenset[str]]:
        return [about for _, about in self.rule.faults()]


def a_pod(name: str, node: str = "") -> Pod:
    return Pod(name=name, uid=f"uid-{name}", pool="a", asked={"c": 1}, node=node)


@pytest.fixture
def run() -> PurchaseRun:
    return PurchaseRun()


def test_a_node_for_each_pod_is_all_right(run):
    for name in "pq":
        run.observe(a_pod(name))
        run.buy(f"claim-{name}")
        run.observe(a_pod(name, node=f"node-{name}"))
    assert run.bought_too_many() == []


def test_second_node_for_one_pod_is_found(run):
    run.observe(a_pod("p"))
    run.buy("first")
    run.buy("second")
    assert run.bought_too_many() == [frozenset({"a", "first", "second"})]


def test_second_node_long_after_the_pod_got_the_first_is_found(run):
    run.observe(a_pod("p"))
    run.buy("first")
    run.observe(a_pod("p", node="n"))
    run.buy("second", after=10 * DEMAND_LASTS_S)
    assert run.bought_too_many() == [frozenset({"a", "first", "second"})]


def test_pods_that_had_a_node_long_before_are_no_demand(run):
    for name in "pq":
        run.observe(a_pod(name))
        run.observe(a_pod(name, node="old"))
    run.observe(a_pod("r"), after=DEMAND_LASTS_S + 5)
    run.buy("first")
    run.buy("second")
    assert len(run.bought_too_many()) == 1


def test_node_that_replaces_one_that_failed_is_all_right(run):
    run.observe(a_pod("p"))
    run.buy("first")
    run.observe(Claim(name="first", pool="a", is_deleted=True))
    run.buy("second")
    assert run.bought_too_many() == []


def test_request_outlasts_its_pod_for_a_while(run):
    run.observe(a_pod("p"))
    run.observe(a_pod("p"), is_gone=True)
    run.buy("first", after=DEMAND_LASTS_S - 1)
    assert run.bought_too_many() == []


def test_pod_that_is_seen_after_its_node_was_bought_counts(run):
    run.buy("first")
    run.observe(a_pod("p"), after=-0.5)
    assert run.bought_too_many() == []


def test_node_that_a_gap_hides_is_not_judged(run):
    run.buy("first", is_exact=False)
    assert run.bought_too_many() == []


@pytest.mark.parametrize("pause_s", [1.0, HOUR_S])
def test_more_nodes_within_an_hour_than_the_pool_allows_are_found(run, pause_s):
    for number in range(4):
        run.observe(a_pod(f"p{number}"))
        run.buy(f"c{number}", after=pause_s / 3)
        run.observe(Claim(name=f"c{number}", pool="a"), is_gone=True)
    assert run.bought_too_many() == ([frozenset({"a", "c3"})] if pause_s < HOUR_S else [])


def test_claims_and_limits_are_read():
    metadata = {"name": "c", "labels": {"karpenter.sh/nodepool": "a"}}
    claim = Claim(name="c", pool="a")
    assert observed_object("nodeclaims", {"metadata": metadata}) == claim
    ending = {"metadata": {**metadata, "deletionTimestamp": "now"}}
    assert observed_object("nodeclaims", ending) == dataclasses.replace(claim, is_deleted=True)
    spec = {"autoscaling": {"maxNodesPerHour": 7}}
    pool = observed_object("gpupools", {"metadata": {"name": "a"}, "spec": spec})
    assert pool == Pool(name="a", most_nodes=7)
