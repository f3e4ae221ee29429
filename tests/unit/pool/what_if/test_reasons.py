"""The reason of a wait, the figures beside it, and the order of remedies, by example."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from api.foreign.core import NodeTaint
from api.kinds.gpunodeinventory import TopologyManagerPolicy, TopologyManagerScope
from api.kinds.gpupool import AllocationMode, DeviceTopology
from api.names import NodeName, ReservationId, UnitId
from kernelcache.cache_index import CacheIndex
from pool.allocation_state import AllocationState
from pool.compute_resources import ComputeResources
from pool.model import KubeletTopology, PodFacts, PodPhase, PodSelection
from pool.placement.planner import Placed
from pool.reservations.reservation import PlacementRequest
from pool.what_if.explain import explain
from pool.what_if.explanation import (
    AskFewerUnits,
    Explanation,
    PodsEnd,
    ReservationsExpire,
    UnitsHolder,
    UnitsReturn,
    UnitWaitReason,
    UsePool,
)
from pool.what_if.question import WaitQuestion
from telemetry.explanation_texts import wait_summary
from telemetry.remedy_texts import RemedyReader, remedy_text
from tests.support.builders import a_device, a_node, a_pod_facts, a_pool, at
from tests.support.cache_demands import LLAMA, a_resolved_cache

DEVICES = 4
Taken = dict[str, int]


def a_state(taken: Taken, **pool: Any) -> AllocationState:
    """Nodes of four devices each, of which the first ones are a bound pod's."""
    state = AllocationState()
    state.index.replace_pool(a_pool(**pool))
    for node, count in taken.items():
        state.index.replace_node(a_node(node))
        for number in range(DEVICES):
            state.index.replace_device(a_device(node, number, numa_node=number % 2))
        if count:
            bind(state, f"on-{node}", node, range(count))
    return state


def bind(state: AllocationState, name: str, node: str, numbers: Any, **changes: Any) -> None:
    units = tuple(UnitId(f"GPU-{node}-{number}") for number in numbers)
    pod = a_pod_facts(
        name,
        len(units),
        phase=PodPhase.BOUND,
        node=NodeName(node),
        devices={"c0": units},
        **changes,
    )
    state.observe_pod(pod, at(0))


def waiting(units: int = 1, **changes: Any) -> PodFacts:
    return a_pod_facts("waiting", units, **changes)


def why(state: AllocationState, pod: PodFacts, **question: Any) -> Explanation:
    state.observe_pod(pod, at(10))
    return explain(state.reader, state.index, WaitQuestion(pod=pod, now=10.0, **question))


def test_free_units_of_several_nodes_are_fragmented():
    found = why(a_state({"n1": 1, "n2": 2}), waiting(4))
    assert found.reason is UnitWaitReason.UNITS_FRAGMENTED
    assert (found.free, found.largest_free, found.largest_node) == (5, 3, 4)
    assert [(item.node, item.free, item.used) for item in found.nodes] == [
        ("n1", 3, 1),
        ("n2", 2, 2),
    ]


def test_fewer_free_units_than_the_pod_asks_for_are_exhausted():
    found = why(a_state({"n1": 4, "n2": 3}), waiting(2))
    assert found.reason is UnitWaitReason.UNITS_EXHAUSTED
    assert (found.free, found.largest_free) == (1, 1)


def test_a_pod_larger_than_every_node_is_too_large_however_much_is_free():
    found = why(a_state({"n1": 0, "n2": 0}), waiting(5))
    assert found.reason is UnitWaitReason.POD_TOO_LARGE
    assert found.remedies == (AskFewerUnits(node="n1", units=4),)


def test_enough_units_of_two_numa_nodes_are_not_aligned():
    state = a_state({"n1": 2}, device_topology=DeviceTopology.REQUIRED)
    found = why(state, waiting(2))
    assert found.reason is UnitWaitReason.UNITS_NOT_ALIGNED
    assert found.nodes[0].free == 2
    assert AskFewerUnits(node="n1", units=1) in found.remedies


