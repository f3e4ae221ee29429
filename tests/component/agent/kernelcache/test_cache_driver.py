"""Both roles over kubelet's sockets: registration, a pod's volume, and calls at any moment."""

import asyncio
from pathlib import Path

import grpc
import pytest

from agent.csi.volume_request import PublishVolume
from api.csi.names import DRIVER_NAME
from tests.component.agent.kernelcache.cache_node import (
    LLAMA,
    OTHER_TEAM,
    TEAM,
    CacheNode,
    an_image,
)
from tests.support.cancellation import at_every_suspension, runs_through
from tests.support.csi import CsiClient, a_publish, some_attributes
from tests.support.kubelet.plugin_watcher import PluginWatcher
from tests.support.polling import until, until_async


def attributes(uid: str, **changed: str | None) -> dict[str, str]:
    return some_attributes("llama", TEAM, pod_uid=uid, **changed)


async def test_kubelet_finds_the_driver_and_a_pods_volume_waits_until_the_cache_is_there(
    node: CacheNode,
) -> None:
    """C1, C2, C3, C5: one owner of the store and of the driver (C8)."""
    digest = an_image(node.registry)
    registry = node.folder / "kubelet" / "plugins_registry"
    registry.mkdir()
    watcher = PluginWatcher(registry)
    async with node.running(serves=True):

        async def is_registered() -> bool:
            await watcher.scan()
            return DRIVER_NAME in watcher.nodes

        await until_async(is_registered)
        assert watcher.nodes == {DRIVER_NAME: "node-1"}
        await until(lambda: node.role._driver.missing == [])
        client = CsiClient(node.folder / "kubelet/plugins/csi.gkm.io/csi.sock")
        uid = await node.add_pod("worker")
        target = node.target(uid)
        target.parent.mkdir(parents=True)
        request = a_publish(target, attributes(uid))
        assert await refusal(client, request) == (
            grpc.StatusCode.NOT_FOUND,
            "GKMCache team-a/llama: there is no such cache",
        )
        await node.add_cache(digest, warm="Demand")

        async def is_published() -> bool:
            code = await refusal(client, request)
            assert code is None or code[0] in {
                grpc.StatusCode.UNAVAILABLE,
                grpc.StatusCode.NOT_FOUND,
            }
            return code is None

        await until_async(is_published)
        await node.until_state("Running", digest)
        foreign = a_publish(
            target,
            some_attributes("llama", TEAM, pod_uid=uid, pod_namespace=OTHER_TEAM),
        )
        found = await refusal(client, foreign)
        assert found is not None
        assert found[0] is grpc.StatusCode.PERMISSION_DENIED
        await client.unpublish(target)
        assert not target.exists()
        assert node.role.uses.references.all() == ()
    assert not (registry / "csi.gkm.io-reg.sock").exists()


async def refusal(client: CsiClient, request: object) -> tuple[grpc.StatusCode, str] | None:
    try:
        await client.publish(request)  # type: ignore[arg-type]
    except grpc.aio.AioRpcError as error:
        return error.code(), error.details() or ""
    return None


async def test_a_kubelet_whose_directory_is_elsewhere_is_a_problem_with_its_name(
    node: CacheNode,
) -> None:
    async with node.running(serves=True):
        directory = node.folder / "kubelet" / "plugins_registry"
        await until(lambda: str(directory) in node.context.problems.summary().text)
        assert node.role._driver.missing == [f"{DRIVER_NAME} is not registered with kubelet"]


async def test_a_mount_that_is_cancelled_at_any_moment_leaves_references_and_mounts_equal(
    node: CacheNode,
) -> None:
    """C10."""
    digest = an_image(node.registry)
    async with node.running():
        await node.add_cache(digest)
        await node.until_state("Extracted", digest)
        uid = await node.add_pod("worker")

        async def attempt(number: int) -> bool:
            is_through = await runs_through(mount(node, uid), cancel_at=number)
            await until(lambda: not node.role.uses._check_requested.is_set())
            await node.role.uses.read()
            mounted = {str(target) for target, item in node.mounter.mounted.items() if item}
            assert {reference.target for reference in node.role.uses.references.all()} == mounted
            for target in mounted:
                node.mounter.unmount(Path(target))
                node.source.released(Path(target))
            return is_through

        assert await at_every_suspension(attempt) >= 2


async def mount(node: CacheNode, uid: str) -> None:
    plan = PublishVolume(volume="csi-1", target=node.target(uid), cache=LLAMA, pod=f"{TEAM}/worker")
    async with node.source.source_of(plan) as found:
        await asyncio.sleep(0)
        node.target(uid).mkdir(parents=True, exist_ok=True)
        node.mounter.mount(found, node.target(uid))  # type: ignore[arg-type]  # it is there
        await asyncio.sleep(0)


@pytest.mark.parametrize("is_deleted", [False, True], ids=["written", "deleted"])
async def test_writing_the_object_may_be_cancelled_at_any_moment(
    node: CacheNode, is_deleted: bool
) -> None:
    digest = an_image(node.registry)
    async with node.running():
        await node.add_cache(digest)
        await node.until_state("Extracted", digest)
        report = node.role.writer._caches
    assert report is not None
    desired = {} if is_deleted else report

    async def attempt(number: int) -> bool:
        async with node.running(writes=False):
            await until(lambda: node.role.objects.is_synced)
            # The state before: none, or the object of the last attempt.
            node.role.writer.report(report if is_deleted else {}, ())
            await node.role.writer.reconcile()
            node.role.writer.report(desired, ())
            is_through = await runs_through(node.role.writer.reconcile(), cancel_at=number)
            for _ in range(3):
                await node.role.writer.reconcile()
            found = await node.object()
            assert (found is None) is is_deleted
            if found is not None:
                assert set(found.status.caches or {}) == {"llama"}
                assert found.metadata.finalizers == ["gkm.io.llama/finalizer"]
        return is_through

    assert await at_every_suspension(attempt) >= 2
