"""Under load, with everything happening at once, the allocation state stays true."""

import asyncio
import functools
import random

from tests.cluster.environment import client, pods
from tests.cluster.system.installation import GpuSystem
from tests.cluster.system.objects import a_pod, all_bound, check_devices, units_of

SEED = 20
WORKERS = 6
ROUNDS = 15


async def holding(api, namespace) -> list[client.JsonObject]:
    """Return the pods that have devices, all of one moment."""
    listing = await api.get(pods.collection(namespace))
    return [
        pod
        for pod in listing["items"]
        if pods.is_bound(pod) and pod["status"].get("phase") not in {"Succeeded", "Failed"}
    ]


async def test_coming_and_going_of_pods_leaves_nothing_behind(make_pool, api, namespace, figures):
    pool = await make_pool(nodes=2, devices=4, slices=2)
    print(f"seed {SEED}")  # shown when the test fails
    fate = random.Random(SEED)
    done = asyncio.Event()

    async def live(worker: int) -> None:
        """Create a pod, end it at some moment of its life, and use its name again."""
        for round_ in range(ROUNDS):
            name = f"p-{worker}-{round_ % 2}"
            await api.create(pods.collection(namespace), a_pod(name, pool, fate.choice((1, 2, 3))))
            await asyncio.sleep(fate.choice((0, 0.005, 0.02, 0.1)))
            path = f"{pods.collection(namespace)}/{name}"
            if fate.random() < 0.3 and pods.is_running(await api.get(path)):
                await pods.finish_pod(api, namespace, name)
            await api.delete(path, options={"gracePeriodSeconds": fate.choice((0, 30))})
            await pods.wait_for_pod_gone(api, namespace, name)

    async def watch_over() -> int:
        most = 0
        while not done.is_set():
            most = max(most, len(check_devices(await holding(api, namespace))))
            await asyncio.sleep(0.02)
        return most

    async with asyncio.TaskGroup() as group:
        watching = group.create_task(watch_over())
        async with asyncio.TaskGroup() as living:
            for worker in range(WORKERS):
                living.create_task(live(worker))
        done.set()

    assert watching.result() > 0, "no pod lived long enough to have devices"
    await figures(pool, total=16, used=0, reserved=0, available=16)


def _have_started(found, count: int) -> bool:
    phases = [pod["status"].get("phase") for pod in found.values() if pods.is_bound(pod)]
    return len(phases) == count and "Pending" not in phases


async def test_pods_beyond_the_capacity_run_one_after_the_other(make_pool, api, namespace, figures):
    pool = await make_pool(devices=2)
    for number in range(6):
        await api.create(pods.collection(namespace), a_pod(f"job-{number}", pool))
    for wave in range(1, 4):
        # Running, and not only bound: kubelet's report of the start would undo the end.
        has_come = functools.partial(_have_started, count=2 * wave)
        found = await pods.wait_for_pods(api, namespace, has_come)
        now = await holding(api, namespace)
        assert len(check_devices(now)) == 2
        assert len(found) == 6
        for pod in now:
            await pods.finish_pod(api, namespace, pod["metadata"]["name"])
    await figures(pool, used=0, available=2)


async def test_two_schedulers_at_once_bind_every_pod_once(
    make_pool, system: GpuSystem, start_scheduler, api, namespace, audit, figures
):
    pool = await make_pool(nodes=4, devices=8)
    await system.scheduler.stop()
    for number in range(32):
        await api.create(pods.collection(namespace), a_pod(f"p-{number}", pool))
    mark = await audit.mark()

    async with asyncio.TaskGroup() as group:
        group.create_task(system.scheduler.start())
        group.create_task(start_scheduler(system.scheduler_configuration))

    found = await pods.wait_for_pods(api, namespace, lambda found: all_bound(found, 32))
    assert len(check_devices(found.values())) == 32
    await figures(pool, used=32, reserved=0)
    written = [
        write
        for write in await audit.writes(mark, resource="pods/binding")
        if write.namespace == namespace and write.succeeded
    ]
    assert len(written) == 32


async def test_pod_that_takes_the_name_of_another_gets_devices_of_its_own(
    make_pool, api, namespace, figures
):
    pool = await make_pool(devices=2)
    path = f"{pods.collection(namespace)}/same"
    await api.create(pods.collection(namespace), a_pod("same", pool))
    await pods.wait_for_pod(api, namespace, "same", pods.is_running)
    for _ in range(5):
        await api.delete(path, options={"gracePeriodSeconds": 0})
        created = await api.create(pods.collection(namespace), a_pod("same", pool))
        is_new = functools.partial(_is_bound_as, created["metadata"]["uid"])
        bound = await pods.wait_for_pod(api, namespace, "same", is_new)
        assert len(units_of(bound)) == 1
    await figures(pool, used=1, reserved=0, available=1)


def _is_bound_as(uid: str, pod: client.JsonObject) -> bool:
    return pod["metadata"]["uid"] == uid and pods.is_bound(pod)


async def test_server_ended_orderly_under_load_refuses_nothing_that_it_took(
    make_pool, system: GpuSystem, api, namespace, figures
):
    pool = await make_pool(nodes=4, devices=8)
    await system.scheduler.stop()
    for number in range(32):
        await api.create(pods.collection(namespace), a_pod(f"p-{number}", pool))
    await system.scheduler.start()
    await pods.wait_for_pods(api, namespace, lambda found: any(map(pods.is_bound, found.values())))

    assert await system.server.terminate() == 0
    await system.server.start()

    found = await pods.wait_for_pods(api, namespace, lambda found: all_bound(found, 32))
    assert len(check_devices(found.values())) == 32
    await figures(pool, used=32, reserved=0)
