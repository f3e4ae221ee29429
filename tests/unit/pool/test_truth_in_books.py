"""The books follow what nodes report: in any order, for their own pods only, and holds lose cleanly."""

from typing import TYPE_CHECKING, Any

import pytest

from api.kinds.gpunodeinventory import ContainerDevices
from api.names import NodeName, PodUid, PoolName, UnitId
from pool.model import PodPhase
from pool.placement.planner import Placed
from pool.pods.reported import AllocationMismatch
from pool.reservations.reservation import End
from tests.support.books import (
    N1,
    N2,
    a_bound_pod,
    a_held_pod,
    an_applicant,
    cards,
    commit_to,
    pool_of,
    some_books,
    uid_of,
)
from tests.support.builders import a_device, a_pool, at

if TYPE_CHECKING:
    from pool.allocation_state import AllocationState
    from pool.model import PodFacts

WHOLE = PoolName("whole")
X, Y, Z = "GPU-n1-0", "GPU-n1-1", "GPU-n1-2"


def say(books: "AllocationState", node: NodeName = N1, **units: str) -> "list[PodFacts]":
    """The node reports each pod's units, and nothing of others."""
    reports = {
        uid_of(name): (
            ContainerDevices(
                namespace="default",
                pod=name,
                container="c0",
                resource="gpu.deckhouse.io/whole",
                units=some.split(),
                uid=uid_of(name),
            ),
        )
        for name, some in units.items()
    }
    return books.observe_reports(node, reports)


def used(books: "AllocationState") -> set[str]:
    return {entry.facts.uuid for entry in books.index.devices() if entry.observed}


def test_what_was_not_given_is_free_and_what_was_given_is_used() -> None:
    books = some_books(devices=cards(3))
    pod = a_bound_pod("p", X)
    books.observe_pod(pod, at(0))
    assert say(books, p=Y) == [pod]
    assert used(books) == {Y}
    capacity = books.index.state(WHOLE).capacity()
    assert (capacity.used, capacity.available) == (1, 2)


def test_a_report_that_came_before_the_binding_counts_when_that_is_seen() -> None:
    books = some_books(devices=cards(2))
    pod = a_held_pod(books)
    assert (say(books, p=Y), used(books)) == ([], set())
    ended = books.observe_pod(a_bound_pod("p", X, uid=pod.uid), at(1))
    assert [one.end for one in ended] == [End.BOUND]
    assert used(books) == {Y}


@pytest.mark.parametrize("is_deleted", [False, True], ids=["there", "deleted"])
def test_a_report_that_outlives_a_pod_that_ended_holds_nothing(*, is_deleted: bool) -> None:
    books = some_books(devices=cards(2))
    books.observe_pod(a_bound_pod("p", X), at(0))
    say(books, p=Y)
    books.observe_pod(a_bound_pod("p", X, phase=PodPhase.ENDED), at(1))
    if is_deleted:
        books.discard_pod(uid_of("p"))
    assert used(books) == set()
    assert (say(books, p=Z), used(books)) == ([], set())


def test_a_report_taken_back_leaves_the_promise() -> None:
    books = some_books(devices=cards(2))
    books.observe_pod(a_bound_pod("p", X), at(0))
    say(books, p=Y)
    say(books)
    assert used(books) == {X}
    assert len(books._reports) == 0


def test_the_same_report_changes_nothing() -> None:
    books = some_books(devices=cards(2))
    books.observe_pod(a_bound_pod("p", X), at(0))
    say(books, p=Y)
    generation = books.index.generation
    assert say(books, p=Y) == []
    assert books.index.generation == generation


def test_a_node_speaks_of_its_own_pods_only() -> None:
    books = some_books(devices=[*cards(2), *cards(1, "n2")])
    pod = a_bound_pod("p", X)
    books.observe_pod(pod, at(0))
    assert say(books, N2, p="GPU-n2-0") == [pod]
    assert used(books) == {X}


def test_a_node_speaks_of_its_own_cards_only() -> None:
    books = some_books(devices=[*cards(2), *cards(1, "n2")])
    books.observe_pod(a_bound_pod("p", X), at(0))
    say(books, p="GPU-n2-0")
    assert used(books) == {X}


def test_a_report_of_a_card_counts_from_when_the_card_is_there() -> None:
    books = some_books(devices=cards(1))
    books.observe_pod(a_bound_pod("p", X), at(0))
    say(books, p=Y)
    assert used(books) == {X}
    books.index.replace_device(a_device(index=1))
    assert used(books) == {Y}
    books.index.replace_device(a_device("n2", 1, uuid=Y, name="n1-1"))
    assert used(books) == {X}
    books.index.replace_device(a_device(index=1))
    books.index.discard_device(a_device(index=1).name)
    assert used(books) == {X}


