"""A pool's beginning, the change of its allocation, and going back; its end is in `test_pool_end`."""

import pytest

from api.names import POOL_FINALIZER
from kube.resources import GPU_DEVICES, GPU_POOLS
from tests.component.reconciler.cluster import Cluster, a_cluster
from tests.component.reconciler.pool_lives import (
    EXCLUSIVE,
    POOL,
    SLICES,
    STATUS,
    WHOLE,
    allocation,
    change,
    end_pod,
    finalizers,
    maintenance,
    run_pass,
    run_pod,
    running,
    until_stable,
)
from tests.support.allocation_state import commit_to, reserve
from tests.support.builders import a_demand, a_pod_facts
from tests.support.cancellation import at_every_suspension, runs_through

RECORDED = {"mode": "Exclusive", "slicesPerDevice": 1}
SLICED = {"mode": "TimeSlice", "slicesPerDevice": 4}


async def test_a_new_pool_gets_its_finalizer_first_and_its_allocation_at_once(cluster: Cluster):
    await run_pass(cluster)
    assert cluster.writes() == [POOL, STATUS]
    assert await finalizers(cluster) == [POOL_FINALIZER]
    assert await allocation(cluster) == RECORDED
    found = await maintenance(cluster)
    assert (found["status"], found["reason"]) == ("False", "UpToDate")
    assert found["observedGeneration"] == 1


async def test_finalizers_of_others_stay(cluster: Cluster):
    theirs = {"metadata": {"finalizers": ["example.com/theirs"]}}
    await cluster.client.merge_patch(GPU_POOLS, theirs, name="whole")
    await cluster.observe()
    await run_pass(cluster)
    assert await finalizers(cluster) == ["example.com/theirs", POOL_FINALIZER]


async def test_a_finalizer_that_somebody_else_writes_meanwhile_is_not_lost(cluster: Cluster):
    theirs = {"metadata": {"finalizers": ["example.com/theirs"]}}
    await cluster.client.merge_patch(GPU_POOLS, theirs, name="whole")
    assert await cluster.pool_life.reconcile(WHOLE) is not None
    assert await finalizers(cluster) == ["example.com/theirs"]
    await cluster.observe()
    await run_pass(cluster)
    assert await finalizers(cluster) == ["example.com/theirs", POOL_FINALIZER]


@pytest.mark.parametrize("is_observed", [True, False], ids=["the watch is there", "it is behind"])
async def test_a_second_look_writes_nothing(cluster: Cluster, is_observed: bool):
    """Lesson 11: in the steady state nothing is written."""
    await cluster.pool_life.reconcile(WHOLE)
    cluster.writes()
    for _ in range(3):
        if is_observed:
            await cluster.observe()
        cluster.time.seconds += 9 if not is_observed else 60
        assert await cluster.pool_life.reconcile(WHOLE) is None
    assert cluster.writes() == []
    assert cluster.events() == []


async def test_an_empty_pool_changes_its_allocation_at_once(cluster: Cluster):
    await until_stable(cluster)
    await change(cluster, **SLICES)
    assert cluster.allocation_state.index.state(WHOLE).capacity().total == 2  # still whole devices
    await run_pass(cluster)
    assert await allocation(cluster) == SLICED
    assert (await maintenance(cluster))["status"] == "False"
    assert cluster.allocation_state.index.state(WHOLE).capacity().available == 8
    assert cluster.events() == [
        ("GPUPoolReconfigured", "changed from Exclusive to TimeSlice (4 slices per device)")
    ]


