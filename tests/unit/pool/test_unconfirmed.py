"""A reservation whose pod nobody has seen never stands in the way of a pod that exists."""

import itertools
from typing import Any

import pytest
from msgspec.structs import replace

from api.kinds.gpupool import Strategy
from api.names import NodeName, PoolName, ReservationId
from pool.admission_planner import Exhausted
from pool.admission_rules import Deferral
from pool.allocation_state import AllocationState
from pool.model import Capacity, PodFacts
from pool.placement.planner import Placed
from pool.reservations.reservation import End, Ended, ReservationPhase
from tests.support.allocation_state import (
    N1,
    a_bound_pod,
    a_placement_request,
    a_reserved_pod,
    commit_to,
    note_of,
    plan_reservation,
    pool_of,
    reserve,
    some_allocation_state,
    some_devices,
    uid_of,
)
from tests.support.builders import a_demand, a_pod_facts, a_pool, a_slice_pool, at

WHOLE = PoolName("whole")


def capacity(allocation_state: AllocationState, pool: str = "whole") -> Capacity:
    return allocation_state.index.state(PoolName(pool)).capacity()


def deferral_of(allocation_state: AllocationState, units: int = 1, **about: Any) -> Deferral | None:
    plan = plan_reservation(allocation_state, a_demand(units), **about)
    assert isinstance(plan, Exhausted)
    return plan.deferral


def bind_plan(allocation_state: AllocationState, pod: PodFacts) -> Any:
    return allocation_state.reader.plan_bind(N1, pool_of(allocation_state), pod.demand, uid=pod.uid)


def test_units_reserved_for_a_pod_that_nobody_has_seen_are_available_and_not_reserved() -> None:
    allocation_state = some_allocation_state(devices=some_devices(3))
    reserved = reserve(allocation_state, a_demand(2))
    assert capacity(allocation_state) == Capacity(total=3, available=3)
    allocation_state.observe_pod(a_pod_facts("p", 2, reservation=note_of(reserved)), at(1))
    assert capacity(allocation_state) == Capacity(total=3, reserved=2, available=1)


def test_a_full_node_fits_a_pod_that_exists_and_is_its_last_choice() -> None:
    allocation_state = some_allocation_state(devices=[*some_devices(1), *some_devices(1, "n2")])
    assert reserve(allocation_state, a_demand(1)).node == "n1"
    view = allocation_state.index.view(WHOLE, a_demand(1))
    assert view.refusals == {"n1": None, "n2": None}
    assert view.scores == {"n1": 0, "n2": 9}


def test_a_pod_that_exists_takes_the_units_over() -> None:
    ended: list[Ended] = []
    allocation_state = some_allocation_state(devices=some_devices(1), on_end=ended.append)
    reserve(allocation_state, a_demand(1), id_="forged")
    pod = a_pod_facts("honest")
    allocation_state.observe_pod(pod, at(1))

    reservation = commit_to(allocation_state, pod)

    assert reservation.units == ("GPU-n1-0",)
    assert [(item.reservation.id, item.end) for item in ended] == [("forged", End.TAKEN_OVER)]
    assert capacity(allocation_state) == Capacity(total=1, reserved=1)


def test_free_units_are_taken_before_those_of_a_reservation() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    reserve(allocation_state, a_demand(1), id_="first")
    pod = a_pod_facts("q")
    allocation_state.observe_pod(pod, at(1))
    assert commit_to(allocation_state, pod).units == ("GPU-n1-1",)
    assert allocation_state.ledger.get(ReservationId("first")) is not None


def test_as_few_reservations_as_will_do_are_ended_the_longest_unseen_first() -> None:
    allocation_state = some_allocation_state(devices=some_devices(4))
    for number, seconds in enumerate((2, 1, 3)):
        reserve(allocation_state, a_demand(1), id_=f"r{number}", seconds=seconds)
    pod = a_pod_facts("q", 2)
    allocation_state.observe_pod(pod, at(4))
    assert sorted(commit_to(allocation_state, pod).units) == ["GPU-n1-1", "GPU-n1-3"]
    assert {item.id for item in allocation_state.ledger.all() if item.phase.is_uncommitted} == {
        "r0",
        "r2",
    }


