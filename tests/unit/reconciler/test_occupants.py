"""Who has units of a pool, in whatever cut they were given."""

from api.kinds.gpupool import AllocationMode
from api.names import NodeName, PoolName
from inventory.pools.maintenance import Usage
from pool.model import PodPhase
from reconciler.pool.usage import usage_of
from tests.support.books import a_bound_pod, a_held_pod, cards, commit_to, some_books, unit_ids
from tests.support.builders import a_pod_facts, a_pool, at

WHOLE = PoolName("whole")


def named(usage: Usage) -> list[tuple[str, int]]:
    return [(pod.ref, pod.units) for pod in usage.pods]


def test_a_pool_without_pods_is_empty():
    usage = usage_of(some_books(devices=cards(2)), WHOLE)
    assert usage.is_empty
    assert (usage.cards, usage.cut_cards) == (2, 2)


def test_bound_pods_have_units_and_holds_and_commitments_are_reserved():
    books = some_books(devices=cards(4))
    books.observe_pod(a_bound_pod("b", "GPU-n1-0", "GPU-n1-1"), at(0))
    a_held_pod(books)
    commit_to(books, a_pod_facts("c"))
    usage = usage_of(books, WHOLE)
    assert named(usage) == [("default/b", 2)]
    assert usage.reserved == 2
    assert not usage.is_empty


def test_a_pod_of_which_nobody_knows_the_devices_is_in_the_way():
    books = some_books(devices=cards(2))
    books.observe_pod(a_bound_pod("stranger"), at(0))
    assert named(usage_of(books, WHOLE)) == [("default/stranger", 1)]


def test_a_pod_that_was_given_a_card_in_another_cut_has_it():
    books = some_books(devices=cards(1))
    books.observe_pod(a_bound_pod("b", "GPU-n1-0"), at(0))
    books.index.replace_pool(a_pool(mode=AllocationMode.MIG, mig_profile="1g.10gb"))
    usage = usage_of(books, WHOLE)
    assert named(usage) == [("default/b", 1)]
    assert (usage.cards, usage.cut_cards) == (1, 0)


def test_ended_pods_and_claims_of_nobody_are_not_in_the_way():
    books = some_books(devices=cards(2))
    books.observe_pod(a_bound_pod("b", "GPU-n1-0"), at(0))
    books.observe_pod(a_bound_pod("b", "GPU-n1-0", phase=PodPhase.ENDED), at(1))
    books.index.set_observed(a_pod_facts("unknown").uid, unit_ids("GPU-n1-1"))
    assert usage_of(books, WHOLE).is_empty


def test_a_pool_whose_object_is_gone_is_asked_about_all_the_same():
    books = some_books(devices=cards(1))
    books.observe_pod(a_bound_pod("b", "GPU-n1-0"), at(0))
    books.index.discard_pool(WHOLE)
    assert NodeName("n1") in books.index.state(WHOLE).devices_by_node
    assert named(usage_of(books, WHOLE)) == [("default/b", 1)]
