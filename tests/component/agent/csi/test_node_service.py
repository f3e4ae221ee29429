"""CSI's Node service over a real socket: what it mounts, when it refuses, and what a failure leaves."""

import asyncio
import threading
from collections.abc import Awaitable
from pathlib import Path

import grpc
import pytest
import structlog

from agent.csi.volume_source import Absence, NotThere
from api.cache_name import CacheName
from api.csi.names import NODE_GET_STATS, NODE_PUBLISH
from api.csi.proto import csi_pb2
from telemetry.metrics import REGISTRY
from tests.component.agent.csi.driver import LLAMA, Driver, a_driver
from tests.support.csi import CALL_WITHIN_S, CsiClient, a_publish, some_attributes
from tests.support.polling import until


async def refusal(call: Awaitable[object]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value.code(), refused.value.details() or ""


async def sizes(client: CsiClient, path: Path, volume: str = "csi-1") -> dict[int, tuple[int, ...]]:
    request = csi_pb2.NodeGetVolumeStatsRequest(volume_id=volume, volume_path=str(path))
    response = await client.call(NODE_GET_STATS, request, csi_pb2.NodeGetVolumeStatsResponse)
    return {item.unit: (item.used, item.total, item.available) for item in response.usage}


async def test_a_cache_is_mounted_at_the_pods_target(driver: Driver):
    volume, target = driver.a_cache(), driver.a_pod()
    with structlog.testing.capture_logs() as lines:
        await driver.client.publish(a_publish(target))
    assert driver.mounter.mounted == {target: [volume]}
    (reported,) = [line for line in lines if line["event"] == "cache mounted"]
    assert (reported["cache"], reported["pod"]) == ("GKMCache team-a/llama", "team-a/worker")
    assert reported["digest"] == volume.digest


async def test_a_cluster_wide_cache_of_the_same_name_is_another_one(driver: Driver):
    driver.a_cache(content="mine")
    everyones = driver.a_cache(CacheName(namespace="", name="llama"), content="everyones")
    target = driver.a_pod()
    await driver.client.publish(a_publish(target, some_attributes(namespace=None)))
    assert driver.mounter.mounted == {target: [everyones]}


async def test_publishing_again_changes_nothing(driver: Driver):
    volume, target = driver.a_cache(), driver.a_pod()
    for _ in range(3):
        await driver.client.publish(a_publish(target))
    assert driver.mounter.mounted == {target: [volume]}
    assert driver.mounter.changes == 1


async def test_a_mounted_volume_keeps_its_content_when_the_caches_image_changes(driver: Driver):
    """Also where the cache is gone by then."""
    volume, target = driver.a_cache(), driver.a_pod()
    await driver.client.publish(a_publish(target))
    driver.a_cache(content="newer")
    await driver.client.publish(a_publish(target))
    driver.store.caches.clear()
    await driver.client.publish(a_publish(target))
    assert driver.mounter.mounted == {target: [volume]}


async def test_a_mount_that_is_not_protected_is_made_again(driver: Driver):
    """C4, C8: a process was killed between the two steps of a bind mount."""
    volume, target = driver.a_cache(), driver.a_pod()
    target.mkdir()
    driver.mounter.mounted[target] = [None]
    driver.mounter.exposed.add(target)
    await driver.client.publish(a_publish(target))
    assert driver.mounter.mounted == {target: [volume]}
    assert target not in driver.mounter.exposed


@pytest.mark.parametrize(
    ("absence", "code"),
    [
        pytest.param(Absence.NOT_READY, grpc.StatusCode.UNAVAILABLE, id="C3: pending"),
        pytest.param(
            Absence.DOES_NOT_FIT, grpc.StatusCode.FAILED_PRECONDITION, id="C6: incompatible"
        ),
        pytest.param(Absence.NO_SUCH_CACHE, grpc.StatusCode.NOT_FOUND, id="unknown"),
    ],
)
async def test_what_is_not_there_is_refused_by_its_reason(
    driver: Driver, absence: Absence, code: grpc.StatusCode
):
    """C3 and C6: never INVALID_ARGUMENT, and never mounted anyway."""
    target = driver.a_pod()
    driver.store.caches[LLAMA] = NotThere(absence=absence, reason="it is being pulled")
    assert await refusal(driver.client.publish(a_publish(target))) == (
        code,
        "GKMCache team-a/llama: it is being pulled",
    )
    assert driver.mounter.changes == 0
    assert not target.exists()
    volume = driver.a_cache()
    await driver.client.publish(a_publish(target))
    assert driver.mounter.mounted == {target: [volume]}


async def test_content_is_held_until_it_is_mounted(driver: Driver):
    """C10: what is about to be mounted is not removed from the disk."""
    driver.a_cache()
    held: list[list[CacheName]] = []
    driver.mounter.before_change = lambda: held.append(list(driver.store.held))
    await driver.client.publish(a_publish(driver.a_pod()))
    assert held == [[LLAMA]]
    assert driver.store.held == []


async def test_a_pod_of_another_namespace_is_denied(driver: Driver):
    """C5: cross-tenant reads."""
    driver.a_cache(CacheName(name="llama", namespace="team-b"))
    target = driver.a_pod()
    code, text = await refusal(
        driver.client.publish(a_publish(target, some_attributes(namespace="team-b")))
    )
    assert code is grpc.StatusCode.PERMISSION_DENIED
    assert "pod team-a/worker cannot mount GKMCache team-b/llama" in text
    assert driver.mounter.changes == 0


@pytest.mark.parametrize("name", ["..", "../team-b/llama", "/", ""])
async def test_a_name_that_leads_elsewhere_never_reaches_the_store(driver: Driver, name: str):
    """C9."""
    code, _ = await refusal(driver.client.publish(a_publish(driver.a_pod(), some_attributes(name))))
    assert code is grpc.StatusCode.INVALID_ARGUMENT


async def test_unpublishing_removes_the_mount_and_the_target(driver: Driver):
    """C2: and does so again and again."""
    driver.a_cache()
    target = driver.a_pod()
    await driver.client.publish(a_publish(target))
    assert target.is_dir()
    for _ in range(3):
        await driver.client.unpublish(target)
        assert driver.mounter.mounted == {target: []}
        assert not target.exists()
    assert target.parent.is_dir()


async def test_what_was_never_published_is_unpublished(driver: Driver):
    """kubelet does that where it does not know how a publish ended."""
    target = driver.a_pod()
    await driver.client.unpublish(target)
    target.mkdir()
    await driver.client.unpublish(target)
    assert not target.exists()
    target.parent.rmdir()
    await driver.client.unpublish(target)
    assert driver.mounter.changes == 0


async def test_all_mounts_of_a_target_are_removed(driver: Driver):
    """Without a driver that serialised them, two publishes may have mounted twice."""
    volume, target = driver.a_cache(), driver.a_pod()
    target.mkdir()
    driver.mounter.mounted[target] = [volume, None, volume]
    await driver.client.unpublish(target)
    assert driver.mounter.mounted == {target: []}
    assert not target.exists()


async def test_an_unmount_that_fails_keeps_the_reference(driver: Driver):
    """C10: the mount and its target stay, kubelet calls again."""
    volume, target = driver.a_cache(), driver.a_pod()
    await driver.client.publish(a_publish(target))
    driver.mounter.fault = "Device or resource busy"
    for _ in range(2):
        assert await refusal(driver.client.unpublish(target)) == (
            grpc.StatusCode.ABORTED,
            f"{target}: Device or resource busy",
        )
        assert driver.mounter.mounted == {target: [volume]}
        assert target.is_dir()
    driver.mounter.fault = ""
    await driver.client.unpublish(target)
    assert not target.exists()


async def test_files_under_a_mount_are_not_removed(driver: Driver):
    target = driver.a_pod()
    target.mkdir()
    (target / "stray").write_text("x")
    assert await refusal(driver.client.unpublish(target)) == (
        grpc.StatusCode.ABORTED,
        f"{target} cannot be removed: Directory not empty",
    )
    assert (target / "stray").read_text() == "x"


async def test_a_mount_that_fails_leaves_no_target(driver: Driver):
    driver.a_cache()
    target = driver.a_pod()
    driver.mounter.fault = "Permission denied"
    assert await refusal(driver.client.publish(a_publish(target))) == (
        grpc.StatusCode.ABORTED,
        f"{target}: Permission denied",
    )
    assert not target.exists()


async def test_a_target_that_is_a_link_is_not_followed(driver: Driver):
    driver.a_cache()
    elsewhere = driver.folder / "elsewhere"
    elsewhere.mkdir()
    target = driver.a_pod()
    target.symlink_to(elsewhere)
    assert await refusal(driver.client.publish(a_publish(target))) == (
        grpc.StatusCode.ABORTED,
        f"{target} is not a directory: remove it",
    )
    assert driver.mounter.changes == 0
    await driver.client.unpublish(target)
    assert not target.is_symlink()
    assert elsewhere.is_dir()


async def test_a_directory_above_the_target_that_is_a_link_is_not_followed(driver: Driver):
    driver.a_cache()
    elsewhere = driver.folder / "elsewhere"
    elsewhere.mkdir()
    target = driver.a_pod()
    target.parent.rmdir()
    target.parent.symlink_to(elsewhere)
    for call in (driver.client.publish(a_publish(target)), driver.client.unpublish(target)):
        assert await refusal(call) == (
            grpc.StatusCode.ABORTED,
            f"{target.parent} leads through a link to {elsewhere.resolve()}",
        )
    assert list(elsewhere.iterdir()) == []


async def test_a_target_without_its_directory_is_told(driver: Driver):
    driver.a_cache()
    target = driver.a_pod()
    target.parent.rmdir()
    assert await refusal(driver.client.publish(a_publish(target))) == (
        grpc.StatusCode.ABORTED,
        f"{target.parent} is missing: kubelet makes it before it calls",
    )


async def test_kubelets_root_may_be_a_link(folder: Path):
    """Mounts are listed by what it leads to."""
    (folder / "disk").mkdir()
    (folder / "pods").symlink_to(folder / "disk")
    async with a_driver(folder) as driver:
        volume, target = driver.a_cache(), driver.a_pod()
        await driver.client.publish(a_publish(target))
        assert driver.mounter.mounted == {target.parent.resolve() / "mount": [volume]}
        await driver.client.unpublish(target)
        assert not target.exists()


async def test_a_volume_has_one_operation_at_a_time(driver: Driver):
    """The second is ABORTED, CSI's status for it; other volumes do not wait."""
    volume, target = driver.a_cache(), driver.a_pod()
    other = driver.a_pod(volume="other")
    entered, goes_on = threading.Event(), threading.Event()
    waits = iter([True])

    def block() -> None:
        if next(waits, False):
            entered.set()
            assert goes_on.wait(CALL_WITHIN_S)

    driver.mounter.before_change = block
    aborted = (grpc.StatusCode.ABORTED, "another operation of volume csi-1 is in progress")
    async with asyncio.TaskGroup() as group:
        first = group.create_task(driver.client.publish(a_publish(target)))
        await until(entered.is_set)
        assert await refusal(driver.client.publish(a_publish(target))) == aborted
        assert await refusal(driver.client.unpublish(target)) == aborted
        assert await refusal(sizes(driver.client, target)) == aborted
        await driver.client.publish(a_publish(other, volume="csi-2"))
        goes_on.set()
        await first
    assert driver.mounter.mounted == {target: [volume], other: [volume]}
    await driver.client.unpublish(target)


async def test_a_caller_that_gives_up_does_not_end_the_operation_early(driver: Driver):
    """C8, C10: what the thread mounts is still the operation's, and its content is still held."""
    volume, target = driver.a_cache(), driver.a_pod()
    entered, goes_on = threading.Event(), threading.Event()

    def block() -> None:
        entered.set()
        assert goes_on.wait(CALL_WITHIN_S)

    driver.mounter.before_change = block
    async with asyncio.TaskGroup() as group:
        first = group.create_task(driver.client.publish(a_publish(target)))
        await until(entered.is_set)
        first.cancel()
        await asyncio.wait([first])
        code, _ = await refusal(driver.client.unpublish(target))
        assert code is grpc.StatusCode.ABORTED
        assert driver.store.held == [LLAMA]
        goes_on.set()
        await until(lambda: driver.store.held == [])
    assert driver.mounter.mounted == {target: [volume]}
    await driver.client.unpublish(target)
    assert not target.exists()


async def test_the_size_of_a_volume_is_that_of_its_files(driver: Driver):
    driver.a_cache()
    target = driver.a_pod()
    await driver.client.publish(a_publish(target))
    (target / "deeper").mkdir()
    (target / "deeper" / "kernel.cubin").write_bytes(b"x" * 1000)
    (target / "kernel.json").write_bytes(b"x" * 24)
    expected = {csi_pb2.VolumeUsage.BYTES: (1024, 1024, 0), csi_pb2.VolumeUsage.INODES: (3, 3, 0)}
    assert await sizes(driver.client, target) == expected
    assert await sizes(driver.client, target) == expected


async def test_a_volume_that_is_not_there_has_no_size(driver: Driver):
    target = driver.a_pod()
    for path in (target, target.parent, Path("some/path")):
        assert await refusal(sizes(driver.client, path)) == (
            grpc.StatusCode.NOT_FOUND,
            f"volume 'csi-1' is not mounted at '{path}'",
        )


async def test_answers_are_counted_by_their_status(driver: Driver):
    driver.a_cache()
    target = driver.a_pod()

    def count(code: str) -> float:
        labels = {"call": NODE_PUBLISH, "code": code}
        return REGISTRY.get_sample_value("gpu_agent_answers_total", labels) or 0.0

    before = {code: count(code) for code in ("OK", "PERMISSION_DENIED")}
    await driver.client.publish(a_publish(target))
    await refusal(driver.client.publish(a_publish(target, some_attributes(namespace="team-b"))))
    assert {code: count(code) - before[code] for code in before} == {
        "OK": 1,
        "PERMISSION_DENIED": 1,
    }


async def test_bytes_that_are_no_message_are_refused(driver: Driver):
    call = driver.client.call(NODE_PUBLISH, b"\xff\xff\xff", csi_pb2.NodePublishVolumeResponse)
    assert await refusal(call) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "NodePublishVolume: malformed request: not a message of CSI 1.10",
    )
