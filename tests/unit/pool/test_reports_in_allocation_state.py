"""The allocation state follows what nodes report: in any order, for their own pods only, and reservations lose cleanly."""

from typing import TYPE_CHECKING, Any

import pytest

from api.kinds.gpunodeinventory import ContainerDevices
from api.names import NodeName, PodUid, PoolName, UnitId
from pool.model import PodPhase
from pool.placement.planner import Placed
from pool.pods.reported import AllocationMismatch
from pool.reservations.reservation import End
from tests.support.allocation_state import (
    N1,
    N2,
    a_bound_pod,
    a_placement_request,
    a_reserved_pod,
    commit_to,
    pool_of,
    some_allocation_state,
    some_devices,
    uid_of,
)
from tests.support.builders import a_device, a_pool, at

if TYPE_CHECKING:
    from pool.allocation_state import AllocationState
    from pool.model import PodFacts

WHOLE = PoolName("whole")
X, Y, Z = "GPU-n1-0", "GPU-n1-1", "GPU-n1-2"


def say(allocation_state: "AllocationState", node: NodeName = N1, **units: str) -> "list[PodFacts]":
    """The node reports each pod's units, and nothing of others."""
    reports = {
        uid_of(name): (
            ContainerDevices(
                namespace="default",
                pod=name,
                container="c0",
                resource="gpu.deckhouse.io/whole",
                units=item.split(),
                uid=uid_of(name),
            ),
        )
        for name, item in units.items()
    }
    return allocation_state.observe_reports(node, reports)


def used(allocation_state: "AllocationState") -> set[str]:
    return {entry.facts.uuid for entry in allocation_state.index.devices.all() if entry.observed}


def test_what_was_not_given_is_free_and_what_was_given_is_used() -> None:
    allocation_state = some_allocation_state(devices=some_devices(3))
    pod = a_bound_pod("p", X)
    allocation_state.observe_pod(pod, at(0))
    assert say(allocation_state, p=Y) == [pod]
    assert used(allocation_state) == {Y}
    capacity = allocation_state.index.state(WHOLE).capacity()
    assert (capacity.used, capacity.available) == (1, 2)


def test_a_report_that_came_before_the_binding_counts_when_that_is_seen() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    pod = a_reserved_pod(allocation_state)
    assert (say(allocation_state, p=Y), used(allocation_state)) == ([], set())
    ended = allocation_state.observe_pod(a_bound_pod("p", X, uid=pod.uid), at(1))
    assert [item.end for item in ended] == [End.BOUND]
    assert used(allocation_state) == {Y}


@pytest.mark.parametrize("is_deleted", [False, True], ids=["there", "deleted"])
def test_a_report_that_outlives_a_pod_that_ended_reserves_nothing(*, is_deleted: bool) -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    allocation_state.observe_pod(a_bound_pod("p", X), at(0))
    say(allocation_state, p=Y)
    allocation_state.observe_pod(a_bound_pod("p", X, phase=PodPhase.ENDED), at(1))
    if is_deleted:
        allocation_state.discard_pod(uid_of("p"))
    assert used(allocation_state) == set()
    assert (say(allocation_state, p=Z), used(allocation_state)) == ([], set())


def test_a_report_taken_back_leaves_the_assignment() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    allocation_state.observe_pod(a_bound_pod("p", X), at(0))
    say(allocation_state, p=Y)
    say(allocation_state)
    assert used(allocation_state) == {X}
    assert len(allocation_state.pod_claims.reports) == 0


def test_the_same_report_changes_nothing() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    allocation_state.observe_pod(a_bound_pod("p", X), at(0))
    say(allocation_state, p=Y)
    generation = allocation_state.index.generation
    assert say(allocation_state, p=Y) == []
    assert allocation_state.index.generation == generation


def test_a_node_speaks_of_its_own_pods_only() -> None:
    allocation_state = some_allocation_state(devices=[*some_devices(2), *some_devices(1, "n2")])
    pod = a_bound_pod("p", X)
    allocation_state.observe_pod(pod, at(0))
    assert say(allocation_state, N2, p="GPU-n2-0") == [pod]
    assert used(allocation_state) == {X}


def test_a_node_speaks_of_its_own_devices_only() -> None:
    allocation_state = some_allocation_state(devices=[*some_devices(2), *some_devices(1, "n2")])
    allocation_state.observe_pod(a_bound_pod("p", X), at(0))
    say(allocation_state, p="GPU-n2-0")
    assert used(allocation_state) == {X}


def test_a_report_of_a_device_counts_from_when_the_device_is_there() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    allocation_state.observe_pod(a_bound_pod("p", X), at(0))
    say(allocation_state, p=Y)
    assert used(allocation_state) == {X}
    allocation_state.index.replace_device(a_device(index=1))
    assert used(allocation_state) == {Y}
    allocation_state.index.replace_device(a_device("n2", 1, uuid=Y, name="n1-1"))
    assert used(allocation_state) == {X}
    allocation_state.index.replace_device(a_device(index=1))
    allocation_state.index.discard_device(a_device(index=1).name)
    assert used(allocation_state) == {X}