async def test_a_pool_in_use_gives_out_nothing_until_its_pods_have_finished(cluster: Cluster):
    await until_stable(cluster)
    await run_pod(cluster, "a", "GPU-n1-0")
    await change(cluster, **SLICES)
    assert cluster.allocation_state.index.state(WHOLE).capacity().available == 0
    assert await run_pass(cluster) is not None
    found = await maintenance(cluster)
    assert (found["status"], found["reason"]) == ("True", "WaitingForPods")
    text = (
        "changes from Exclusive to TimeSlice (4 slices per device): waits for 1 pod with 1 unit"
        " (default/a)"
    )
    assert found["message"] == text
    assert await allocation(cluster) == RECORDED
    assert await running(cluster) == ["a"]
    cluster.writes()
    await run_pass(cluster, times=3)
    assert cluster.writes() == []
    await end_pod(cluster, "a")
    await run_pass(cluster)
    assert await allocation(cluster) == SLICED
    assert cluster.events() == [
        ("Maintenance", text),
        ("GPUPoolReconfigured", "changed from Exclusive to TimeSlice (4 slices per device)"),
    ]


async def test_allocation_that_is_changed_before_it_is_recorded_gives_no_device_of_a_pod_again(
    cluster: Cluster,
):
    """The pool's first status was late: a pod runs in the first cut, and the record has the second one."""
    await run_pod(cluster, "a", "GPU-n1-0")
    await change(cluster, **SLICES)
    await run_pass(cluster, times=2)
    assert await allocation(cluster) == SLICED
    found = cluster.allocation_state.index.state(WHOLE).capacity()
    assert (found.total, found.used, found.available) == (8, 4, 4)
    committed = commit_to(cluster.allocation_state, a_pod_facts("p", units=4))
    assert {unit.partition("::")[0] for unit in committed.units} == {"GPU-n1-1"}
    assert cluster.allocation_state.index.state(WHOLE).capacity().available == 0
    await end_pod(cluster, "a")
    assert cluster.allocation_state.index.state(WHOLE).capacity().available == 4


async def test_reservations_of_waiting_pods_are_given_up_and_commitments_are_waited_for(
    cluster: Cluster,
):
    await until_stable(cluster)
    reservation = reserve(cluster.allocation_state, a_demand(1))
    committed = commit_to(cluster.allocation_state, a_pod_facts("p"))
    await change(cluster, **SLICES)
    await run_pass(cluster)
    assert cluster.allocation_state.ledger.get(reservation.id) is None
    assert cluster.allocation_state.ledger.get(committed.id) is not None
    assert "1 unit of bindings in progress" in (await maintenance(cluster))["message"]
    assert await allocation(cluster) == RECORDED
    cluster.allocation_state.release(a_pod_facts("p").uid)
    await run_pass(cluster)
    assert await allocation(cluster) == SLICED


async def test_going_back_in_the_middle_ends_the_maintenance(cluster: Cluster):
    await until_stable(cluster)
    await run_pod(cluster, "a", "GPU-n1-0")
    await change(cluster, **SLICES)
    await run_pass(cluster)
    await change(cluster, **EXCLUSIVE)
    assert await run_pass(cluster) is None
    assert (await maintenance(cluster))["status"] == "False"
    assert await allocation(cluster) == RECORDED
    assert cluster.allocation_state.index.state(WHOLE).capacity().available == 1
    reasons = [reason for reason, _ in cluster.events()]
    assert reasons == ["Maintenance", "Maintenance"]


async def test_another_change_in_the_middle_is_the_one_that_is_made(cluster: Cluster):
    await until_stable(cluster)
    await run_pod(cluster, "a", "GPU-n1-0")
    await change(cluster, **SLICES)
    await run_pass(cluster)
    await change(cluster, allocation={"slicesPerDevice": 2})
    await end_pod(cluster, "a")
    await run_pass(cluster)
    assert await allocation(cluster) == {**SLICED, "slicesPerDevice": 2}
    assert cluster.allocation_state.index.state(WHOLE).capacity().total == 4


async def test_a_deadline_that_is_over_is_said_and_kills_nobody(cluster: Cluster):
    await until_stable(cluster)
    await run_pod(cluster, "a", "GPU-n1-0")
    await change(cluster, **SLICES, maintenance={"deadline": "10m"})
    await run_pass(cluster)
    began = (await maintenance(cluster))["lastTransitionTime"]
    cluster.events()
    cluster.time.seconds += 599
    await run_pass(cluster)
    assert (await maintenance(cluster))["reason"] == "WaitingForPods"
    cluster.time.seconds += 1
    await run_pass(cluster, times=3)
    found = await maintenance(cluster)
    assert (found["reason"], found["lastTransitionTime"]) == ("DeadlineExceeded", began)
    assert "the deadline of 10m has passed" in found["message"]
    assert await running(cluster) == ["a"]
    assert [reason for reason, _ in cluster.events()] == ["Maintenance"]


