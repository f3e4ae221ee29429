"""What an operator sees when all is quiet: true figures, and a server that writes nothing."""

import asyncio

from tests.cluster.environment import pods, polling
from tests.cluster.environment.audit import AuditLog
from tests.cluster.system.installation import SERVER_USER
from tests.cluster.system.objects import DEVICES, a_pod, all_bound, devices_of_pool

QUIET_S = 5


async def test_kubectl_shows_the_figures_of_a_pool_right_after_a_load(
    make_pool, api, kubectl, namespace, figures
):
    pool = await make_pool(nodes=2, devices=4)
    async with asyncio.TaskGroup() as group:
        for number in range(6):
            pod = a_pod(f"p-{number}", pool)
            group.create_task(api.create(pods.collection(namespace), pod))
    await pods.wait_for_pods(api, namespace, lambda found: all_bound(found, 6))

    await figures(pool, total=8, used=6, reserved=0, available=2, unhealthy=0)
    await status_says(api, pool, waiting=0)

    header, row = (await kubectl("get", "gpool", pool.name)).stdout.splitlines()
    current = dict(zip(header.split(), row.split(), strict=True))
    columns = ("TOTAL", "USED", "HELD", "FREE", "WAITING")
    assert [current[column] for column in columns] == ["8", "6", "0", "2", "0"]
    # Two units on one node, or one on each: LARGEST says which.
    assert current["LARGEST"] in {"1", "2"}
    assert (current["MODE"], current["PHASE"]) == ("Exclusive", "Ready")

    # Of more than one node has, a pod waits, and is counted.
    await api.create(pods.collection(namespace), a_pod("large", pool, units=3))
    await status_says(api, pool, waiting=1)
    await api.delete(f"{pods.collection(namespace)}/large")
    await status_says(api, pool, waiting=0)


async def status_says(api, pool, **expected: int) -> None:
    async def has() -> bool:
        status = await api.status(pool.path)
        assert {key: status.get(key) for key in expected} == expected, f"{status}"
        return True

    await polling.eventually(has, what=f"{pool.name} with {expected}")


async def test_state_and_units_of_a_device_follow_its_pods(
    make_pool, system, api, kubectl, namespace
):
    pool = await make_pool(devices=1, slices=4)
    (device,) = await devices_of_pool(api, pool.name)
    name = device["metadata"]["name"]

    async def shows(state: str, **units: int) -> bool:
        status = await api.status(f"{DEVICES}/{name}")
        expected = {"capacity": 4, "reserved": 0, "allocated": 0} | units
        assert (status.get("state"), status.get("units")) == (state, expected), f"{status}"
        return True

    await polling.eventually(lambda: shows("Assigned"), what="an assigned device")
    await system.scheduler.stop()
    await api.create(pods.collection(namespace), a_pod("held", pool))
    await polling.eventually(lambda: shows("Reserved", reserved=1), what="a reserved device")
    await system.scheduler.start()
    await pods.wait_for_pod(api, namespace, "held")
    await polling.eventually(lambda: shows("Assigned", allocated=1), what="a used device")
    assert pool.name in (await kubectl("get", "gdev", name)).stdout
    await pods.finish_pod(api, namespace, "held")
    await polling.eventually(lambda: shows("Assigned"), what="a free device")


async def test_free_units_of_a_cordoned_node_are_not_on_offer(make_pool, api, namespace, figures):
    pool = await make_pool(devices=2)
    await api.create(pods.collection(namespace), a_pod("running", pool))
    await figures(pool, used=1, available=1)
    await api.patch(f"/api/v1/nodes/{pool.nodes[0]}", {"spec": {"unschedulable": True}})

    await figures(pool, used=1, available=0, unhealthy=1)

    await api.patch(f"/api/v1/nodes/{pool.nodes[0]}", {"spec": {"unschedulable": None}})
    await figures(pool, used=1, available=1, unhealthy=0)


async def test_label_of_a_pool_leaves_the_node_with_its_last_device(make_pool, api):
    pool = await make_pool(devices=1)
    node = f"/api/v1/nodes/{pool.nodes[0]}"
    key = f"pool.gpu.deckhouse.io/{pool.name}"
    assert (await api.get(node))["metadata"]["labels"][key] == ""

    for device in await devices_of_pool(api, pool.name):
        await api.delete(f"{DEVICES}/{device['metadata']['name']}")

    async def is_gone() -> bool:
        return key not in (await api.get(node))["metadata"]["labels"]

    await polling.eventually(is_gone, what=f"{node} without label {key}")


async def test_quiet_system_writes_nothing_but_its_lease(make_pool, api, namespace, audit, figures):
    pool = await make_pool(devices=2)
    await api.create(pods.collection(namespace), a_pod("running", pool))
    await pods.wait_for_pod(api, namespace, "running", pods.is_running)
    await figures(pool, used=1, reserved=0)
    # A device's state is written when a burst is over, and what the test before this one has left is
    # cleared away.
    await polling.eventually(lambda: _is_idle(audit), what="a server at rest")
    mark = await audit.mark()

    # A stretch of real time is what this is about.
    await asyncio.sleep(QUIET_S)

    written = await audit.writes(mark, user=SERVER_USER)
    assert [write for write in written if write.resource != "leases"] == []
    assert len(written) <= QUIET_S


async def _is_idle(audit: AuditLog) -> bool:
    """Say whether the server has written nothing for two seconds."""
    mark = await audit.mark()
    await asyncio.sleep(2)
    written = await audit.writes(mark, user=SERVER_USER)
    return all(write.resource == "leases" for write in written)
