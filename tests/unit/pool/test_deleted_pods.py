"""Pods whose end is not their node's word: deleted by force, or shown as ended by their user."""

from typing import TYPE_CHECKING

import msgspec
import pytest

from api.foreign.core import Pod, PodCondition
from api.kinds.gpunodeinventory import ContainerDevices
from api.names import DEVICES_ANNOTATION, NodeName
from pool.facts import pod_facts
from pool.model import ContainerRole, PodPhase
from tests.support.allocation_state import (
    N1,
    N2,
    a_bound_pod,
    some_allocation_state,
    some_devices,
    uid_of,
)
from tests.support.builders import a_demand, a_device, a_pool, at
from tests.unit.pool.test_reports_in_allocation_state import X, Y, Z, say, used

if TYPE_CHECKING:
    from pool.pods.reported import AllocationMismatch

UID = uid_of("p")


def test_what_a_pod_that_was_deleted_by_force_had_is_in_use_until_its_node_says_so_no_more() -> (
    None
):
    allocation_state = some_allocation_state(devices=some_devices(3))
    allocation_state.observe_pod(a_bound_pod("p", X), at(0))
    say(allocation_state, p=Y)
    allocation_state.discard_pod(UID)
    assert used(allocation_state) == {Y}
    assert say(allocation_state, p=Z, other=X) == []
    assert used(allocation_state) == {Z}
    say(allocation_state, other=X)
    assert used(allocation_state) == set()
    say(allocation_state, p=Z)
    assert used(allocation_state) == set()


def test_units_that_only_an_init_container_of_a_gone_pod_has_stay_in_use() -> None:
    """Of an agent that reports main containers alone, as of one that reports these units as well."""
    units = tuple(f"GPU-n1-{number}" for number in range(4))
    demand = a_demand(4, 2, roles=(ContainerRole.INIT, ContainerRole.MAIN))
    assigned = {"c0": units, "c1": units[:2]}
    for reported in ({"c1": units[2:]}, {"c0": units[:2], "c1": units[2:]}):
        allocation_state = some_allocation_state(devices=some_devices(4))
        allocation_state.observe_pod(a_bound_pod("p", demand=demand, devices=assigned), at(0))
        entries = tuple(
            ContainerDevices(
                namespace="default",
                pod="p",
                container=container,
                resource=demand.resource,
                units=list(given),
                uid=UID,
            )
            for container, given in reported.items()
        )
        allocation_state.observe_reports(N1, {UID: entries})
        assert used(allocation_state) == set(units)
        allocation_state.discard_pod(UID)
        assert used(allocation_state) == set(units)
        allocation_state.observe_reports(N1, {})
        assert used(allocation_state) == set()


def test_what_no_node_reports_of_a_pod_that_was_deleted_by_force_is_free() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    allocation_state.observe_pod(a_bound_pod("p", X), at(0))
    say(allocation_state, N2, p=X)
    allocation_state.discard_pod(UID)
    assert used(allocation_state) == set()


def test_a_pod_that_ended_before_it_was_deleted_leaves_nothing_behind() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    allocation_state.observe_pod(a_bound_pod("p", X), at(0))
    say(allocation_state, p=X)
    allocation_state.observe_pod(a_bound_pod("p", X, phase=PodPhase.ENDED), at(1))
    assert used(allocation_state) == set()
    allocation_state.discard_pod(UID)
    assert used(allocation_state) == set()


def test_what_a_gone_pod_has_follows_the_devices_of_its_node() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    allocation_state.observe_pod(a_bound_pod("p", X), at(0))
    say(allocation_state, p=X)
    allocation_state.discard_pod(UID)
    allocation_state.index.replace_device(a_device("n2", 0, uuid=X, name="n1-0"))
    assert used(allocation_state) == set()
    allocation_state.index.replace_device(a_device())
    assert used(allocation_state) == {X}


def test_a_node_that_is_gone_with_its_inventory_reserves_nothing_for_gone_pods() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    allocation_state.observe_pod(a_bound_pod("p", X), at(0))
    say(allocation_state, p=X)
    allocation_state.discard_pod(UID)
    allocation_state.observe_reports(N1, {})
    assert (used(allocation_state), len(allocation_state.pod_claims.deleted)) == (set(), 0)


