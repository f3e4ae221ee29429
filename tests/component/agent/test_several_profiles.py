"""From a pool of two MIG profiles to the instances of both in containers, on one device behind NVML's own ABI."""

from pathlib import Path
from typing import Any

from admission.webhooks import mutate_pod, validate_pod
from api.annotations import decode_reservation, encode_devices
from api.kinds.gpupool import GPUPool
from api.names import DEVICES_ANNOTATION, POOL_LABEL, RESERVATION_ANNOTATION, PoolName
from kube.resources import GPU_POOLS, PODS
from tests.component.agent.nvml_node import NvmlNode, nvml_node
from tests.component.agent.partitioning_node import PartitioningNode
from tests.component.agent.test_all_pools import an_agent, ids
from tests.component.reconciler.cluster import Cluster, a_cluster
from tests.support.kubelet.plugins import PluginsOfKubelet
from tests.support.nvml.library import a_device
from tests.support.polling import until
from tests.support.reviews import AdmissionSetup, a_pod_object, stored

UUID = a_device(0).uuid
POOL = PoolName("mixed")
LARGE, SMALL = "gpu.deckhouse.io/mixed.3g.40gb", "gpu.deckhouse.io/mixed.1g.10gb"
SHARES = [{"profile": "3g.40gb", "count": 1}, {"profile": "1g.10gb"}]


async def partition(cluster: Cluster, nvml: NvmlNode) -> list[str]:
    """What the agent does, and what its inventory says afterwards; return the profiles of the instances."""
    node = PartitioningNode(driver=nvml.driver)
    pool = await cluster.client.get(GPU_POOLS, GPUPool, POOL)
    node.pools_by_name = {POOL: pool}
    node.add_device(1, uuid=UUID, owner=POOL)
    await node.partitioner.work()
    await report(cluster, nvml)
    return nvml.nvml.instances(UUID)


async def report(cluster: Cluster, nvml: NvmlNode) -> None:
    device = await nvml.device(UUID)
    mig: dict[str, Any] = {
        "capable": True,
        "mode": "Enabled" if device.is_mig_enabled else "Disabled",
        "capacities": {profile.name: profile.capacity for profile in device.profiles},
        "instances": [{"profile": item.profile, "uuid": item.uuid} for item in device.instances],
    }
    await cluster.report("n1-2", uuid=UUID, mig=mig)
    await cluster.observe()


async def status(cluster: Cluster) -> dict[str, Any]:
    await cluster.reconcile_pool(POOL)
    return await cluster.status_of(POOL)


async def run_pod(cluster: Cluster, resource: str, name: str) -> tuple[str, ...]:
    """Create a pod as admission lets it be, bound to the units that are reserved for it; return them."""
    setup = AdmissionSetup(cluster.allocation_state, cluster.catalog)
    setup.now = cluster.time.now()
    pod = a_pod_object(1, resource.partition("/")[2], name)
    mutated = setup.ask(mutate_pod, pod).applied_to(pod)
    assert mutated["metadata"]["labels"][POOL_LABEL] == POOL
    note = decode_reservation(mutated["metadata"]["annotations"][RESERVATION_ANNOTATION])
    assert note is not None
    assert setup.ask(validate_pod, stored(mutated, uid=f"uid-{name}", name=name)).allowed
    bound = {DEVICES_ANNOTATION: encode_devices(note.devices)}
    pod["metadata"] |= {"namespace": "default", "annotations": bound}
    pod["spec"]["nodeName"] = "n1"
    await cluster.client.create(PODS, pod)
    cluster.allocation_state.release_reservations(POOL)
    await cluster.observe()
    return note.devices["main"]


async def test_pods_get_instances_of_two_profiles_of_one_device(
    tmp_path: Path, kubelet: PluginsOfKubelet
):
    async with a_cluster() as cluster, nvml_node(tmp_path, a_device(0)) as nvml:
        await cluster.add_pool(POOL, allocation={"mode": "MIG", "mig": SHARES})
        await cluster.add_device("n1-2", pool=POOL)
        await report(cluster, nvml)
        for _ in range(2):  # its finalizer, and its allocation
            await cluster.pool_life.reconcile(POOL)
            await cluster.observe()

        assert sorted(await partition(cluster, nvml)) == ["1g.10gb"] * 4 + ["3g.40gb"]
        found = await status(cluster)
        assert (found["phase"], found["resourceName"]) == ("Ready", f"{LARGE}, {SMALL}")
        assert (found["capacity"]["total"], found["capacity"]["available"]) == (5, 5)
        assert found["capacity"]["missing"] == 0

        (large,) = await run_pod(cluster, LARGE, "train")
        (small,) = await run_pod(cluster, SMALL, "serve")
        profiles = {item.uuid: item.profile for item in (await nvml.device(UUID)).instances}
        assert (profiles[large], profiles[small]) == ("3g.40gb", "1g.10gb")
        capacity = (await status(cluster))["capacity"]
        assert (capacity["used"], capacity["available"], capacity["largestFree"]) == (2, 3, 3)

        refused = AdmissionSetup(cluster.allocation_state, cluster.catalog)
        for name, cause in (
            ("mixed.3g.40gb", "but the largest node of pool mixed.3g.40gb has 1"),
            ("mixed", "no GPU pool serves gpu.deckhouse.io/mixed"),
        ):
            assert cause in refused.ask(mutate_pod, a_pod_object(2, name)).message

        async with an_agent(cluster, kubelet):
            await until(lambda: len(ids(kubelet, SMALL)) == 4 and len(ids(kubelet, LARGE)) == 1)
            assert ids(kubelet, LARGE) == [large]
            for resource, unit in ((LARGE, large), (SMALL, small)):
                response = await kubelet.allocate(resource, [unit])
                assert unit in str(response)
