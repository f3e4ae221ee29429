"""The stock kube-scheduler calls the extender by HTTP/2: on one connection, and on another where that is dead."""

from typing import TYPE_CHECKING

import pytest

from tests.cluster.environment import pods, polling, wires
from tests.cluster.system.objects import a_pod, all_bound
from tests.support import ports

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.cluster.system.installation import GpuSystem

COUNT = 40
NOTICED_WITHIN_S = 120
"""10 s on an idle machine."""


@pytest.fixture
async def wire(system: "GpuSystem") -> "AsyncIterator[wires.Wire]":
    """What lies between kube-scheduler and the server; their handshakes pass it."""
    port = ports.free_port()
    url = f"https://127.0.0.1:{port}"
    async with wires.Wire(port, int(system.url.rpartition(":")[2])) as wire:
        system.scheduler.configure(system.scheduler_configuration.replace(system.url, url))
        await system.scheduler.restart()
        yield wire
        system.scheduler.configure(system.scheduler_configuration)
        await system.scheduler.restart()


async def test_all_pods_of_a_burst_are_placed_on_one_connection(
    wire, system, make_pool, api, namespace
):
    pool = await make_pool(nodes=2, devices=4, slices=8)
    await system.scheduler.stop()
    for number in range(COUNT):
        await api.create(pods.collection(namespace), a_pod(f"p-{number}", pool))
    before = wire.connections
    await system.scheduler.start()
    await pods.wait_for_pods(api, namespace, lambda found: all_bound(found, COUNT))
    assert wire.connections - before == 1


async def test_connection_on_which_nothing_comes_back_is_given_up(wire, make_pool, api, namespace):
    """As when the server's node has lost power: no packet says that it is gone."""
    pool = await make_pool(devices=4)
    await api.create(pods.collection(namespace), a_pod("before", pool))
    await pods.wait_for_pod(api, namespace, "before")
    before = wire.connections
    wire.hold()
    await api.create(pods.collection(namespace), a_pod("meanwhile", pool))

    async def another() -> bool:
        return bool(wire.connections > before)

    await polling.eventually(another, what="another connection", within=NOTICED_WITHIN_S)
    wire.let_go()
    await pods.wait_for_pod(api, namespace, "meanwhile")