def test_a_pod_that_the_watch_shows_again_has_what_it_had() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    pod = a_bound_pod("p", X)
    allocation_state.observe_pod(pod, at(0))
    say(allocation_state, p=X)
    allocation_state.discard_pod(UID)
    allocation_state.observe_pod(pod, at(1))
    say(allocation_state)
    assert (used(allocation_state), len(allocation_state.pod_claims.deleted)) == ({X}, 0)


def test_a_gone_pod_and_one_that_was_given_its_units_are_told_of() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    allocation_state.observe_pod(a_bound_pod("p", X), at(0))
    say(allocation_state, p=X)
    allocation_state.discard_pod(UID)
    allocation_state.observe_pod(a_bound_pod("q", X), at(1))
    assert allocation_state.reader.shared_units() == {}
    say(allocation_state, p=X, q=X)
    assert allocation_state.reader.shared_units() == {X: {UID, uid_of("q")}}
    gone = allocation_state.reader.holder(UID)
    assert gone is not None
    assert gone.ref == "default/p"


def current(phase: str, *, runs: bool | None) -> Pod:
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
    allocation_state = some_allocation_state(devices=some_devices(1))
    for pod in (current("Running", runs=True), current(phase, runs=runs)):
        facts = pod_facts(pod)
        assert facts is not None
        allocation_state.observe_pod(facts, at(0))
    assert used(allocation_state) == ({X} if runs else set())


BY_POD_GC = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}


@pytest.mark.parametrize(
    ("phase", "condition", "is_free"),
    [
        pytest.param("Failed", BY_POD_GC, True, id="its Node was gone"),
        pytest.param("Failed", {**BY_POD_GC, "reason": "PreemptionByScheduler"}, False, id="other"),
        pytest.param("Failed", {**BY_POD_GC, "status": "False"}, False, id="not any more"),
        pytest.param("Running", BY_POD_GC, False, id="not ended"),
    ],
)
def test_the_pod_garbage_collector_is_believed_whatever_the_containers_are_shown_as(
    phase: str, condition: dict[str, str], *, is_free: bool
) -> None:
    """A finalizer keeps the pod, its machine is gone, and a Node of its name comes again."""
    allocation_state = some_allocation_state(devices=some_devices(1))
    ended = current(phase, runs=True)
    conditions = msgspec.convert([condition], list[PodCondition])
    status = msgspec.structs.replace(ended.status, conditions=conditions)
    for pod in (current("Running", runs=True), msgspec.structs.replace(ended, status=status)):
        facts = pod_facts(pod)
        assert facts is not None
        allocation_state.observe_pod(facts, at(0))
    assert used(allocation_state) == (set() if is_free else {X})


def test_an_init_container_that_runs_contradicts_the_phase() -> None:
    pod = current("Failed", runs=None)
    status = msgspec.convert(
        {"phase": "Failed", "initContainerStatuses": [{"state": {"running": {}}}]},
        type(pod.status),
    )
    facts = pod_facts(msgspec.structs.replace(pod, status=status))
    assert facts is not None
    assert facts.phase is PodPhase.BOUND


def test_a_pod_whose_node_takes_its_user_s_end_back_counts_again_and_two_are_told_of() -> None:
    allocation_state = some_allocation_state(devices=some_devices(1))
    reported: list[AllocationMismatch] = []
    allocation_state.pod_claims.mismatches._on_found = reported.append
    allocation_state.observe_pod(a_bound_pod("p", X), at(0))
    allocation_state.observe_pod(a_bound_pod("p", X, phase=PodPhase.ENDED), at(1))
    allocation_state.observe_pod(a_bound_pod("q", X), at(2))
    allocation_state.observe_pod(a_bound_pod("p", X), at(3))
    assert used(allocation_state) == {X}
    assert allocation_state.reader.shared_units() == {X: {UID, uid_of("q")}}
    allocation_state.observe_pod(a_bound_pod("q", X, phase=PodPhase.ENDED), at(4))
    assert used(allocation_state) == {X}
    assert reported == []


def test_a_gone_pod_that_was_bound_around_us_has_what_is_reported() -> None:
    allocation_state = some_allocation_state(devices=some_devices(2))
    allocation_state.observe_pod(a_bound_pod("p"), at(0))
    say(allocation_state, p=Y)
    allocation_state.discard_pod(UID)
    assert used(allocation_state) == {Y}
    assert allocation_state.index.unaccounted.at(a_pool().resource, NodeName("n1")) == {}