def test_a_fault_of_a_card_is_no_reason_to_look_at_reports() -> None:
    """40,000 devices change their health and units; only what is where matters here."""
    told: list[Any] = []
    books = some_books(devices=cards(1))
    books.index._on_cards = told.append
    books.index.replace_device(a_device(is_faulted=True))
    books.index.replace_device(a_device(pool=None))
    assert told == []
    books.index.replace_device(a_device(uuid=Z))
    assert told == [{N1}]


def test_a_hold_on_a_unit_that_was_given_to_another_is_planned_anew() -> None:
    books = some_books(devices=cards(2))
    held = a_held_pod(books, "held")
    mine = books.ledger.of_pod(held.uid)
    assert mine is not None
    (unit,) = mine.units
    other = ({X, Y} - {unit}).pop()
    books.observe_pod(a_bound_pod("p", other), at(0))
    say(books, p=unit)
    capacity = books.index.state(WHOLE).capacity()
    assert (capacity.used, capacity.reserved, capacity.available) == (1, 0, 1)
    plan = books.plan_bind(N1, pool_of(books), held.demand, uid=held.uid)
    assert isinstance(plan, Placed)
    assert plan.devices == {"c0": (UnitId(other),)}
    books.commit(an_applicant(books, held.demand, id_="b"), plan, uid=held.uid, now=at(1))
    assert books.index.held_twice() == {}


def test_a_hold_that_lost_its_unit_and_finds_no_other_waits() -> None:
    books = some_books(devices=cards(1))
    held = a_held_pod(books, "held")
    books.observe_pod(a_bound_pod("p", "GPU-elsewhere"), at(0))
    say(books, p=X)
    assert not isinstance(books.plan_bind(N1, pool_of(books), held.demand, uid=held.uid), Placed)
    say(books)
    assert isinstance(books.plan_bind(N1, pool_of(books), held.demand, uid=held.uid), Placed)


def test_a_binding_in_doubt_whose_unit_was_given_to_another_is_not_sent_again() -> None:
    books = some_books(devices=cards(2))
    pod = a_held_pod(books, "doubtful")
    (unit,) = commit_to(books, pod).units
    books.doubt(pod.uid, at(1))
    books.observe_pod(a_bound_pod("p", ({X, Y} - {unit}).pop()), at(1))
    say(books, p=unit)
    assert books.retry(pod.uid) is None
    assert books.release(pod.uid) is not None


def test_a_pod_that_nobody_knew_the_units_of_no_longer_closes_its_node() -> None:
    books = some_books(devices=cards(2))
    books.observe_pod(a_bound_pod(), at(0))
    assert books.index.state(WHOLE).capacity().available == 0
    say(books, b=Y)
    assert (used(books), books.index.state(WHOLE).capacity().available) == ({Y}, 1)


class Told(list[AllocationMismatch]):
    def __init__(self) -> None:
        super().__init__()
        self.books = some_books(devices=cards(3))
        self.books._discrepancies._on_found = self.append


def test_a_pod_that_was_given_something_else_is_told_of_once() -> None:
    told = Told()
    pod = a_bound_pod("p", X)
    told.books.observe_pod(pod, at(0))
    for units in (X, Y, Z, X, Y):
        say(told.books, p=units)
        told.books.observe_pod(pod, at(1))
    assert told == [AllocationMismatch(pod, WHOLE, (UnitId(Y),), ())]


def test_units_from_nowhere_are_told_of_once_and_apart() -> None:
    told = Told()
    pod = a_bound_pod("p", X)
    told.books.observe_pod(pod, at(0))
    for units in ("GPU-9", "GPU-8", "GPU-9 GPU-n1-1"):
        say(told.books, p=units)
    assert [(one.unpromised, one.foreign) for one in told] == [((), ("GPU-9",)), ((Y,), ())]


def test_another_pod_of_that_name_is_told_of_again_and_nothing_is_kept_of_the_first() -> None:
    told = Told()
    for number in range(2):
        uid = PodUid(f"uid-{number}")
        told.books.observe_pod(a_bound_pod("p", X, uid=uid), at(0))
        entry = ContainerDevices(
            namespace="default",
            pod="p",
            container="c0",
            resource=a_pool().resource,
            units=[Y],
            uid=uid,
        )
        told.books.observe_reports(N1, {uid: (entry,)})
        told.books.discard_pod(uid)
    assert [one.pod.uid for one in told] == ["uid-0", "uid-1"]
    assert len(told.books._discrepancies) == 0


def test_a_pod_that_is_shown_on_another_node_counts_there() -> None:
    """No API server moves a pod; what was shown last holds all the same."""
    books = some_books(devices=[*cards(1), *cards(1, "n2")])
    for node in ("n1", "n2"):
        books.observe_pod(a_bound_pod(node=node), at(0))
    available = {name: one.available for name, one in books.index.state(WHOLE).nodes().items()}
    assert available == {"n1": 1, "n2": 0}