def test_a_pod_that_lost_its_units_before_it_was_seen_waits_like_any_other() -> None:
    """The race: it is stored, and the watch has not delivered it yet."""
    allocation_state = some_allocation_state(devices=some_devices(1))
    reserved = reserve(allocation_state, a_demand(1), id_="r")
    late = a_pod_facts("late", reservation=note_of(reserved))
    assert allocation_state.tie(reserved.id, late.uid, name="late", now=at(0))
    other = a_pod_facts("other")
    allocation_state.observe_pod(other, at(1))
    commit_to(allocation_state, other)

    allocation_state.observe_pod(late, at(1))

    assert allocation_state.ledger.of_pod(late.uid) is None
    assert [pod.name for pod in allocation_state.reader.pods.waiting(late.demand.resource)] == [
        "late"
    ]


def test_a_pod_that_was_seen_keeps_its_units() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    a_reserved_pod(allocation_state, "seen")
    other = a_pod_facts("other")
    allocation_state.observe_pod(other, at(1))
    assert not isinstance(bind_plan(allocation_state, other), Placed)
    assert allocation_state.index.view(WHOLE, a_demand(1)).scores == {}


def test_the_pods_own_units_are_bound_before_the_watch_shows_it() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    reserved = reserve(allocation_state, a_demand(2), id_="r")
    pod = a_pod_facts("p", 2)
    allocation_state.tie(reserved.id, pod.uid, name="p", now=at(0))
    reservation = commit_to(allocation_state, pod)
    assert (reservation.id, reservation.devices) == ("r", reserved.devices)


def test_a_reservation_is_restored_over_one_that_nobody_has_seen() -> None:
    """After a restart the watch shows a pending pod whose units were held for an incoming pod meanwhile."""
    before = some_allocation_state(devices=some_devices(1))
    note = note_of(reserve(before, a_demand(1), id_="old"))
    allocation_state = some_allocation_state(devices=some_devices(1))
    reserve(allocation_state, a_demand(1), id_="new")
    allocation_state.observe_pod(a_pod_facts("p", reservation=note), at(1))
    restored = allocation_state.ledger.of_pod(uid_of("p"))
    assert restored is not None
    assert (restored.id, restored.phase) == ("old", ReservationPhase.CONFIRMED)
    assert allocation_state.ledger.get(ReservationId("new")) is None


def test_a_binding_in_doubt_is_sent_again_over_a_reservation_that_nobody_has_seen() -> None:
    allocation_state = some_allocation_state(
        a_slice_pool(slices=2), devices=some_devices(1, pool="slices")
    )
    pod = a_pod_facts("p", pool="slices")
    allocation_state.observe_pod(pod, at(0))
    commit_to(allocation_state, pod)
    allocation_state.mark_doubtful(pod.uid, at(0))
    reserve(allocation_state, a_demand(1, pool="slices"), id_="new")
    allocation_state.index.replace_pool(a_pool("slices"))  # both have all of the device now
    assert allocation_state.retry(pod.uid) is not None


def test_preemption_counts_what_nobody_has_seen_as_room() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    allocation_state.observe_pod(a_bound_pod("b", "GPU-n1-0"), at(0))
    reserve(allocation_state, a_demand(1))
    asked = pool_of(allocation_state), a_demand(2)
    assert not allocation_state.reader.fits_without([], N1, asked)
    assert allocation_state.reader.fits_without([uid_of("b")], N1, asked)


def test_a_incoming_pod_does_not_reserve_what_is_reserved_for_another() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    reserve(allocation_state, a_demand(1))
    assert deferral_of(allocation_state) is Deferral.UNCONFIRMED
    a_reserved_pod(full := some_allocation_state(devices=some_devices(1)))
    assert deferral_of(full) is None


def test_a_pool_of_which_units_are_unconfirmed_elsewhere_is_exhausted_for_a_pod_that_may_not_go_there() -> (
    None
):
    allocation_state = some_allocation_state(devices=some_devices(1))
    reserve(allocation_state, a_demand(1))
    allocation_state.index.discard_node(NodeName("n1"))
    assert deferral_of(allocation_state) is None


