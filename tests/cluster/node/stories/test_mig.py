"""Devices are cut into MIG instances for a pool and made whole again, under pods that run beside."""

import asyncio
from typing import TYPE_CHECKING

from tests.cluster.environment import polling
from tests.cluster.node.stories.pools import Pools
from tests.cluster.node.stories.test_assigned_devices import check
from tests.cluster.system.objects import POOLS, PREFIX, units_of

if TYPE_CHECKING:
    from tests.cluster.node.stories.devices import NodeDevices

PROFILE = "3g.40gb"
MIG = {"mode": "MIG", "migProfile": PROFILE}


async def test_a_pool_of_instances(pools: Pools, devices: "NodeDevices"):
    beside = await pools.make(11)
    keeps = await pools.run(pools.a_pod("keeps", beside))
    resource = await pools.make(10, units=2, allocation=MIG)
    assert devices.driver.instances(devices.uuids[10]) == [PROFILE] * 2
    pod = await pools.run(pools.a_pod("instance", resource))
    other = await pools.run(pools.a_pod("another", resource))

    assert units_of(pod) != units_of(other)
    seen, its = await pools.seen("instance"), await pools.seen("another")
    assert seen.units == units_of(pod)
    assert seen.units[0].startswith("MIG-")
    # The device's own file, and the capabilities of this instance only.
    assert "nvidia10" in seen.files
    assert len(seen.files) == 3
    assert set(seen.files) & set(its.files) == {"nvidia10"}
    given = {file for item in (seen, its) for file in item.files} - {"nvidia10"}
    all_of_device = {
        name for item in range(8) for name in devices.capabilities(devices.devices[10], item)
    }
    assert given < all_of_device
    await pools.reported(pod)
    await check(pools, keeps, "main")
    await pools.recorded("GPUPartitioned", (await pools.device(10))["metadata"]["name"])


async def test_a_pool_is_cut_again_once_nothing_runs_on_its_device(
    pools: Pools, devices: "NodeDevices"
):
    resource = await pools.make(10)
    await pools.run(pools.a_pod("holds", resource))
    name = resource.removeprefix(PREFIX)
    await pools.api.patch(f"{POOLS}/{name}", {"spec": {"allocation": MIG}})

    async def waits() -> bool:
        found = (await pools.api.conditions(f"{POOLS}/{name}")).get("Maintenance", {})
        assert found.get("status") == "True", f"{found}"
        return True

    await polling.eventually(waits, what="maintenance")
    assert devices.driver.instances(devices.uuids[10]) == []
    assert (await pools.get("holds"))["status"]["phase"] == "Running"
    await pools.delete("holds")
    await pools.offers(resource, 2)
    pod = await pools.run(pools.a_pod("instance", resource))
    assert units_of(pod)[0].startswith("MIG-")
    await pools.delete("instance")

    # And back: the same device is one unit again.
    await pools.api.patch(
        f"{POOLS}/{name}", {"spec": {"allocation": {"mode": "Exclusive", "migProfile": None}}}
    )
    await pools.offers(resource, 1)
    assert devices.driver.instances(devices.uuids[10]) == []
    await check(pools, await pools.run(pools.a_pod("whole", resource)), "main")


async def test_a_device_with_a_process_is_left_alone_until_it_ends(
    pools: Pools, devices: "NodeDevices"
):
    """A user runs a program beside Kubernetes: NVML knows, nobody else does."""
    gpu = devices.uuids[10]
    devices.driver.run_process(gpu, 4242)
    try:
        async with asyncio.TaskGroup() as group:
            made = group.create_task(pools.make(10, units=2, allocation=MIG))
            device = (await pools.device(10))["metadata"]["name"]
            assert "process" in await pools.recorded("GPUPartitioningHeldUp", device)
            assert devices.driver.instances(gpu) == []
            devices.driver.end_processes(gpu)
    finally:
        devices.driver.end_processes(gpu)
    await pools.run(pools.a_pod("instance", made.result()))