@pytest.mark.parametrize(
    ("change", "selection"),
    [
        pytest.param({"is_cordoned": True}, None, id="cordoned"),
        pytest.param({"is_ready": False}, None, id="not-ready"),
        pytest.param({"taints": (NodeTaint(key="x", effect="NoSchedule"),)}, None, id="taint"),
        pytest.param({}, PodSelection(node_selector=(("zone", "a"),)), id="selector"),
    ],
)
def test_nodes_with_units_that_the_pod_may_not_go_to_are_excluded(
    change: dict[str, Any], selection: PodSelection | None
):
    state = a_state({"n1": 0})
    state.index.replace_node(a_node("n1", **change))
    found = why(state, waiting(2, selection=selection))
    assert found.reason is UnitWaitReason.NODES_EXCLUDED
    assert found.nodes[0].exclusion
    assert found.nodes[0].refusal is None


@pytest.mark.parametrize("other", [0, DEVICES])
def test_a_node_with_units_and_without_cpu_takes_the_pod_once_a_pod_there_ends(other: int):
    """Whatever units other nodes have, the answer says that units are there."""
    state = a_state({"n1": 0, "n2": other})
    bind(state, "other", "n1", [0], requests=ComputeResources(cpu_milli=3_000))
    for node, cpu in (("n1", 4_000), ("n2", 1_000)):
        state.index.replace_node(a_node(node, cpu_milli=cpu))
    found = why(state, waiting(2, requests=ComputeResources(cpu_milli=2_000)))
    assert found.reason is UnitWaitReason.NODES_EXCLUDED
    shortages = {item.node: item.shortage for item in found.nodes}
    assert shortages["n1"] == "insufficient cpu: 2000m requested, 1000m free"
    (remedy,) = found.remedies
    assert isinstance(remedy, PodsEnd)
    assert [holder.name for holder in remedy.holders] == ["other"]


@pytest.mark.parametrize("state_of_node", ["is_leaving", "is_starting", "is_withheld"])
def test_a_node_that_leaves_or_starts_or_gets_a_new_driver_is_closed(state_of_node: str):
    state = a_state({"n1": 0})
    state.index.replace_node(a_node("n1", **{state_of_node: True}))
    found = why(state, waiting(2))
    assert found.reason is UnitWaitReason.NODES_CLOSED
    assert (found.nodes[0].free, found.nodes[0].withheld) == (0, DEVICES)
    assert found.remedies == ()


def test_a_pod_on_unknown_devices_closes_its_node_until_it_ends():
    state = a_state({"n1": 0})
    stranger = a_pod_facts("stranger", phase=PodPhase.BOUND, node=NodeName("n1"))
    state.observe_pod(stranger, at(0))
    found = why(state, waiting(2))
    assert found.reason is UnitWaitReason.NODES_CLOSED
    assert [holder.name for holder in found.nodes[0].holders] == ["stranger"]
    (remedy,) = found.remedies
    assert isinstance(remedy, PodsEnd)


def test_a_cache_that_fits_no_device_is_the_reason():
    state, caches = a_state({"n1": 0}), CacheIndex()
    state.index.caches = caches
    caches.set_cache(LLAMA, a_resolved_cache(90))
    pod = waiting(2)
    demand = msgspec.structs.replace(pod.demand, caches=(LLAMA,))
    found = why(state, waiting(demand=demand))
    assert found.reason is UnitWaitReason.CACHES_FIT_NO_DEVICE


@pytest.mark.parametrize("closed", ["is_terminating", "is_in_maintenance"])
def test_a_pool_that_allocates_nothing_is_closed_and_another_pool_helps(closed: str):
    state = a_state({"n1": 0}, **{closed: True})
    other = a_pool("other")
    state.index.replace_pool(other)
    state.index.replace_device(a_device("n1", 9, "other"))
    found = why(state, waiting(1), other_pools=[other])
    assert found.reason is UnitWaitReason.POOL_CLOSED
    assert found.remedies == (UsePool(node="n1", pool="other", resource=other.resource),)


def test_an_unknown_resource_has_no_pool():
    found = why(a_state({"n1": 0}), waiting(pool="trainnig"))
    assert found.reason is UnitWaitReason.POOL_NOT_FOUND
    assert (found.pool, found.capacity, found.nodes) == ("", None, ())


def test_gates_of_others_come_before_units():
    found = why(a_state({"n1": 4}), waiting(is_gated=True))
    assert found.reason is UnitWaitReason.SCHEDULING_GATED
    assert found.remedies == ()


