"""Whatever dies, and whenever: no device is given twice, none is lost, and what waited goes on."""

import asyncio
import contextlib
import os

import aiohttp
import pytest

from tests.cluster.environment import client, pods, polling
from tests.cluster.system.objects import a_pod, all_bound, check_devices, devices_of, reservation_of


async def create_pods(api, namespace, pool, count: int, prefix: str = "p") -> None:
    """Create them through admission, many at a time."""
    slots = asyncio.Semaphore(16)

    async def create(number: int) -> None:
        async with slots:
            await api.create(pods.collection(namespace), a_pod(f"{prefix}-{number}", pool))

    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(create(number))


@contextlib.asynccontextmanager
async def first_bound(system):
    """Start the scheduler; the body runs within milliseconds of the first binding.

    The server's log tells of it sooner than a watch of so many pods, and maybe before the scheduler is known to be ready.
    """
    seen = bytearray()

    def is_bound() -> bool:
        seen.extend(log.read())
        return b'"event":"pod bound"' in seen

    with system.server.process.log_path.open("rb") as log:
        log.seek(0, os.SEEK_END)
        async with asyncio.TaskGroup() as group:
            group.create_task(system.scheduler.start())
            await polling.eventually(is_bound, what="a first binding", every=0.002)
            yield


async def doubts(system) -> float:
    """Return how many bindings have ended without an answer."""
    name = "gpu_extender_duration_seconds_count"
    ended: float = (await system.metrics()).total(name, verb="bind", outcome="in_doubt")
    return ended


async def has_grown(system, before: float) -> bool:
    return await doubts(system) > before


@contextlib.contextmanager
def frozen(process):
    process.pause()
    try:
        yield
    finally:
        process.resume()


async def test_reservations_outlive_the_server_that_took_them(
    make_pool, system, api, namespace, figures
):
    pool = await make_pool(nodes=2, devices=4)
    await system.scheduler.stop()
    await create_pods(api, namespace, pool, 4)
    await figures(pool, reserved=4, available=4)

    await system.crash_server()
    await system.server.start()

    await figures(pool, reserved=4, available=4)
    assert (await system.metrics()).total("gpupool_capacity_reserved", pool=pool.name) == 4
    await create_pods(api, namespace, pool, 4, prefix="later")
    await figures(pool, reserved=8, available=0)
    await system.scheduler.start()
    found = await pods.wait_for_pods(api, namespace, lambda found: all_bound(found, 8))
    assert len(check_devices(found.values())) == 8
    assert all(devices_of(pod) == reservation_of(pod)["devices"] for pod in found.values())


async def test_server_killed_while_it_binds_gives_nothing_twice(
    make_pool, system, api, namespace, figures
):
    # So many that the last one is not bound before the first one is seen to be.
    pool = await make_pool(nodes=16, devices=8)
    await system.scheduler.stop()
    await create_pods(api, namespace, pool, 128)
    async with first_bound(system):
        await system.crash_server()
    listing = await api.get(pods.collection(namespace))
    assert not all(map(pods.is_bound, listing["items"])), "all were bound before the kill"

    await system.server.start()

    found = await pods.wait_for_pods(api, namespace, lambda found: all_bound(found, 128))
    assert len(check_devices(found.values())) == 128
    await figures(pool, used=128, reserved=0, available=0)


@pytest.mark.parametrize("server_dies", [False, True], ids=["server lives", "server dies too"])
async def test_api_server_that_freezes_amid_bindings_leaves_no_doubt_behind(
    server_dies, make_pool, system, control_plane, api, namespace, figures
):
    pool = await make_pool(nodes=4, devices=8)
    await system.scheduler.stop()
    await create_pods(api, namespace, pool, 32)
    before = await doubts(system)
    async with first_bound(system):
        with frozen(control_plane.apiserver):
            # A bind waits 4 s for its answer; those under way end in doubt, and land when it thaws.
            await polling.eventually(lambda: has_grown(system, before), what="a binding in doubt")
            if server_dies:
                system.server.kill9()
    await system.restore()

    found = await pods.wait_for_pods(api, namespace, lambda found: all_bound(found, 32))

    assert len(check_devices(found.values())) == 32
    await figures(pool, used=32, reserved=0, available=0)


