"""From nothing to a running pod and off again, by Helm and on real containers."""

import asyncio
import time
from typing import TYPE_CHECKING

from api.version import VERSION
from tests.cluster.environment import pods, polling
from tests.cluster.node.install.release import left_behind
from tests.cluster.node.stories.test_assigned_devices import check
from tests.cluster.system.installation import NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.environment.client import ApiClient
    from tests.cluster.environment.prometheus import Prometheus
    from tests.cluster.node.install.release import Release
    from tests.cluster.node.stories.pools import Pools

OURS = pods.collection(NAMESPACE)
INSTALLED_WITHIN_S = 90
UNINSTALLED_WITHIN_S = 60
PODS_A_SECOND = 5
LOADED_AFTER_S = 5
"""Pods are created on by the new servers alone."""
SERVERS = 2
"""The chart's default."""
SERVER = "app.kubernetes.io/component=server"


async def test_a_release_serves_pods_through_an_upgrade_and_leaves_nothing(
    release: "Release",
    pools: "Pools",
    api: "ApiClient",
    prometheus: "Prometheus",
    progress: "Callable[[str], None]",
):
    started = time.monotonic()
    await release.install()
    ready = time.monotonic()
    resource = await pools.make(0, 1)
    offered = time.monotonic()
    first = await pools.run(pools.a_pod("first", resource))
    running = time.monotonic()
    progress(
        f"installed in {ready - started:.1f} s, a pool offers its devices after"
        f" {offered - started:.1f} s, its first pod runs after {running - started:.1f} s"
    )
    assert running - started <= INSTALLED_WITHIN_S
    await check(pools, first, "main")
    await pools.reported(first)

    await prometheus.start(await release.service_monitor(interval="1s"))
    await polling.eventually(lambda: is_scraped(prometheus), what="Prometheus scrapes the server")

    servers = await uids(api, SERVER)
    async with asyncio.TaskGroup() as group:
        over = asyncio.Event()
        created = group.create_task(keep_creating(pools, resource, over))
        started = time.monotonic()
        await release.upgrade(settings={"drain_s": 6})
        # The last of the old servers answers until others are known to.
        await polling.eventually(
            lambda: are_gone(api, servers),
            what="the servers before the upgrade are gone",
        )
        upgraded = time.monotonic() - started
        await asyncio.sleep(LOADED_AFTER_S)
        over.set()
    progress(f"upgraded in {upgraded:.0f} s, under {created.result()} pods")
    assert await restarted(api) == {}
    (status,) = (await pools.get("first"))["status"]["containerStatuses"]
    assert status["restartCount"] == 0
    await check(pools, await pools.get("first"), "main")

    await pools.clear_pods()
    started = time.monotonic()
    await release.uninstall()
    await polling.eventually(lambda: nothing_is_left(api), what="nothing is left")
    uninstalled = time.monotonic() - started
    progress(f"uninstalled in {uninstalled:.1f} s")
    assert uninstalled <= UNINSTALLED_WITHIN_S


async def keep_creating(pools: "Pools", resource: str, over: asyncio.Event) -> int:
    """Create pods that wait for devices, at a steady rate; each creation must succeed."""
    loop = asyncio.get_running_loop()
    started, count = loop.time(), 0
    async with asyncio.TaskGroup() as group:
        while not over.is_set():
            group.create_task(pools.create(pools.a_pod(f"more-{count}", resource)))
            count += 1
            await asyncio.sleep(max(0.0, started + count / PODS_A_SECOND - loop.time()))
    return count


async def is_scraped(prometheus: "Prometheus") -> bool:
    """Check that what the monitor selects is up, and says which version it is."""
    up = await prometheus.query("up")
    assert len(up) == SERVERS, f"{await prometheus.targets()}"
    assert {item[""] for item in up} == {1}, f"{await prometheus.targets()}"
    versions = [item["version"] for item in await prometheus.query("gpu_build_info")]
    assert versions == [VERSION] * SERVERS
    return True


async def uids(api: "ApiClient", selector: str) -> set[str]:
    """Return the uids of pods of ours."""
    found = (await api.get(OURS, labelSelector=selector))["items"]
    return {item["metadata"]["uid"] for item in found}


async def are_gone(api: "ApiClient", servers: set[str]) -> bool:
    return not servers & await uids(api, SERVER)


async def restarted(api: "ApiClient") -> dict[str, int]:
    """Return how often containers of our pods were restarted, by pod; not those that never were."""
    counts = {
        item["metadata"]["name"]: sum(
            status["restartCount"] for status in item["status"].get("containerStatuses", ())
        )
        for item in (await api.get(OURS))["items"]
    }
    return {name: count for name, count in counts.items() if count}


async def nothing_is_left(api: "ApiClient") -> bool:
    found = await left_behind(api)
    assert not found, "\n".join(found)
    return True