async def test_the_deadline_counts_from_before_a_restart(cluster: Cluster):
    await until_stable(cluster)
    await run_pod(cluster, "a", "GPU-n1-0")
    await change(cluster, **SLICES, maintenance={"deadline": "10m"})
    await run_pass(cluster)
    restarted = Cluster(cluster.api, cluster.client)
    restarted.time.seconds = cluster.time.seconds + 600
    await restarted.observe()
    await run_pass(restarted)
    assert (await maintenance(restarted))["reason"] == "DeadlineExceeded"
    assert [reason for reason, _ in restarted.events()] == ["Maintenance"]


async def test_a_switch_is_not_made_over_a_spec_that_changed_meanwhile(cluster: Cluster):
    await until_stable(cluster)
    await change(cluster, **SLICES)
    await cluster.client.merge_patch(GPU_POOLS, {"spec": EXCLUSIVE}, name="whole")
    assert await cluster.pool_life.reconcile(WHOLE) is not None
    assert await allocation(cluster) == RECORDED
    assert cluster.events() == []
    await cluster.observe()
    await run_pass(cluster)
    assert await allocation(cluster) == RECORDED


async def test_devices_that_are_cut_are_counted_until_all_are(cluster: Cluster):
    await until_stable(cluster)
    mig = {"mode": "MIG", "migProfile": "1g.10gb"}
    await change(cluster, allocation=mig)
    assert await run_pass(cluster) is not None
    found = await maintenance(cluster)
    assert (found["status"], found["reason"]) == ("True", "Rebuilding")
    for number, is_done in ((0, False), (1, True)):
        instance = {"profile": "1g.10gb", "uuid": f"MIG-{number}"}
        await cluster.report(f"n1-{number}", mig={"capable": True, "instances": [instance]})
        await cluster.observe()
        await run_pass(cluster)
        assert ((await maintenance(cluster))["status"] == "False") is is_done
    assert cluster.allocation_state.index.state(WHOLE).capacity().available == 2


async def test_devices_that_are_made_whole_are_counted_until_all_are(cluster: Cluster):
    for number in range(2):
        instance = {"profile": "1g.10gb", "uuid": f"MIG-{number}"}
        await cluster.report(f"n1-{number}", mig={"mode": "Enabled", "instances": [instance]})
    await change(cluster, allocation={"mode": "MIG", "migProfile": "1g.10gb"})
    await until_stable(cluster)
    await change(cluster, allocation={"mode": "Exclusive", "migProfile": None})
    await run_pass(cluster)
    assert "2 devices are made whole" in (await maintenance(cluster))["message"]
    await run_pass(cluster)
    for number, is_done in ((0, False), (1, True)):
        found = await maintenance(cluster)
        assert (found["status"], found["reason"]) == ("True", "Rebuilding")
        assert f"{number} of 2 devices are whole" in found["message"]
        await cluster.report(f"n1-{number}", mig={"mode": "Disabled", "instances": None})
        await cluster.observe()
        await run_pass(cluster)
        assert ((await maintenance(cluster))["status"] == "False") is is_done


async def test_units_are_counted_in_the_new_way_before_the_change_is_said_to_be_over(
    cluster: Cluster,
):
    two = {"capable": True, "instances": [{"profile": "2g.20gb", "uuid": "MIG-a"}]}
    await cluster.report("n1-0", mig=two)
    await cluster.client.delete(GPU_DEVICES, "n1-1")
    await change(cluster, allocation={"mode": "MIG", "migProfile": "2g.20gb"})
    await until_stable(cluster)
    await change(cluster, allocation={"migProfile": "1g.10gb"})
    await cluster.pool_life.reconcile(WHOLE)
    # The watch is behind: the index still counts instances of the old profile.
    assert await cluster.pool_life.reconcile(WHOLE) is not None
    assert (await maintenance(cluster))["reason"] == "Rebuilding"
    one = {"capable": True, "instances": [{"profile": "1g.10gb", "uuid": "MIG-b"}]}
    await cluster.report("n1-0", mig=one)
    await cluster.observe()
    await run_pass(cluster)
    assert (await maintenance(cluster))["status"] == "False"