async def test_pods_without_a_pool_do_not_notice_that_we_are_down(
    make_pool, system, api, namespace
):
    """Lesson 13: without us no pool pod comes in unmutated, and others do not notice."""
    pool = await make_pool(devices=1)
    await system.crash_server()

    plain = await api.create(pods.collection(namespace), pods.a_pod("plain", limits={"cpu": 1}))
    with pytest.raises(client.ApiRefusedError) as refused:
        await api.create(pods.collection(namespace), a_pod("gpu", pool))

    assert plain["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "1"}
    assert refused.value.status == 500
    assert 'failed calling webhook "pods.gpu.deckhouse.io"' in refused.value.message
    assert "connection refused" in refused.value.message
    await system.server.start()
    await api.create(pods.collection(namespace), a_pod("gpu", pool))
    await pods.wait_for_pod(api, namespace, "gpu")


async def test_pending_pods_outlive_restarts_of_server_and_scheduler(
    make_pool, system, api, namespace, figures
):
    pool = await make_pool(nodes=8, devices=8)
    await system.scheduler.stop()
    await create_pods(api, namespace, pool, 200)
    await figures(pool, reserved=64, available=0)

    assert await system.server.terminate() == 0
    await system.server.start()
    async with first_bound(system):
        pass
    system.scheduler.kill9()
    await system.scheduler.start()

    found = await pods.wait_for_pods(api, namespace, lambda found: all_bound(found, 64))
    bound = [pod for pod in found.values() if pods.is_bound(pod)]
    assert len(found) == 200
    assert len(check_devices(bound)) == 64
    await figures(pool, used=64, reserved=0, available=0)

    for pod in bound[:8]:
        await pods.finish_pod(api, namespace, pod["metadata"]["name"])

    found = await pods.wait_for_pods(api, namespace, lambda found: all_bound(found, 72))
    running = [
        pod
        for pod in found.values()
        if pods.is_bound(pod) and pod["status"]["phase"] != "Succeeded"
    ]
    assert len(check_devices(running)) == 64


async def test_server_outlives_a_restart_of_the_api_server(
    make_pool, system, control_plane, api, namespace, figures
):
    pool = await make_pool(devices=4)
    await api.create(pods.collection(namespace), a_pod("before", pool))
    await pods.wait_for_pod(api, namespace, "before", pods.is_running)
    process = system.server.process.pid

    await control_plane.stop_apiserver()
    with pytest.raises(aiohttp.ClientConnectionError):
        await api.get("/version")
    await control_plane.start_apiserver()
    await system.restore()

    assert system.server.process.pid == process
    await api.create(pods.collection(namespace), a_pod("after", pool, 3))
    # An API server that starts may look for the kind of our policy's parameter before it serves it, and looks
    # again after half a minute: until then it refuses all bindings.
    after = await pods.wait_for_pod(api, namespace, "after")
    before = await api.get(f"{pods.collection(namespace)}/before")
    assert len(check_devices([before, after])) == 4
    await figures(pool, used=4, available=0)
    # Every watch is back, that of nodes too.
    await pods.finish_pod(api, namespace, "after")
    await api.patch(f"/api/v1/nodes/{pool.nodes[0]}", {"spec": {"unschedulable": True}})
    await figures(pool, used=1, unhealthy=3, available=0)


async def test_deletions_during_a_crash_free_their_units(
    make_pool, system, api, namespace, figures
):
    pool = await make_pool(devices=4)
    await create_pods(api, namespace, pool, 4)
    await pods.wait_for_pods(api, namespace, lambda found: all_bound(found, 4))
    await figures(pool, used=4)

    await system.crash_server()
    for number in range(2):
        await api.delete(f"{pods.collection(namespace)}/p-{number}")
        await pods.wait_for_pod_gone(api, namespace, f"p-{number}")
    await system.server.start()

    await figures(pool, used=2, available=2)
