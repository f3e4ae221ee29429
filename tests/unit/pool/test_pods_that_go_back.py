"""Pods of a store that was restored from a backup: bound ones are pending again under their UIDs."""

import pytest

from pool.model import PodPhase
from tests.support.allocation_state import (
    a_bound_pod,
    commit_to,
    some_allocation_state,
    some_devices,
    uid_of,
)
from tests.support.builders import a_pod_facts, at
from tests.unit.pool.test_reports_in_allocation_state import X, Y, say, used

UID = uid_of("p")


@pytest.mark.parametrize("phase", [PodPhase.BOUND, PodPhase.ENDED])
def test_pod_that_is_pending_again_is_bound_once_more(phase: PodPhase) -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    allocation_state.observe_pod(a_bound_pod("p", X, phase=phase), at(0))
    allocation_state.let_pods_go_back(may=True)
    pod = a_pod_facts("p")
    allocation_state.observe_pod(pod, at(1))
    assert allocation_state.reader.bound_to(UID) is None
    assert used(allocation_state) == set()
    assert allocation_state.reader.pods.waiting_count("gpu.deckhouse.io/whole") == 1
    assert commit_to(allocation_state, pod).uid == UID


def test_older_event_changes_nothing_while_pods_may_not_go_back() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    allocation_state.observe_pod(a_bound_pod("p", X), at(0))
    allocation_state.let_pods_go_back(may=True)
    allocation_state.let_pods_go_back(may=False)
    allocation_state.observe_pod(a_pod_facts("p"), at(1))
    assert allocation_state.reader.bound_to(UID) is not None
    assert used(allocation_state) == {X}


def test_written_binding_of_which_the_store_knows_nothing_is_released() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    pod = a_pod_facts("p")
    allocation_state.observe_pod(pod, at(0))
    commit_to(allocation_state, pod)
    allocation_state.written(UID)
    allocation_state.let_pods_go_back(may=True)
    (ended,) = allocation_state.observe_pod(pod, at(1))
    assert ended.reservation.uid == UID
    assert allocation_state.reader.bound_to(UID) is None


def test_binding_whose_outcome_is_unknown_stays_in_doubt() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    pod = a_pod_facts("p")
    allocation_state.observe_pod(pod, at(0))
    commit_to(allocation_state, pod)
    allocation_state.mark_doubtful(UID, at(0))
    allocation_state.let_pods_go_back(may=True)
    assert allocation_state.observe_pod(pod, at(1)) == []
    assert allocation_state.reader.bound_to(UID) is not None


def test_pending_pod_has_what_its_node_reports_for_it_until_the_node_reports_it_no_more() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    allocation_state.observe_pod(a_bound_pod("p", X), at(0))
    say(allocation_state, p=X)
    allocation_state.let_pods_go_back(may=True)
    pod = a_pod_facts("p")
    allocation_state.observe_pod(pod, at(1))
    allocation_state.let_pods_go_back(may=False)
    allocation_state.observe_pod(pod, at(2))
    assert used(allocation_state) == {X}
    assert commit_to(allocation_state, pod).units == (Y,)
    say(allocation_state)
    assert used(allocation_state) == set()
