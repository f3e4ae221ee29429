"""Leaf and CA are replaced while pods are created: no creation fails, and every pod is bound."""

import asyncio
import base64

from tests.cluster.environment import pods
from tests.cluster.system.certificates import data_of, injected, make_again
from tests.cluster.system.objects import a_pod, all_bound, check_devices


async def test_no_creation_fails_while_certificates_are_replaced(make_pool, system, api, namespace):
    pool = await make_pool(nodes=2, devices=4, slices=16)
    made, replaced = 0, asyncio.Event()

    async def create_pods() -> None:
        nonlocal made
        while not replaced.is_set():
            await api.create(pods.collection(namespace), a_pod(f"p-{made}", pool))
            made += 1
            await asyncio.sleep(0.25)

    async with asyncio.TaskGroup() as group:
        group.create_task(create_pods())
        old = await data_of(api)
        data = await make_again(api, "ca.key", "ca.crt")
        assert base64.b64decode(data["ca.crt"]).endswith(base64.b64decode(old["ca.crt"]))
        await injected(api, data)
        # What the kubelet does with the mounted Secret; a new leaf comes a month later.
        await system.refresh_scheduler()
        for _ in range(2):
            data = await make_again(api, "tls.crt", "tls.crt")
        replaced.set()

    found = await pods.wait_for_pods(api, namespace, lambda found: all_bound(found, made))
    check_devices(found.values())
