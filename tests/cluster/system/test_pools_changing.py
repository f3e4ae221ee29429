"""Pools and devices come and go while pods run and wait."""

from tests.cluster.environment import nodes, pods
from tests.cluster.system.objects import (
    DEVICES,
    POOLS,
    a_device,
    a_pod,
    a_pool_object,
    check_devices,
    devices_of_pool,
)


async def add_device(api, device) -> None:
    await api.create(DEVICES, device)
    path = f"{DEVICES}/{device['metadata']['name']}/status"
    await api.patch(path, {"status": device["status"]})


async def test_pod_that_waits_runs_when_a_device_comes_into_the_pool(
    make_pool, api, namespace, figures
):
    pool = await make_pool(devices=1)
    (node,) = pool.nodes
    await nodes.set_extended_resources(api, node, {pool.resource: 2})
    for name in ("first", "second"):
        await api.create(pods.collection(namespace), a_pod(name, pool))
    await pods.wait_for_pod(api, namespace, "second", pods.is_unschedulable)

    device = a_device(node, 1, pool.name)
    await add_device(api, device)

    found = await pods.wait_for_pod(api, namespace, "second")
    first = await pods.wait_for_pod(api, namespace, "first")
    assert len(check_devices([first, found])) == 2
    await figures(pool, total=2, used=2)
    await api.delete(f"{DEVICES}/{device['metadata']['name']}")


async def test_pool_that_is_made_again_knows_which_devices_are_in_use(
    make_pool, api, namespace, figures
):
    pool = await make_pool(devices=2)
    await api.create(pods.collection(namespace), a_pod("running", pool))
    running = await pods.wait_for_pod(api, namespace, "running", pods.is_running)

    await api.delete(pool.path)
    # Its finalizer holds it while a pod runs; an administrator may take that off all the same.
    await api.patch(pool.path, {"metadata": {"finalizers": None}})
    await api.create(POOLS, a_pool_object(pool.name))
    await figures(pool, total=2, used=1, available=1)

    await api.create(pods.collection(namespace), a_pod("next", pool))
    found = await pods.wait_for_pod(api, namespace, "next")
    assert len(check_devices([running, found])) == 2


async def test_device_that_leaves_the_pool_under_a_reservation_is_not_given_out(
    make_pool, system, api, namespace, figures
):
    pool = await make_pool(devices=2)
    await system.scheduler.stop()
    stored = await api.create(pods.collection(namespace), a_pod("held", pool))
    assert stored["metadata"]["name"] == "held"
    await figures(pool, reserved=1)
    (held,) = [
        device
        for device in await devices_of_pool(api, pool.name)
        if device["status"]["uuid"]
        in stored["metadata"]["annotations"]["gpu.deckhouse.io/reservation"]
    ]

    await api.delete(f"{DEVICES}/{held['metadata']['name']}")
    await figures(pool, total=1)
    await system.scheduler.start()

    bound = await pods.wait_for_pod(api, namespace, "held")
    assert check_devices([bound]) != [held["status"]["uuid"]]
    await figures(pool, total=1, used=1)
