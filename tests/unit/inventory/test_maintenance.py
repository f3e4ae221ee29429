"""What a pool's allocation needs: every step of a maintenance, and what it says."""

import datetime as dt
from typing import Any

import msgspec
import pytest

from api.kinds.gpupool import GPUPool
from api.names import PodUid
from inventory.pools.maintenance import (
    MAX_NAMED,
    MaintenancePlan,
    MaintenanceStep,
    PodUsage,
    PoolUsage,
    allocation_text,
    plan_allocation,
    pods_text,
)

NOW = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
WHOLE = {"mode": "Exclusive"}
SLICED = {"mode": "TimeSlice", "slicesPerDevice": 4}
MIG = {"mode": "MIG", "migProfile": "1g.10gb"}


def a_pool(desired: dict[str, Any], present: dict[str, Any] | None, **spec: Any) -> GPUPool:
    raw: dict[str, Any] = {
        "metadata": {"name": "p"},
        "spec": {"allocation": desired, **spec},
        "status": {} if present is None else {"allocation": present},
    }
    return msgspec.convert(raw, GPUPool)


def an_occupant(name: str = "a", units: int = 1) -> PodUsage:
    return PodUsage(namespace="ns", name=name, uid=PodUid(f"uid-{name}"), units=units)


def planned(pool: GPUPool, usage: PoolUsage | None = None, **more: Any) -> MaintenancePlan:
    return plan_allocation(pool, usage or PoolUsage(), **{"since": None, "now": NOW, **more})


def test_a_new_pool_has_its_allocation_recorded():
    plan = planned(a_pool(SLICED, None))
    assert plan.step is MaintenanceStep.RECORD
    assert (
        plan.text == "the recorded allocation is that of the spec: TimeSlice (4 slices per device)"
    )


def test_a_new_pool_that_is_not_sound_has_none():
    assert planned(a_pool(SLICED, None), fault="bad").step is MaintenanceStep.BLOCKED


@pytest.mark.parametrize("allocation", [WHOLE, SLICED, MIG])
def test_a_pool_as_its_spec_wants_it_needs_nothing(allocation):
    busy = PoolUsage(pods=(an_occupant(),), devices=2)
    assert planned(a_pool(allocation, allocation), busy).step is MaintenanceStep.NOTHING


def test_a_limit_of_devices_is_no_change_of_what_a_unit_is():
    assert planned(a_pool({**WHOLE, "maxDevicesPerNode": 2}, WHOLE)).step is MaintenanceStep.NOTHING


@pytest.mark.parametrize(
    ("desired", "present"),
    [
        pytest.param(SLICED, WHOLE, id="mode"),
        pytest.param(SLICED, {**SLICED, "slicesPerDevice": 2}, id="slices"),
        pytest.param(MIG, {**MIG, "migProfile": "2g.20gb"}, id="profile"),
    ],
)
def test_an_empty_pool_is_switched(desired, present):
    assert planned(a_pool(desired, present)).step is MaintenanceStep.SWITCH


def test_a_binding_on_its_way_is_waited_for():
    plan = planned(a_pool(SLICED, WHOLE, maintenance={"policy": "Evict"}), PoolUsage(reserved=2))
    assert plan.step is MaintenanceStep.WAIT
    assert plan.text == (
        "changes from Exclusive to TimeSlice (4 slices per device): waits for 2 units of bindings"
        " in progress"
    )


@pytest.mark.parametrize(
    ("policy", "step", "word"),
    [("Wait", MaintenanceStep.WAIT, "waits for"), ("Evict", MaintenanceStep.EVICT, "evicts")],
)
def test_pods_with_units_finish_or_are_evicted(policy, step, word):
    pods = (an_occupant("a", 2), an_occupant("b"))
    plan = planned(a_pool(MIG, WHOLE, maintenance={"policy": policy}), PoolUsage(pods=pods))
    assert (plan.step, plan.pods, plan.is_overdue) == (step, pods, False)
    assert plan.text == (
        f"changes from Exclusive to MIG (1g.10gb): {word} 2 pods with 3 units (ns/a, ns/b)"
    )


@pytest.mark.parametrize(("age_s", "is_overdue"), [(0, False), (1799, False), (1800, True)])
def test_the_deadline_counts_from_when_the_condition_became_true(age_s, is_overdue):
    pool = a_pool(SLICED, WHOLE, maintenance={"deadline": "30m"})
    plan = planned(pool, PoolUsage(pods=(an_occupant(),)), since=NOW - dt.timedelta(seconds=age_s))
    assert plan.is_overdue is is_overdue
    assert ("set spec.allocation back to Exclusive" in plan.text) is is_overdue
    assert plan.step is MaintenanceStep.WAIT


def test_a_pool_with_an_invalid_change_evicts_no_pod_and_does_not_switch():
    pool = a_pool(MIG, WHOLE, maintenance={"policy": "Evict"})
    for usage in (PoolUsage(), PoolUsage(pods=(an_occupant(),))):
        plan = planned(pool, usage, fault="no device can")
        assert plan.step is MaintenanceStep.BLOCKED
        assert (
            plan.text == "changes from Exclusive to MIG (1g.10gb), which is invalid: no device can"
        )


@pytest.mark.parametrize(
    ("cut", "since", "step"),
    [
        pytest.param(1, NOW, MaintenanceStep.REBUILD, id="one of two"),
        pytest.param(2, NOW, MaintenanceStep.NOTHING, id="all"),
        pytest.param(0, None, MaintenanceStep.NOTHING, id="no maintenance was under way"),
    ],
)
def test_maintenance_waits_while_nodes_partition_devices(cut, since, step):
    plan = planned(a_pool(MIG, MIG), PoolUsage(devices=2, partitioned_devices=cut), since=since)
    assert plan.step is step
    if step is MaintenanceStep.REBUILD:
        assert plan.text == "1 of 2 devices have instances of 1g.10gb"


def test_only_the_first_pods_are_named():
    pods = tuple(an_occupant(f"p{number}") for number in range(MAX_NAMED + 2))
    assert pods_text(pods) == ("7 pods with 7 units (ns/p0, ns/p1, ns/p2, ns/p3, ns/p4 and 2 more)")


@pytest.mark.parametrize(
    ("allocation", "text"),
    [
        (WHOLE, "Exclusive"),
        (SLICED, "TimeSlice (4 slices per device)"),
        (MIG, "MIG (1g.10gb)"),
    ],
)
def test_the_text_of_an_allocation(allocation, text):
    assert allocation_text(a_pool(allocation, None).allocation) == text
