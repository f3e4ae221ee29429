"""A container has exactly the devices that its pod was bound with: from mutation to `ls /dev` in it."""

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.cluster.environment import pods, polling
from tests.cluster.node.stories.pools import INVENTORIES, Pools
from tests.cluster.system.objects import PREFIX, devices_of, units_of

if TYPE_CHECKING:
    from tests.cluster.environment.client import ApiClient, JsonObject
    from tests.cluster.node.environment.real_node import RealNode

SLEEP = ["sleep", "100000"]


async def check(pools: Pools, pod: "JsonObject", *containers: str) -> None:
    """Check that containers have what the annotation says, as environment and as device files."""
    assigned = devices_of(pod)
    for container in containers:
        seen = await pools.seen(pod["metadata"]["name"], container)
        assert seen.units == sorted(assigned[container]), f"{container}: {seen}, {assigned}"
        assert seen.files == pools.files_of(assigned[container]), f"{container}: {seen}"
        assert seen.visible == "void"


def a_container(name: str, resource: str, units: int) -> "JsonObject":
    return {
        "name": name,
        "image": "localhost/busybox:1",
        "imagePullPolicy": "Never",
        "command": SLEEP,
        "resources": {"limits": {resource: str(units)}},
    }


async def test_one_device(pools: Pools, whole: str):
    pod = await pools.run(pools.a_pod("one", whole))

    assert pod["spec"]["nodeName"] == pools.node.name
    assert len(units_of(pod)) == 1
    await check(pools, pod, "main")
    assert (await pools.seen("one")).pool == whole.removeprefix(PREFIX)
    await pools.reported(pod)


async def test_two_of_eight_devices(pools: Pools, whole: str):
    first = await pools.run(pools.a_pod("first", whole, 2))
    second = await pools.run(pools.a_pod("second", whole, 2))

    assert not set(units_of(first)) & set(units_of(second))
    await check(pools, first, "main")
    await check(pools, second, "main")


async def test_a_container_without_the_resource_has_no_device(pools: Pools, whole: str):
    pod = pools.a_pod("pair", whole)
    pod["spec"]["containers"].append(a_container("beside", whole, 0))
    del pod["spec"]["containers"][1]["resources"]
    await pools.run(pod)

    assert (await pools.seen("pair", "beside")).files == []
    assert len((await pools.seen("pair")).files) == 1


async def test_libraries_of_the_driver_are_there_and_cannot_be_changed(pools: Pools, whole: str):
    await pools.run(pools.a_pod("one", whole))
    current = "cat /usr/local/nvidia/lib64/libnvidia-cfg.so.1; echo x > /usr/local/nvidia/lib64/libnvidia-cfg.so.1"
    said = await pools.node.exec(pools.namespace, "one", ["sh", "-c", f"{current} || echo refused"])

    assert said.startswith("a library of the driver")
    assert said.endswith("refused\n")


async def test_time_slices(pools: Pools, sliced: str):
    pod = await pools.run(pools.a_pod("slice", sliced))
    both = await pools.run(pools.a_pod("slices", sliced, 2))

    assert all("::" in unit for unit in (*units_of(pod), *units_of(both)))
    await check(pools, pod, "main")
    await check(pools, both, "main")
    await pools.reported(both)


async def test_two_containers_of_one_pod(pools: Pools, whole: str):
    pod = pools.a_pod("two", whole, 1)
    pod["spec"]["containers"].append(a_container("second", whole, 2))
    pod = await pools.run(pod)

    assigned = devices_of(pod)
    assert not set(assigned["main"]) & set(assigned["second"])
    await check(pools, pod, "main", "second")
    await pools.reported(pod)


async def test_a_sidecar_keeps_its_own(pools: Pools, whole: str):
    sidecar = a_container("beside", whole, 1) | {"restartPolicy": "Always"}
    pod = await pools.run(pools.a_pod("with-sidecar", whole, 2, initContainers=[sidecar]))

    assigned = devices_of(pod)
    assert not set(assigned["main"]) & set(assigned["beside"])
    await check(pools, pod, "main", "beside")
    await pools.reported(pod)


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 2), (3, 1)])
async def test_an_init_container_leaves_its_devices_to_the_next(
    pools: Pools, whole: str, before: int, after: int
):
    init = a_container("init", whole, before) | {"command": ["sh", "-c", "echo $GPU_UNITS"]}
    pod = await pools.run(pools.a_pod("steps", whole, after, initContainers=[init]))

    assigned = devices_of(pod)
    said = await pools.node.logs(pools.namespace, "steps", container="init")
    assert sorted(said.strip().split(",")) == sorted(assigned["init"])
    seen = await pools.seen("steps")
    assert len(seen.units) == after
    # Where the init container has as many or more, kubelet picks among its devices by itself.
    assert set(seen.units) <= set(assigned["init"]) | set(assigned["main"])
    # What it has no more after its init container is still its pod's, and nobody else's.
    others = await pools.run(pools.a_pod("others", whole, 8 - max(before, after)))
    assert not set(units_of(others)) & {*assigned["init"], *assigned["main"]}
    await check(pools, others, "main")


async def test_ten_pods_bound_in_one_burst(pools: Pools, sliced: str):
    names = [f"burst-{number}" for number in range(10)]
    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(pools.create(pools.a_pod(name, sliced)))
    found = [await pools.running(name) for name in names]

    units = [unit for pod in found for unit in units_of(pod)]
    assert len(units) == len(set(units)) == len(names)
    for pod in found:
        await check(pools, pod, "main")
        await pools.reported(pod)


async def test_a_node_full_of_pods_of_whole_devices(pools: Pools, whole: str):
    names = [f"full-{number}" for number in range(8)]
    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(pools.create(pools.a_pod(name, whole)))
    for name in names:
        await check(pools, await pools.running(name), "main")

    # One more waits, and gets the device of the one that ends.
    await pools.create(pools.a_pod("waits", whole))
    await pods.wait_for_pod(pools.api, pools.namespace, "waits", pods.is_unschedulable)
    freed = units_of(await pools.get("full-3"))
    await pools.delete("full-3")
    waits = await pools.running("waits")
    assert units_of(waits) == freed
    await check(pools, waits, "main")


async def test_a_pod_of_the_same_name_gets_what_it_is_promised_itself(pools: Pools, whole: str):
    await pools.run(pools.a_pod("first", whole))
    before = await pools.run(pools.a_pod("again", whole, 2))
    await pools.delete("again", "first")
    after = await pools.run(pools.a_pod("again", whole, 3))

    assert before["metadata"]["uid"] != after["metadata"]["uid"]
    await check(pools, after, "main")
    await pools.reported(after)


async def test_what_ended_is_reported_no_more(
    pools: Pools, whole: str, api: "ApiClient", node: "RealNode"
):
    pod = await pools.run(pools.a_pod("ends", whole))
    await pools.reported(pod)
    await pools.delete("ends")

    async def is_forgotten() -> bool:
        status = await api.status(f"{INVENTORIES}/{node.name}")
        return "ends" not in [item["pod"] for item in status.get("allocations") or []]

    await polling.eventually(is_forgotten, what="the ended pod's report is gone")
