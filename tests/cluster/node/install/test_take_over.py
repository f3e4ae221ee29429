"""An installation that kubectl applied becomes a release of Helm, under pods that run, wait and hold units."""

import asyncio
from typing import TYPE_CHECKING, Any

from tests.cluster.environment import pods, polling
from tests.cluster.node.stories.test_assigned_devices import check
from tests.cluster.system.installation import NAMESPACE
from tests.cluster.system.objects import (
    POOLS,
    PREFIX,
    capacity,
    devices_of,
    reservation_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.environment.client import ApiClient
    from tests.cluster.node.install.release import Release
    from tests.cluster.node.stories.pools import Pools

OURS = pods.collection(NAMESPACE)
SERVERS = "app.kubernetes.io/component=server"
OTHERS = "app.kubernetes.io/component!=server"
PORT = {"containerPort": 15999, "hostPort": 15999}
"""Only kube-scheduler knows it: admission reserves units, and the pod waits until no other pod has the port."""


async def test_helm_takes_over_what_kubectl_applied_and_no_reservation_is_lost(
    release: "Release", pools: "Pools", api: "ApiClient", progress: "Callable[[str], None]"
):
    await release.apply_by_hand()
    await release.rolled_out()
    resource = await pools.make(0, 1, 2, 3, reservation={"ttl": "1h"})
    first = await pools.run(pools.a_pod("runs", resource))
    with_port = pools.node.a_pod("with-port")
    with_port["spec"]["containers"][0]["ports"] = [PORT]
    await pools.run(with_port)
    reserved = pools.a_pod("reserved", resource, 2)
    reserved["spec"]["containers"][0]["ports"] = [PORT]
    await pools.create(reserved)
    promised = reservation_of(await pools.get("reserved"))
    # It would be bound at once to units that are not reserved any more.
    await pools.create(pools.a_pod("waits", resource, 2))
    for name in ("reserved", "waits"):
        await pods.wait_for_pod(api, pools.namespace, name, pods.is_unschedulable)
    await polling.eventually(lambda: two_are_reserved(api, resource), what="two reserved units")
    # The leader has restarted kube-scheduler, for the CA that it made.
    await release.rolled_out()
    ours = await own_pods(api)

    over = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(keep_polling(api, pools, resource, promised, over))
        await release.take_over()
        assert await own_pods(api) == ours
        progress(f"taken over under {len(ours)} pods of ours")

        # A change of the servers' template replaces the servers, and nothing else.
        servers, others = await own_pods(api, SERVERS), await own_pods(api, OTHERS)
        # kubectl owns its fields still, beside Helm.
        await release.upgrade("--force-conflicts", settings={"drain_s": 6})
        await polling.eventually(
            lambda: are_gone(api, servers), what="the servers before the upgrade gone"
        )
        assert await own_pods(api, OTHERS) == others
        await two_are_reserved(api, resource)
        over.set()

    await pools.delete("with-port")
    bound = await pools.running("reserved")
    assert devices_of(bound) == promised["devices"]
    await check(pools, bound, "main")
    now = await pools.get("runs")
    assert now["metadata"]["uid"] == first["metadata"]["uid"]
    assert [status["restartCount"] for status in now["status"]["containerStatuses"]] == [0]
    await check(pools, now, "main")
    assert devices_of(now) == devices_of(first)
    assert pods.is_unschedulable(await pools.get("waits"))
    await pools.clear_pods()


async def keep_polling(
    api: "ApiClient", pools: "Pools", resource: str, promised: dict[str, Any], over: asyncio.Event
) -> None:
    """Fail where the pool's status or the pod says at any time that the reservation is not there."""
    while not over.is_set():
        pool = await api.get(f"{POOLS}/{resource.removeprefix(PREFIX)}")
        assert capacity(pool).get("reserved") == 2, f"{pool['status']}"
        assert reservation_of(await pools.get("reserved")) == promised
        assert not pods.is_bound(await pools.get("waits"))
        await asyncio.sleep(0.2)


async def two_are_reserved(api: "ApiClient", resource: str) -> bool:
    current = capacity(await api.get(f"{POOLS}/{resource.removeprefix(PREFIX)}"))
    assert (current["used"], current["reserved"]) == (1, 2), f"{current}"
    return True


async def own_pods(api: "ApiClient", selector: str = "") -> dict[str, int]:
    """Return uid -> restarts of our pods that are to stay."""
    return {
        item["metadata"]["uid"]: sum(
            status["restartCount"] for status in item["status"].get("containerStatuses", ())
        )
        for item in (await api.get(OURS, labelSelector=selector))["items"]
        if "deletionTimestamp" not in item["metadata"]
    }


async def are_gone(api: "ApiClient", servers: dict[str, int]) -> bool:
    found = (await api.get(OURS, labelSelector=SERVERS))["items"]
    return not servers.keys() & {item["metadata"]["uid"] for item in found}
