"""What is told of a pool beside its status: events once per change, and gauges that go with it."""

from typing import Any

from api.names import PoolName
from kube.resources import GPU_DEVICES, GPU_POOLS
from telemetry.metrics import REGISTRY
from tests.component.reconciler.cluster import Cluster, gauge
from tests.support.allocation_state import commit_to
from tests.support.builders import a_pod_facts

AMD = {"include": {"pciVendors": ["1002"]}}


async def change(cluster: Cluster, **spec: Any) -> None:
    await cluster.client.merge_patch(GPU_POOLS, {"spec": spec}, name="whole")
    await cluster.observe()


async def conditions(cluster: Cluster) -> dict[str, str]:
    return {
        condition["type"]: condition["status"]
        for condition in (await cluster.status_of())["conditions"]
    }


def exported(condition: str) -> float | None:
    labels = {"pool": "whole", "condition": condition}
    return REGISTRY.get_sample_value("gpupool_condition", labels)


def slots(node: str = "n1") -> float | None:
    return REGISTRY.get_sample_value("gpupool_node_slots", {"pool": "whole", "node": node})


async def test_an_unsupported_pool_says_so(cluster: Cluster):
    """Lesson 18."""
    await change(cluster, deviceSelector=AMD)
    await cluster.reconcile_pool()
    found = await conditions(cluster)
    assert (found["Ready"], found["Supported"]) == ("False", "False")
    assert (await cluster.status_of())["phase"] == "Misconfigured"


async def test_a_misconfiguration_is_told_once(cluster: Cluster):
    await cluster.reconcile_pool()
    cluster.events()
    await cluster.add_pool("aaa", resource={"name": "gpu.deckhouse.io/one"})
    await cluster.client.delete(GPU_POOLS, "whole")
    await cluster.add_pool("whole", resource={"name": "gpu.deckhouse.io/one"})
    await cluster.observe()
    for _ in range(3):
        await cluster.reconcile_pool()
        await cluster.observe()
    ((reason, note),) = cluster.events()
    assert reason == "Misconfigured"
    assert "belongs to the older pool aaa" in note


async def test_a_restart_tells_nothing_again(cluster: Cluster):
    commit_to(cluster.allocation_state, a_pod_facts("c", 2))
    await cluster.reconcile_pool()
    reasons = [reason for reason, _ in cluster.events()]
    assert reasons == ["GPUPoolReady", "GPUPoolCapacityLow"]
    restarted = Cluster(cluster.api, cluster.client)
    await restarted.observe()
    commit_to(restarted.allocation_state, a_pod_facts("c", 2))
    await restarted.reconcile_pool()
    assert restarted.events() == []


async def test_few_units_are_told_each_time_they_become_few(cluster: Cluster):
    await cluster.reconcile_pool()
    cluster.events()
    for _ in range(2):
        pod = a_pod_facts("c", 2)
        commit_to(cluster.allocation_state, pod)
        await cluster.reconcile_pool()
        await cluster.reconcile_pool()
        assert [reason for reason, _ in cluster.events()] == ["GPUPoolCapacityLow"]
        cluster.allocation_state.release(pod.uid)
        await cluster.reconcile_pool()
        assert cluster.events() == []


async def test_conditions_devices_and_slots_are_shown_and_go_with_the_pool(cluster: Cluster):
    await cluster.reconcile_pool()
    assert (exported("Ready"), exported("Misconfigured"), exported("Maintenance")) == (1, 0, 0)
    assert gauge("gpupool_assignments") == 2
    assert slots() == 2
    await cluster.client.delete(GPU_POOLS, "whole")
    await cluster.observe()
    await cluster.pool_status.reconcile(PoolName("whole"))
    assert (exported("Ready"), gauge("gpupool_assignments"), slots()) == (None, None, None)


async def test_a_node_that_leaves_the_pool_loses_its_slots(cluster: Cluster):
    await cluster.add_node("n2")
    await cluster.add_device("n2-0")
    await cluster.observe()
    await cluster.reconcile_pool()
    assert (slots("n1"), slots("n2")) == (2, 1)
    await cluster.client.delete(GPU_DEVICES, "n2-0")
    await cluster.observe()
    await cluster.reconcile_pool()
    assert (slots("n1"), slots("n2")) == (2, None)


async def test_conditions_of_other_writers_are_shown_too(cluster: Cluster):
    maintenance = {
        "type": "Maintenance",
        "status": "True",
        "reason": "WaitingForPods",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    body = {
        "apiVersion": "gpu.deckhouse.io/v1alpha1",
        "kind": "GPUPool",
        "metadata": {"name": "whole"},
        "status": {"conditions": [maintenance]},
    }
    await cluster.client.apply(GPU_POOLS, body, field_manager="life", subresource="status")
    await cluster.observe()
    await cluster.reconcile_pool()
    assert exported("Maintenance") == 1


async def test_devices_without_a_uuid_and_mig_devices_without_instances_export_nothing(
    cluster: Cluster,
):
    """Lessons 5 and 6: capacity is what is exported, device by device."""
    await cluster.report("n1-0", uuid="")
    await cluster.observe()
    await cluster.reconcile_pool()
    assert (await cluster.status_of())["capacity"]["total"] == 1
    await change(cluster, allocation={"mode": "MIG", "migProfile": "1g.10gb"})
    instances = [{"profile": "1g.10gb", "uuid": f"MIG-{number}"} for number in range(3)]
    await cluster.report("n1-0", uuid="GPU-n1-0", mig={"capable": True, "instances": instances})
    await cluster.observe()
    await cluster.reconcile_pool()
    assert (await cluster.status_of())["capacity"]["total"] == 3


async def test_a_device_that_leaves_the_pool_counts_as_unhealthy_until_it_has_left(
    cluster: Cluster,
):
    draining = {
        "type": "Draining",
        "status": "True",
        "reason": "SelectorMismatch",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    await cluster.report("n1-0", conditions=[draining])
    await cluster.observe()
    await cluster.reconcile_pool()
    capacity = (await cluster.status_of())["capacity"]
    assert (capacity["total"], capacity["available"], capacity["unhealthy"]) == (2, 1, 1)