def test_a_node_with_units_means_that_the_pod_waits_for_something_else():
    found = why(a_state({"n1": 4, "n2": 0}), waiting(4))
    assert found.reason is UnitWaitReason.UNITS_AVAILABLE
    assert found.remedies == ()


def test_a_pod_with_our_gate_waits_for_units_until_they_are_reserved_for_it():
    state = a_state({"n1": 0})
    found = why(state, waiting(4, awaits_capacity=True))
    assert (found.reason, found.remedies) == (UnitWaitReason.RESERVATION_PENDING, ())
    reserve(state, "n1", range(4), name="waiting", awaits_capacity=True)
    found = why(state, waiting(4, awaits_capacity=True))
    assert found.reason is UnitWaitReason.UNITS_AVAILABLE


def test_a_pod_with_our_gate_that_fits_no_node_waits_as_any_other():
    found = why(a_state({"n1": 3}), waiting(4, awaits_capacity=True))
    assert found.reason is UnitWaitReason.UNITS_EXHAUSTED
    assert AskFewerUnits(node="n1", units=1) in found.remedies


def reserve(
    state: AllocationState,
    node: str,
    numbers: Sequence[int],
    *,
    name: str = "next",
    at_s: int = 0,
    **changes: Any,
) -> None:
    """Reserve devices for a pending pod, for 120 s."""
    pool, size = a_pool(), len(numbers)
    pod = a_pod_facts(name, size, priority=3, created="2026-01-01T00:00:00Z", **changes)
    state.observe_pod(pod, at(0))
    request = PlacementRequest(
        id=ReservationId(name), pool=pool, demand=pod.demand, namespace="default", name=name
    )
    units = tuple(UnitId(f"GPU-{node}-{number}") for number in numbers)
    state.hold(request, Placed(pool.name, NodeName(node), {"c0": units}), uid=pod.uid, now=at(at_s))


def a_state_with_a_reservation() -> AllocationState:
    """Node n1 has two units of a bound pod and two of a reservation, node n2 one free unit."""
    state = a_state({"n1": 2, "n2": 3})
    reserve(state, "n1", [2, 3])
    return state


def test_holders_are_bound_pods_and_reservations_with_their_time_left():
    found = why(a_state_with_a_reservation(), waiting(2))
    holders = next(item.holders for item in found.nodes if item.node == "n1")
    assert holders == (
        UnitsHolder(
            namespace="default",
            name="next",
            uid="uid-next",
            units=2,
            priority=3,
            created="2026-01-01T00:00:00Z",
            is_reserved=True,
            expires_in_s=110.0,
        ),
        UnitsHolder(namespace="default", name="on-n1", uid="uid-on-n1", units=2),
    )
    assert (found.nodes[-1].reserved, found.nodes[-1].used) == (2, 2)


def test_a_reservation_whose_end_leaves_devices_of_two_numa_nodes_is_no_remedy_for_kubelet():
    """Devices 1 and 3 are of one NUMA node; the reservation has device 2, and device 3 is free."""
    state = a_state({"n1": 0})
    kubelet = KubeletTopology(
        TopologyManagerPolicy.SINGLE_NUMA_NODE, TopologyManagerScope.CONTAINER
    )
    state.index.replace_kubelet(NodeName("n1"), kubelet)
    bind(state, "first", "n1", [0])
    bind(state, "second", "n1", [1])
    reserve(state, "n1", [2])
    found = why(state, waiting(2))
    assert [type(remedy) for remedy in found.remedies] == [AskFewerUnits, PodsEnd]
    ends = found.remedies[-1]
    assert isinstance(ends, PodsEnd)
    assert [holder.name for holder in ends.holders] == ["second"]


def test_of_the_nodes_where_reservations_expire_the_soonest_is_named():
    state = a_state({"n1": 2, "n2": 2})
    reserve(state, "n1", [2, 3], name="later", at_s=5)
    reserve(state, "n2", [2, 3], name="sooner", at_s=1)
    named = [
        remedy
        for remedy in why(state, waiting(2)).remedies
        if isinstance(remedy, ReservationsExpire)
    ]
    assert [(item.node, item.within_s) for item in named] == [("n2", 111.0)]