def test_a_fault_of_a_device_is_no_reason_to_look_at_reports() -> None:
    """40,000 devices change their health and units; only what is where matters here."""
    reported: list[Any] = []
    allocation_state = some_allocation_state(devices=some_devices(1))
    allocation_state.index.subscribe(reported.append)
    allocation_state.index.replace_device(a_device(is_faulted=True))
    allocation_state.index.replace_device(a_device(pool=None))
    assert reported == []
    allocation_state.index.replace_device(a_device(uuid=Z))
    assert reported == [{N1}]


def test_a_reservation_on_a_unit_that_was_given_to_another_is_planned_again() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    reserved = a_reserved_pod(allocation_state, "held")
    mine = allocation_state.ledger.of_pod(reserved.uid)
    assert mine is not None
    (unit,) = mine.units
    other = ({X, Y} - {unit}).pop()
    allocation_state.observe_pod(a_bound_pod("p", other), at(0))
    say(allocation_state, p=unit)
    capacity = allocation_state.index.state(WHOLE).capacity()
    assert (capacity.used, capacity.reserved, capacity.available) == (1, 0, 1)
    plan = allocation_state.reader.plan_bind(
        N1, pool_of(allocation_state), reserved.demand, uid=reserved.uid
    )
    assert isinstance(plan, Placed)
    assert plan.devices == {"c0": (UnitId(other),)}
    allocation_state.commit(
        a_placement_request(allocation_state, reserved.demand, id_="b"),
        plan,
        uid=reserved.uid,
        now=at(1),
    )
    assert allocation_state.index.claims.duplicates() == {}


def test_a_reservation_that_lost_its_unit_and_finds_no_other_waits() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    reserved = a_reserved_pod(allocation_state, "held")
    allocation_state.observe_pod(a_bound_pod("p", "GPU-elsewhere"), at(0))
    say(allocation_state, p=X)
    assert not isinstance(
        allocation_state.reader.plan_bind(
            N1, pool_of(allocation_state), reserved.demand, uid=reserved.uid
        ),
        Placed,
    )
    say(allocation_state)
    assert isinstance(
        allocation_state.reader.plan_bind(
            N1, pool_of(allocation_state), reserved.demand, uid=reserved.uid
        ),
        Placed,
    )


def test_a_binding_in_doubt_whose_unit_was_given_to_another_is_not_sent_again() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    pod = a_reserved_pod(allocation_state, "doubtful")
    (unit,) = commit_to(allocation_state, pod).units
    allocation_state.mark_doubtful(pod.uid, at(1))
    allocation_state.observe_pod(a_bound_pod("p", ({X, Y} - {unit}).pop()), at(1))
    say(allocation_state, p=unit)
    assert allocation_state.retry(pod.uid) is None
    assert allocation_state.release(pod.uid) is not None


def test_a_pod_that_nobody_knew_the_units_of_no_longer_closes_its_node() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    allocation_state.observe_pod(a_bound_pod(), at(0))
    assert allocation_state.index.state(WHOLE).capacity().available == 0
    say(allocation_state, b=Y)
    assert (used(allocation_state), allocation_state.index.state(WHOLE).capacity().available) == (
        {Y},
        1,
    )


class Reported(list[AllocationMismatch]):
    def __init__(self) -> None:
        super().__init__()
        self.allocation_state = some_allocation_state(devices=some_devices(3))
        self.allocation_state.pod_claims.mismatches._on_found = self.append


def test_a_pod_that_was_given_something_else_is_told_of_once() -> None:
    reported = Reported()
    pod = a_bound_pod("p", X)
    reported.allocation_state.observe_pod(pod, at(0))
    for units in (X, Y, Z, X, Y):
        say(reported.allocation_state, p=units)
        reported.allocation_state.observe_pod(pod, at(1))
    assert reported == [AllocationMismatch(pod, WHOLE, (UnitId(Y),), ())]


def test_units_from_nowhere_are_told_of_once_and_apart() -> None:
    reported = Reported()
    pod = a_bound_pod("p", X)
    reported.allocation_state.observe_pod(pod, at(0))
    for units in ("GPU-9", "GPU-8", "GPU-9 GPU-n1-1"):
        say(reported.allocation_state, p=units)
    assert [(item.unassigned, item.foreign) for item in reported] == [((), ("GPU-9",)), ((Y,), ())]


def test_another_pod_of_that_name_is_told_of_again_and_nothing_is_kept_of_the_first() -> None:
    reported = Reported()
    for number in range(2):
        uid = PodUid(f"uid-{number}")
        reported.allocation_state.observe_pod(a_bound_pod("p", X, uid=uid), at(0))
        entry = ContainerDevices(
            namespace="default",
            pod="p",
            container="c0",
            resource=a_pool().resource,
            units=[Y],
            uid=uid,
        )
        reported.allocation_state.observe_reports(N1, {uid: (entry,)})
        reported.allocation_state.discard_pod(uid)
    assert [item.pod.uid for item in reported] == ["uid-0", "uid-1"]
    assert len(reported.allocation_state.pod_claims.mismatches) == 0


def test_a_pod_that_is_shown_on_another_node_counts_there() -> None:
    """No API server moves a pod; what was shown last holds all the same."""
    allocation_state = some_allocation_state(devices=[*some_devices(1), *some_devices(1, "n2")])
    for node in ("n1", "n2"):
        allocation_state.observe_pod(a_bound_pod(node=node), at(0))
    available = {
        name: item.available for name, item in allocation_state.index.state(WHOLE).nodes().items()
    }
    assert available == {"n1": 1, "n2": 0}