async def test_a_pool_that_cannot_have_its_new_allocation_evicts_nobody(cluster: Cluster):
    """Lesson 18: what is misconfigured touches nothing."""
    for number in range(2):
        await cluster.report(f"n1-{number}", product="T4", mig={"capable": False})
    await until_stable(cluster)
    await run_pod(cluster, "a", "GPU-n1-0")
    mig = {"mode": "MIG", "migProfile": "1g.10gb"}
    await change(
        cluster,
        allocation=mig,
        maintenance={"policy": "Evict"},
        assignment={"requireAnnotation": False},
    )
    assert not cluster.validity_of(WHOLE).is_valid
    await run_pass(cluster)
    found = await maintenance(cluster)
    assert (found["status"], found["reason"]) == ("True", "Blocked")
    assert "no device of the pool can hold its MIG instances: T4" in found["message"]
    assert await running(cluster) == ["a"]
    await end_pod(cluster, "a")
    await run_pass(cluster)
    assert await allocation(cluster) == RECORDED


async def test_an_unsupported_pool_gets_no_allocation(cluster: Cluster):
    """Lesson 18."""
    await change(cluster, deviceSelector={"include": {"pciVendors": ["1002"]}})
    await run_pass(cluster, times=2)
    assert await allocation(cluster) is None


async def test_the_finalizers_of_a_pool_that_is_gone_are_not_missed(cluster: Cluster):
    await cluster.client.delete(GPU_POOLS, "whole")
    assert await cluster.pool_life.reconcile(WHOLE) is None


async def test_another_pool_of_the_same_name_has_a_life_of_its_own(cluster: Cluster):
    await until_stable(cluster)
    await run_pod(cluster, "a", "GPU-n1-0")
    await change(cluster, **SLICES)
    await run_pass(cluster)
    no_finalizers = {"metadata": {"finalizers": None}}
    await cluster.client.merge_patch(GPU_POOLS, no_finalizers, name="whole")
    await cluster.client.delete(GPU_POOLS, "whole")
    await cluster.add_pool()
    await cluster.observe()
    await until_stable(cluster)
    await change(cluster, **SLICES)
    await run_pass(cluster)
    assert [reason for reason, _ in cluster.events()] == ["Maintenance"]


async def test_a_refused_write_is_made_again(cluster: Cluster):
    await until_stable(cluster)
    await change(cluster, **SLICES)
    cluster.api.faults.fail("PATCH", "/gpupools/whole/status$", 409)
    assert await run_pass(cluster) is not None
    await run_pass(cluster)
    assert await allocation(cluster) == SLICED


async def test_a_life_cut_at_any_await_goes_on():
    """From a new pool to one with slices, a process cut at each suspension, and another that goes on."""

    async def attempt(number: int) -> bool:
        async with a_cluster() as cluster:

            async def live() -> None:
                await run_pass(cluster, times=2)
                await change(cluster, **SLICES)
                await run_pass(cluster, times=2)

            is_through = await runs_through(live(), cancel_at=number)
            restarted = Cluster(cluster.api, cluster.client)
            await restarted.observe()
            await change(restarted, **SLICES)
            await run_pass(restarted, times=3)
            assert await allocation(restarted) == SLICED
            assert await finalizers(restarted) == [POOL_FINALIZER]
            assert (await maintenance(restarted))["status"] == "False"
            restarted.writes()
            await run_pass(restarted)
            assert restarted.writes() == []
            return is_through

    assert await at_every_suspension(attempt) > 10
