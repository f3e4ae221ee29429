"""Servers replaced one after the other, as a Deployment does it, while users create pods.

A new server is alive and follows the cluster before an old one is told to end. The stream of
creations is `tests.cluster.environment.pod_creation`, which a test of the chart can use as well.
"""

import asyncio

import pytest

from manifests.constants import SYNCED_PATH
from tests.cluster.environment import pods, polling, wires
from tests.cluster.environment.pod_creation import creating_pods
from tests.cluster.system.installation import GpuSystem
from tests.cluster.system.objects import a_pod, all_bound, check_devices
from tests.cluster.system.test_hand_over import DEFAULTS, Replicas
from tests.support import ports

CREATIONS_PER_SECOND = 5.0
LOAD_S, LONG_LOAD_S = 20.0, 60.0


@pytest.fixture
async def two_replicas(system: GpuSystem, request):
    """Two servers with default leadership behind a Service, and a way to start more."""
    await system.server.terminate()
    front = int(system.url.rsplit(":", 1)[1])
    planned = [ports.free_port() for _ in range(4)]
    async with wires.Service(front, planned) as service:
        found = Replicas(service)

        async def start_another() -> int:
            number = len(found.servers)
            port = planned[number]
            server = await system.new_server(
                f"{request.node.name}-{number}", port, drain_s=5.0, **DEFAULTS
            )
            found.servers[port] = server
            await server.start(until=SYNCED_PATH)
            return port

        try:
            for _ in range(2):
                await start_another()
            await found.until_routed()
            yield found, start_another
        finally:
            for server in found.servers.values():
                server.kill9()


async def test_upgrade_of_both_servers_fails_no_creation_and_restarts_no_pod(
    two_replicas, make_pool, api, namespace, is_long: bool
):
    replicas, start_another = two_replicas
    pool = await make_pool(nodes=6, devices=8, slices=32)
    load_s = LONG_LOAD_S if is_long else LOAD_S
    await api.create(pods.collection(namespace), a_pod("before", pool))
    before = await pods.wait_for_pod(api, namespace, "before")

    began = asyncio.get_running_loop().time()
    async with (
        creating_pods(
            api, namespace, lambda name: a_pod(name, pool), per_second=CREATIONS_PER_SECOND
        ) as load,
    ):
        for old in list(replicas.servers):
            await start_another()
            replicas.service.terminate(old)
            assert await replicas.servers[old].terminate() == 0
        replaced_s = asyncio.get_running_loop().time() - began
        await asyncio.sleep(max(0.0, load_s - replaced_s))
    load.check(at_least=int(load_s * CREATIONS_PER_SECOND * 0.8))

    count = len(load.created) + 1
    found = await pods.wait_for_pods(api, namespace, lambda found: all_bound(found, count))
    print(
        f"upgrade: both servers replaced in {replaced_s:.1f} s; {len(load.created)} pods created,"
        f" none refused, the slowest in {load.slowest_s:.2f} s; all bound"
    )
    assert len(found) == count
    check_devices(found.values())

    async def runs_as_before() -> bool:
        now = await api.get(f"{pods.collection(namespace)}/before")
        assert now["metadata"]["uid"] == before["metadata"]["uid"]
        statuses = now["status"].get("containerStatuses", [])
        assert all(status["restartCount"] == 0 for status in statuses)
        return True

    await polling.eventually(runs_as_before, what="the pod of before")
