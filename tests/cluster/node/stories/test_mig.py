"""Devices are cut into MIG instances for a pool and made whole again, under pods that run beside."""

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from api.names import CONFIRM_ANNOTATION
from tests.cluster.environment import client, polling
from tests.cluster.node.stories.pools import Pools
from tests.cluster.node.stories.test_assigned_devices import check
from tests.cluster.system.objects import POOLS, PREFIX, units_of

if TYPE_CHECKING:
    from tests.cluster.kubectl_gpu.conftest import KubectlGpu
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


async def test_pods_get_instances_of_two_profiles_of_one_device(
    pools: Pools, devices: "NodeDevices"
):
    shares = [{"profile": PROFILE, "count": 1}, {"profile": "1g.10gb"}]
    pool = await pools.make(10, is_awaited=False, allocation={"mode": "MIG", "mig": shares})
    large, small = f"{pool}.{PROFILE}", f"{pool}.1g.10gb"
    await pools.offers_of(large, 1)
    await pools.offers_of(small, 4)
    assert sorted(devices.driver.instances(devices.uuids[10])) == ["1g.10gb"] * 4 + [PROFILE]

    given = {}
    for name, resource in (("train", large), ("serve", small)):
        pod = await pools.run(pools.a_pod(name, resource))
        seen = await pools.seen(name)
        assert seen.units == units_of(pod)
        await pools.reported(pod)
        given[name] = seen
    instances = (await pools.device(10))["status"]["mig"]["instances"]
    profiles = {item["uuid"]: item["profile"] for item in instances}
    assert [profiles[given[name].units[0]] for name in ("train", "serve")] == [PROFILE, "1g.10gb"]
    assert set(given["train"].files) & set(given["serve"].files) == {"nvidia10"}
    # A second of the large profile has no place, and is refused at once.
    with pytest.raises(client.ApiRefusedError, match=f"{PROFILE} has 1"):
        await pools.create(pools.a_pod("larger", large, 2))


async def test_a_device_that_another_program_partitions_is_withheld_until_an_operator_confirms(
    pools: Pools, devices: "NodeDevices", kubectl_gpu: "KubectlGpu"
):
    resource = await pools.make(10, 11, units=4, allocation=MIG)
    path = f"{POOLS}/{resource.removeprefix(PREFIX)}"
    # One of two instances of a device; the pod that waits needs all of both.
    used = set(units_of(await pools.run(pools.a_pod("holds", resource))))
    await pools.create(pools.a_pod("waits", resource, 4))
    parts = {number: await instances_of(pools, number) for number in (10, 11)}
    (idle,) = [number for number, units in parts.items() if not units & used]

    async def missing(count: int) -> None:
        async def are() -> bool:
            capacity = (await pools.api.status(path))["capacity"]
            assert capacity["missing"] == count, f"{capacity}"
            return True

        await polling.eventually(are, what=f"{count} units are missing")

    for _ in range(3):
        devices.driver.partition_by_hand(devices.uuids[idle], "1g.10gb")
        await missing(2)
        # Nothing runs there, so the agent makes the pool's instances again.
        await missing(0)
        assert devices.driver.instances(devices.uuids[idle]) == [PROFILE] * 2

    async def maintenance(status: str) -> dict[str, Any]:
        async def is_so() -> dict[str, Any]:
            found = (await pools.api.conditions(path)).get("Maintenance", {})
            assert found.get("status") == status, f"{found}"
            return found

        return await polling.eventually(is_so, what=f"Maintenance is {status}")

    assert (await maintenance("True"))["reason"] == "LayoutDiffers"
    generation = (await pools.api.get(path))["metadata"]["generation"]
    said = await kubectl_gpu("why", "waits", "-n", pools.namespace, "-o", "json")
    assert f"{CONFIRM_ANNOTATION}={generation}" in said.stdout, said.stdout + said.stderr
    assert json.loads(said.stdout)["state"] == "Waits"
    assert (await pools.get("holds"))["status"]["phase"] == "Running"

    confirmed = {"metadata": {"annotations": {CONFIRM_ANNOTATION: str(generation)}}}
    await pools.api.patch(path, confirmed)
    await maintenance("False")
    await pools.delete("holds")
    assert len(units_of(await pools.running("waits"))) == 4


async def instances_of(pools: Pools, number: int) -> set[str]:
    return {item["uuid"] for item in (await pools.device(number))["status"]["mig"]["instances"]}
