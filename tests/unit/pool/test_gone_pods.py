"""Pods whose end is not their node's word: deleted by force, or shown as ended by their user."""

from typing import TYPE_CHECKING

import msgspec
import pytest

from api.foreign.core import Pod
from api.names import DEVICES_ANNOTATION, NodeName
from pool.facts import pod_facts
from pool.model import PodPhase
from tests.support.books import N1, N2, a_bound_pod, cards, some_books, uid_of
from tests.support.builders import a_device, a_pool, at
from tests.unit.pool.test_truth_in_books import X, Y, Z, say, used

if TYPE_CHECKING:
    from pool.pods.reported import AllocationMismatch

UID = uid_of("p")


def test_what_a_pod_that_was_deleted_by_force_had_is_in_use_until_its_node_says_so_no_more() -> (
    None
):
    books = some_books(devices=cards(3))
    books.observe_pod(a_bound_pod("p", X), at(0))
    say(books, p=Y)
    books.discard_pod(UID)
    assert used(books) == {Y}
    assert say(books, p=Z, other=X) == []
    assert used(books) == {Z}
    say(books, other=X)
    assert used(books) == set()
    say(books, p=Z)
    assert used(books) == set()


def test_what_no_node_reports_of_a_pod_that_was_deleted_by_force_is_free() -> None:
    books = some_books(devices=cards(2))
    books.observe_pod(a_bound_pod("p", X), at(0))
    say(books, N2, p=X)
    books.discard_pod(UID)
    assert used(books) == set()


def test_a_pod_that_ended_before_it_was_deleted_leaves_nothing_behind() -> None:
    books = some_books(devices=cards(2))
    books.observe_pod(a_bound_pod("p", X), at(0))
    say(books, p=X)
    books.observe_pod(a_bound_pod("p", X, phase=PodPhase.ENDED), at(1))
    assert used(books) == set()
    books.discard_pod(UID)
    assert used(books) == set()


def test_what_a_gone_pod_has_follows_the_cards_of_its_node() -> None:
    books = some_books(devices=cards(2))
    books.observe_pod(a_bound_pod("p", X), at(0))
    say(books, p=X)
    books.discard_pod(UID)
    books.index.replace_device(a_device("n2", 0, uuid=X, name="n1-0"))
    assert used(books) == set()
    books.index.replace_device(a_device())
    assert used(books) == {X}


def test_a_node_that_is_gone_with_its_inventory_holds_nothing_for_gone_pods() -> None:
    books = some_books(devices=cards(1))
    books.observe_pod(a_bound_pod("p", X), at(0))
    say(books, p=X)
    books.discard_pod(UID)
    books.observe_reports(N1, {})
    assert (used(books), len(books._left)) == (set(), 0)


def test_a_pod_that_the_watch_shows_again_has_what_it_had() -> None:
    books = some_books(devices=cards(2))
    pod = a_bound_pod("p", X)
    books.observe_pod(pod, at(0))
    say(books, p=X)
    books.discard_pod(UID)
    books.observe_pod(pod, at(1))
    say(books)
    assert (used(books), len(books._left)) == ({X}, 0)


def test_a_gone_pod_and_one_that_was_given_its_units_are_told_of() -> None:
    books = some_books(devices=cards(1))
    books.observe_pod(a_bound_pod("p", X), at(0))
    say(books, p=X)
    books.discard_pod(UID)
    books.observe_pod(a_bound_pod("q", X), at(1))
    assert books.shared_units() == {}
    say(books, p=X, q=X)
    assert books.shared_units() == {X: {UID, uid_of("q")}}
    gone = books.holder(UID)
    assert gone is not None
    assert gone.ref == "default/p"


def shown(phase: str, *, runs: bool | None) -> Pod:
    """A pod with X as the API server shows it; `runs` is None where no container has a status."""
    states = {True: {"running": {}}, False: {"terminated": {"exitCode": 0}}}
    statuses = [] if runs is None else [{"name": "c0", "state": states[runs]}]
    body = {
        "metadata": {
            "name": "p",
            "namespace": "default",
            "uid": UID,
            "annotations": {DEVICES_ANNOTATION: msgspec.json.encode({"c0": [X]}).decode()},
        },
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "c0", "resources": {"limits": {a_pool().resource: "1"}}}],
        },
        "status": {"phase": phase, "containerStatuses": statuses},
    }
    return msgspec.convert(body, Pod)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@pytest.mark.parametrize("runs", [True, False, None])
def test_a_phase_is_believed_where_no_container_is_shown_running(
    phase: str, *, runs: bool | None
) -> None:
    books = some_books(devices=cards(1))
    for pod in (shown("Running", runs=True), shown(phase, runs=runs)):
        facts = pod_facts(pod)
        assert facts is not None
        books.observe_pod(facts, at(0))
    assert used(books) == ({X} if runs else set())


def test_an_init_container_that_runs_contradicts_the_phase() -> None:
    pod = shown("Failed", runs=None)
    status = msgspec.convert(
        {"phase": "Failed", "initContainerStatuses": [{"state": {"running": {}}}]},
        type(pod.status),
    )
    facts = pod_facts(msgspec.structs.replace(pod, status=status))
    assert facts is not None
    assert facts.phase is PodPhase.BOUND


def test_a_pod_whose_node_takes_its_user_s_end_back_counts_again_and_two_are_told_of() -> None:
    books = some_books(devices=cards(1))
    told: list[AllocationMismatch] = []
    books._discrepancies._on_found = told.append
    books.observe_pod(a_bound_pod("p", X), at(0))
    books.observe_pod(a_bound_pod("p", X, phase=PodPhase.ENDED), at(1))
    books.observe_pod(a_bound_pod("q", X), at(2))
    books.observe_pod(a_bound_pod("p", X), at(3))
    assert used(books) == {X}
    assert books.shared_units() == {X: {UID, uid_of("q")}}
    books.observe_pod(a_bound_pod("q", X, phase=PodPhase.ENDED), at(4))
    assert used(books) == {X}
    assert told == []


def test_a_gone_pod_that_was_bound_around_us_has_what_is_reported() -> None:
    books = some_books(devices=cards(2))
    books.observe_pod(a_bound_pod("p"), at(0))
    say(books, p=Y)
    books.discard_pod(UID)
    assert used(books) == {Y}
    assert books.index.unaccounted_pods(a_pool().resource, NodeName("n1")) == {}
