"""Units of nodes whose driver is upgraded: waiting pods wait for them, as long as the upgrade is in time."""

import datetime as dt
from typing import Any

import msgspec
import pytest

from api.driver_upgrade import UPGRADE_STATE_LABEL
from api.foreign.core import NodeTaint
from api.kinds.gpupool import DeviceTopology, Strategy
from api.meta import SelectorOperator, SelectorRequirement
from api.names import NodeName
from autoscaling.scaling_model import WaitReason
from kernelcache.cache_index import CacheIndex
from pool.allocation_state import AllocationState
from pool.compute_resources import ComputeResources
from pool.model import PodSelection
from tests.support.builders import a_demand, a_device, a_node, a_pool
from tests.support.cache_demands import LLAMA, a_resolved_cache
from tests.support.scaling_plans import (
    NOW,
    a_shape,
    a_waiting_pod,
    add_node,
    an_index,
    planned,
    signalled,
    some_parameters,
)

MINUTE = dt.timedelta(minutes=1)
CORDONED = NodeTaint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def an_upgrade(
    state: str = "pod-restart-required", *, minutes: int = 20, used: int = 0, **changes: Any
) -> AllocationState:
    """A node with four devices in the middle of an upgrade, which is out of service."""
    allocation = AllocationState(an_index(changes.pop("pool", None)))
    labels = {UPGRADE_STATE_LABEL: state, **changes.pop("labels", {})}
    recorded: dict[str, Any] = {
        "labels": labels,
        "is_cordoned": True,
        "is_withheld": True,
        "taints": (CORDONED,),
        "returns_by": NOW + minutes * MINUTE,
    }
    add_node(allocation, "n1", devices=4, used=used, **recorded | changes)
    return allocation


def test_waiting_pods_wait_for_the_units_of_an_upgraded_node():
    pods = [a_waiting_pod(f"p{number}", units=2) for number in range(3)]
    plan = planned(some_parameters(), pods, an_upgrade().index)
    waits = {uid: wait.reason for uid, wait in plan.waits.items()}
    assert waits == dict.fromkeys([pod.uid for pod in pods[:2]], WaitReason.DRIVER_UPGRADE)
    assert [request.pods for request in plan.requests] == [(pods[2].uid,)]
    text = plan.waits[pods[0].uid].message
    assert "node n1" in text
    assert "2026-01-01T01:20:00Z" in text


@pytest.mark.parametrize(
    ("state", "used", "is_awaited"),
    [
        ("pod-deletion-required", 4, True),
        ("drain-required", 4, True),
        ("pod-restart-required", 4, False),
        ("validation-required", 0, True),
    ],
)
def test_pods_that_leave_for_the_upgrade_are_not_in_the_way_and_those_that_stay_are(
    state: str, used: int, is_awaited: bool
):
    pod = a_waiting_pod("p", units=4)
    plan = planned(some_parameters(), [pod], an_upgrade(state, used=used).index)
    assert bool(plan.requests) is not is_awaited


@pytest.mark.parametrize(
    "changes",
    [
        {"minutes": 0},
        {"minutes": 31},
        {"returns_by": None},
        {"is_leaving": True},
        {"is_ready": False},
    ],
    ids=lambda item: next(iter(item)),
)
def test_a_node_is_asked_for_where_the_units_do_not_return_in_time(changes: Any):
    plan = planned(some_parameters(), [a_waiting_pod()], an_upgrade(**changes).index)
    assert len(plan.requests) == 1


def test_a_pod_that_the_node_will_not_take_gets_another_one():
    other = PodSelection(node_selector=(("zone", "b"),))
    large = ComputeResources(9_000, 0)
    state = an_upgrade("drain-required", cpu_milli=8_000, used=4)
    in_b = SelectorRequirement(key="zone", operator=SelectorOperator.IN, values=["b"])
    shape = a_shape(requirements=(in_b,), labels={"zone": "b"})
    for changes in ({"selection": other}, {"requests": large}):
        plan = planned(some_parameters(shape), [a_waiting_pod(**changes)], state.index)
        assert len(plan.requests) == 1
    plan = planned(
        some_parameters(), [a_waiting_pod(requests=ComputeResources(8_000, 0))], state.index
    )
    assert plan.requests == ()


def test_devices_that_are_aligned_are_aligned_after_the_upgrade():
    pool = a_pool(strategy=Strategy.BIN_PACK, device_topology=DeviceTopology.REQUIRED)
    state = an_upgrade("drain-required", used=4, pool=pool)
    for number in range(4):
        state.index.replace_device(a_device("n1", number, numa_node=0))
    plan = planned(some_parameters(pool=pool), [a_waiting_pod(units=4)], state.index)
    assert plan.requests == ()


def test_a_pod_with_a_cache_waits_for_devices_that_its_cache_fits():
    state, caches = an_upgrade("pod-deletion-required", used=4), CacheIndex()
    state.index.caches = caches
    caches.set_cache(LLAMA, a_resolved_cache(90))
    pod = a_waiting_pod(demand=msgspec.structs.replace(a_demand(1), caches=(LLAMA,)))
    state.index.replace_device(a_device("n1", 0, compute_capability="9.0"))
    for number in range(1, 4):
        state.index.replace_device(a_device("n1", number, compute_capability="8.0"))
    two = [pod, a_waiting_pod("q", demand=pod.demand)]
    plan = planned(some_parameters(), two, state.index)
    assert [request.pods for request in plan.requests] == [(two[1].uid,)]


def test_warm_units_that_an_upgrade_gives_back_are_not_bought_again():
    parameters = some_parameters(a_shape(devices=4), warm_units=4)
    assert planned(parameters, [], an_upgrade().index).requests == ()
    pod = a_waiting_pod(units=1)
    plan = planned(parameters, [pod], an_upgrade().index)
    assert [request.pods for request in plan.requests] == [()]
    assert len(planned(parameters, [], an_upgrade(minutes=0).index).requests) == 1


def test_a_node_that_is_on_its_way_for_a_pod_is_not_given_up_for_an_upgrade():
    pod = a_waiting_pod(units=4)
    parameters = some_parameters()
    asked = planned(parameters, [pod])
    (request,) = asked.requests
    state = an_upgrade()
    plan = planned(parameters, [pod], state.index, in_flight=(signalled(request),))
    assert plan.cancels == ()
    assert plan.assigned == {request.id: (pod.uid,)}


def test_free_units_come_first_and_a_plan_is_the_same_again():
    state = an_upgrade()
    state.index.replace_node(a_node("free"))
    state.index.replace_device(a_device("free", 0))
    pods = [a_waiting_pod("a"), a_waiting_pod("b")]
    plan = planned(some_parameters(), pods, state.index)
    assert set(plan.waits) == {pods[1].uid}
    assert plan == planned(some_parameters(), pods, state.index)
    assert NodeName("n1") in state.index.nodes
