"""One server answers; another waits for its Lease and takes over what it knew. Without both, other pods start."""

from typing import Any

import pytest

from manifests.constants import SYNCED_PATH
from tests.cluster.environment import client, pods, polling
from tests.cluster.system.installation import LEASE, GpuSystem
from tests.cluster.system.objects import a_pod
from tests.support import ports

SHORT_LEASE: dict[str, Any] = {"duration_s": 5}


async def holder(api) -> str:
    return str((await api.get(LEASE))["spec"].get("holderIdentity", ""))


async def test_asked_to_end_the_server_ends_orderly_and_gives_its_lease_back(system, api):
    assert await holder(api)
    assert await system.server.terminate() == 0
    assert not await holder(api)
    assert system.log()[-1]["event"] == "stopped"


async def test_standby_is_alive_but_not_ready_and_takes_over_after_a_kill(
    system: GpuSystem, make_pool, api, namespace, figures
):
    pool = await make_pool(devices=2)
    await system.scheduler.stop()
    await api.create(pods.collection(namespace), a_pod("held", pool, 2))
    await figures(pool, reserved=2)
    await system.server.terminate()
    first = await system.new_server("first", ports.free_port(), **SHORT_LEASE)
    second = await system.new_server("second", ports.free_port(), **SHORT_LEASE)
    try:
        await first.start()
        leader = await holder(api)
        await second.start(until=SYNCED_PATH)
        await second.until_standing_by()

        first.kill9()

        await second.wait_for("/readyz")
        assert await holder(api) not in {"", leader}
        serving = await polling.eventually(
            lambda: [line for line in second.logs() if line.get("event") == "serving"],
            what="the line that says what it took over",
        )
        assert serving[0]["reservations"] >= 1
        assert await second.terminate() == 0
    finally:
        first.kill9()
        second.kill9()


async def test_server_that_cannot_renew_its_lease_stands_by_and_leads_again(
    system: GpuSystem, control_plane
):
    await system.server.terminate()
    server = await system.new_server("cut-off", ports.free_port(), **SHORT_LEASE)
    try:
        await server.start()
        control_plane.apiserver.pause()
        try:
            await server.until_standing_by()
        finally:
            control_plane.apiserver.resume()
        await server.wait_for("/readyz")
        assert server.process.running
        assert await server.terminate() == 0
    finally:
        server.kill9()


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