class TestOneNamespacesShare:
    def test_it_is_half_of_the_pool(self) -> None:
        allocation_state = some_allocation_state(devices=some_devices(4))
        for number in range(2):
            reserve(allocation_state, a_demand(1), id_=f"r{number}")
        assert deferral_of(allocation_state, namespace="default") is Deferral.SHARE
        assert isinstance(
            plan_reservation(allocation_state, a_demand(1), namespace="other"), Placed
        )

    def test_one_pod_may_reserve_more(self) -> None:
        allocation_state = some_allocation_state(devices=some_devices(4))
        assert isinstance(
            plan_reservation(allocation_state, a_demand(4), namespace="default"), Placed
        )

    def test_it_is_given_back_as_pods_are_seen(self) -> None:
        allocation_state = some_allocation_state(devices=some_devices(4))
        for name in ("a", "b"):
            a_reserved_pod(allocation_state, name)
        assert isinstance(
            plan_reservation(allocation_state, a_demand(1), namespace="default"), Placed
        )


def is_backing_off(allocation_state: AllocationState, now: float) -> bool:
    plan = plan_reservation(allocation_state, a_demand(1), namespace="default", now=now)
    return isinstance(plan, Exhausted) and plan.deferral is Deferral.BACKOFF


class TestBackoff:
    @staticmethod
    def absent(allocation_state, count: int, second: float) -> float:
        """That many pods are admitted, one after the other, and never appear."""
        for number in range(count):
            reserve(allocation_state, a_demand(1), id_=f"{second}-{number}", seconds=second)
            second += 5
            allocation_state.expire(at(second))
        return second

    @staticmethod
    def first_hold_after(allocation_state, second: float) -> float:
        newcomer_at = (second + step / 2 for step in itertools.count())
        return next(
            when - second for when in newcomer_at if not is_backing_off(allocation_state, when)
        )

    @pytest.mark.parametrize(
        ("absences", "seconds"), [(0, 0), (1, 1), (2, 2), (3, 4), (7, 60), (20, 60)]
    )
    def test_it_doubles_with_each_pod_that_does_not_appear(self, absences, seconds) -> None:
        allocation_state = some_allocation_state(devices=some_devices(2))
        second = self.absent(allocation_state, absences, 0)
        assert self.first_hold_after(allocation_state, second) == seconds

    def test_it_ends_with_the_first_pod_of_the_namespace_that_is_seen(self) -> None:
        allocation_state = some_allocation_state(devices=some_devices(2))
        second = self.absent(allocation_state, 7, 0)
        allocation_state.observe_pod(a_pod_facts("p"), at(second))
        assert self.first_hold_after(allocation_state, second) == 0

    def test_it_is_of_one_namespace(self) -> None:
        allocation_state = some_allocation_state(devices=some_devices(2))
        second = self.absent(allocation_state, 7, 0)
        plan = plan_reservation(allocation_state, a_demand(1), namespace="other", now=second)
        assert isinstance(plan, Placed)

    def test_a_reservation_that_was_taken_over_counts(self) -> None:
        allocation_state = some_allocation_state(devices=some_devices(1))
        reserve(allocation_state, a_demand(1))
        pod = a_pod_facts("q", namespace="other")
        allocation_state.observe_pod(pod, at(0))
        commit_to(allocation_state, pod)
        allocation_state.release(pod.uid)
        assert self.first_hold_after(allocation_state, 0) == 0  # the pod waits first
        allocation_state.discard_pod(pod.uid)
        assert self.first_hold_after(allocation_state, 0) == 1

    def test_many_namespaces_are_remembered_and_not_all(self) -> None:
        allocation_state = some_allocation_state(devices=some_devices(1))
        for number in range(5_000):
            request = a_placement_request(allocation_state, a_demand(1), id_=f"r{number}")
            planned = plan_reservation(allocation_state, a_demand(1))
            assert isinstance(planned, Placed)
            renamed = replace(request, namespace=f"team-{number}")
            allocation_state.reserve(renamed, planned, at(number * 10))
            allocation_state.expire(at(number * 10 + 5))
        assert len(allocation_state._backoff) == 4096


@pytest.mark.parametrize("strategy", Strategy)
def test_scores_rank_a_node_with_free_units_first(strategy: Strategy) -> None:
    allocation_state = some_allocation_state(
        a_pool(strategy=strategy), devices=[*some_devices(2), *some_devices(4, "n2")]
    )
    request = a_placement_request(allocation_state, a_demand(2), id_="r")
    placed = allocation_state.reader.plan_bind(N1, request.pool, request.demand, uid=uid_of("x"))
    assert isinstance(placed, Placed)
    allocation_state.reserve(request, placed, at(0))
    scores = allocation_state.index.view(WHOLE, a_demand(1)).scores
    assert scores[N1] == 0 < scores[NodeName("n2")]