def test_a_faulted_device_that_does_not_help_is_not_named():
    """Devices 1 and 3 are of one NUMA node; device 0 comes first and is of the other one."""
    state = a_state({"n1": 0}, device_topology=DeviceTopology.REQUIRED)
    bind(state, "bound", "n1", [2])
    for number in (0, 1, 3):
        device = a_device(
            "n1", number, numa_node=number % 2, is_faulted=True, needed_action="GPUReset"
        )
        state.index.replace_device(device)
    named = [
        remedy for remedy in why(state, waiting(2)).remedies if isinstance(remedy, UnitsReturn)
    ]
    assert [item.devices for item in named] == [("n1-1", "n1-3")]
    assert "more (n1-1, n1-3; needed: GPUReset)" in remedy_text(
        named[0], RemedyReader(namespace="")
    )


def test_remedies_come_with_the_least_change_first():
    found = why(a_state_with_a_reservation(), waiting(2))
    assert [type(remedy) for remedy in found.remedies] == [
        AskFewerUnits,
        ReservationsExpire,
        PodsEnd,
    ]


def test_without_remedies_all_else_is_the_same():
    state, pod = a_state_with_a_reservation(), waiting(2)
    full = why(state, pod)
    question = WaitQuestion(pod=pod, now=10.0)
    short = explain(state.reader, state.index, question, with_remedies=False)
    assert full.remedies
    assert short == msgspec.structs.replace(full, remedies=())


def test_of_many_nodes_the_first_are_detailed_and_all_are_counted():
    state = a_state({f"n{number:02}": 3 for number in range(20)})
    found = why(state, waiting(2), most_nodes=5)
    assert (len(found.nodes), found.nodes_total) == (5, 20)
    assert (found.free, found.reason) == (20, UnitWaitReason.UNITS_FRAGMENTED)
    assert all(node.holders for node in found.nodes)


def test_a_pod_without_a_selection_may_go_to_any_node():
    assert why(a_state({"n1": 0}), waiting(1, selection=None)).nodes[0].takes_pod


def a_state_of_instances(**counts: int) -> AllocationState:
    """Devices on which seven instances fit, with as many as said; a node for each."""
    state = AllocationState()
    state.index.replace_pool(a_pool(mode=AllocationMode.MIG, mig_profile="1g.10gb"))
    for node, count in counts.items():
        instances = tuple(("1g.10gb", f"GPU-{node}-{number}") for number in range(1, count + 1))
        device = a_device(node, 0, mig_instances=instances, mig_capacities=(("1g.10gb", 7),))
        state.index.replace_node(a_node(node))
        state.index.replace_device(device)
    return state


def test_a_device_that_lost_its_instances_is_named_with_the_pods_that_end_first():
    state = a_state_of_instances(n1=2)
    bind(state, "on-n1", "n1", [1])
    found = why(state, waiting(3))
    assert found.reason is UnitWaitReason.UNITS_EXHAUSTED
    assert (found.largest_node, found.nodes[0].used, found.nodes[0].withheld) == (7, 1, 6)
    (remedy,) = found.remedies
    assert remedy_text(remedy, RemedyReader(namespace="default")) == (
        "when node n1 has the devices partitioned again that others partitioned, it has 7 units more"
        " (n1-0) once on-n1 (1 unit) ends, and takes the pod"
    )


def test_a_device_without_any_instance_is_withheld_and_named():
    found = why(a_state_of_instances(n1=0), waiting(7))
    assert found.reason is UnitWaitReason.UNITS_EXHAUSTED
    assert [(item.total, item.withheld) for item in found.nodes] == [(7, 7)]
    assert [type(remedy) for remedy in found.remedies] == [UnitsReturn]


def test_units_on_faulted_devices_make_no_pod_too_large():
    state = a_state({"n1": 0})
    for number in (0, 1, 2):
        state.index.replace_device(a_device("n1", number, is_faulted=True))
    assert why(state, waiting(2)).reason is UnitWaitReason.UNITS_EXHAUSTED


def test_a_pool_whose_devices_others_keep_partitioning_names_what_ends_that():
    state = a_state({"n1": 0}, is_in_maintenance=True, drift="n1-0: kubectl annotate gpupool whole")
    found = why(state, waiting())
    assert found.reason is UnitWaitReason.POOL_CLOSED
    assert wait_summary(found) == (
        "1 unit of pool whole requested, but the pool allocates none: n1-0: kubectl annotate gpupool whole"
    )
