"""Registry, disk, API server and Secrets fail: one exact message each, and another attempt."""

import asyncio
import base64
import json
import os
import shutil

import pytest

from agent.csi.volume_source import NotThere
from agent.errors import MountError
from agent.kernelcache.content.content_store import open_store
from agent.kernelcache.content.errors import VolumesUnknownError
from agent.kernelcache.content.layer_limits import FreeSpaceFloor
from agent.kernelcache.content.mountinfo import MountEntry
from api.cache_name import CacheName
from kube.resources import SECRETS
from telemetry.conditions import AgentDegraded
from tests.component.agent.kernelcache.cache_node import TEAM, CacheNode, an_image
from tests.support.cache_layers import a_triton_layer
from tests.support.polling import until, until_async
from tests.support.registry_double import PASSWORD, USER, Cut, Hang, Lie, RegistryDouble, Status

CLUSTER = CacheName(namespace="", name="shared")
NODES_PATH = "gkmcachenodes"


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        pytest.param(Status(404), "404", id="it has no such image"),
        pytest.param(Status(403), "403", id="it refuses"),
        pytest.param(
            Lie(content=b"{}"), "the registry gives sha256:", id="it lies about the content"
        ),
    ],
)
async def test_what_a_registry_answers_is_the_condition_and_an_event_and_is_tried_again(
    node: CacheNode, fault: Status | Lie, text: str
) -> None:
    """G9."""
    digest = an_image(node.registry)
    node.registry.will_fail(fault, "GET", "/manifests/", times=2)
    async with node.running():
        await node.add_cache(digest)
        detail = await node.until_state("Error", digest)
        assert f"{node.registry.host}/team/cache" in detail
        assert text in detail
        uid = await node.add_pod("worker")
        found = await node.publish(uid)
        assert isinstance(found, NotThere)
        assert found.reason == f"it could not be extracted, and is tried again: {detail}"
        node.pass_time(11)
        await until(lambda: node.registry.count("GET", "/manifests/") >= 2)
        node.pass_time(25)
        await node.mounted(uid)
        await node.until_state("Running", digest)
    warnings = [event for event in node.events.events if event.type == "Warning"]
    assert [event.regarding.kind for event in warnings] == ["GKMCache"]
    assert warnings[0].note == f"Node node-1: {detail}"


async def test_a_registry_leads_a_node_to_no_address_that_is_not_public(node: CacheNode) -> None:
    """As admission: an image that was signed for is still served by the owner of its registry."""
    digest = an_image(node.registry)
    async with RegistryDouble() as inside:
        leads = Status(307, {"Location": f"{inside.url}/admin"})
        node.registry.will_fail(leads, "GET", "/blobs/", times=9)
        node.settings = {"registries_plain_http": frozenset({node.registry.host, inside.host})}
        async with node.running():
            await node.add_cache(digest)
            detail = await node.until_state("Error", digest)
        assert f"list {inside.host} in the setting kernel_caches.registries.private" in detail
        assert not inside.seen


async def test_a_clock_that_is_set_back_puts_off_no_retry(node: CacheNode) -> None:
    """The machine's clock is two hours ahead at boot, and the network is not up yet."""
    digest = an_image(node.registry)
    node.clock.wall_offset_s = 7200.0
    node.registry.will_fail(Status(403), "GET", "/manifests/", times=1)
    async with node.running():
        await node.add_cache(digest)
        await node.until_state("Error", digest)
        node.clock.wall_offset_s = 0.0
        uid = await node.add_pod("worker")
        node.pass_time(11)
        await node.mounted(uid)


async def test_a_registry_that_stops_in_the_middle_is_asked_for_the_rest(node: CacheNode) -> None:
    layer = a_triton_layer(data=os.urandom(300_000))
    digest = an_image(node.registry, layer=layer)
    node.registry.will_fail(Cut(after=100_000), "GET", "/blobs/", times=2)
    async with node.running():
        await node.add_cache(digest)
        await node.until_state("Extracted", digest)


async def test_progress_is_said_to_kubelet_and_the_status_does_not_move_with_it(
    node: CacheNode,
) -> None:
    """C3: not ready is UNAVAILABLE with the reason."""
    layer = a_triton_layer(data=os.urandom(300_000))
    digest = an_image(node.registry, layer=layer)
    (blob,) = [key for key, content in node.registry.blobs.items() if content == layer]
    node.registry.will_fail(Hang(after=100_000), "GET", blob)
    async with node.running():
        await node.add_cache(digest)
        assert await node.until_state("Pending", digest, detail="extracted") == (
            "it is being extracted"
        )
        uid = await node.add_pod("worker")

        async def is_reported() -> bool:
            found = await node.publish(uid)
            return isinstance(found, NotThere) and found.reason == "extracting, 97 of 587 KiB"

        await until_async(is_reported)
        node.api.requests.clear()
        await asyncio.sleep(0.5)
        assert node.api.requests.writes(path=NODES_PATH) == []
    # The roles ended in the middle of it: nothing is left but what the next start removes.
    assert node.contents() == set()
    open_store(node.folder / "caches", node.clock).close()
    assert list((node.folder / "caches" / "tmp").iterdir()) == []


async def test_an_extraction_that_nothing_needs_any_more_ends(node: CacheNode) -> None:
    layer = a_triton_layer(data=os.urandom(300_000))
    digest = an_image(node.registry, layer=layer)
    node.registry.will_fail(Hang(after=100_000), "GET", "/blobs/", times=5)
    async with node.running():
        await node.add_cache(digest)
        await until(lambda: digest in node.role.reconciler.extractions.running)
        await node.delete_cache()
        await until(lambda: not node.role.reconciler.extractions.running)
        await node.until_not_visible()


async def test_a_namespace_whose_registry_hangs_keeps_no_other_from_its_slots(
    node: CacheNode,
) -> None:
    layers = [a_triton_layer(data=os.urandom(300_000)) for _ in range(2)]
    hanging = [an_image(node.registry, layer=layer) for layer in layers]
    digest = an_image(node.registry, tag="2")
    for key, content in node.registry.blobs.items():
        if content in layers:
            node.registry.will_fail(Hang(after=100_000), "GET", key, times=5)
    other = CacheName(namespace="team-b", name="honest")
    async with node.running():
        for number, item in enumerate(hanging):
            await node.add_cache(item, CacheName(namespace=TEAM, name=f"slow-{number}"))
        await until(lambda: bool(node.role.reconciler.extractions.running))
        await node.add_cache(digest, other, tag="2")
        assert (await node.until_state("Extracted", digest, other)) is not None
        assert len(node.role.reconciler.extractions.running) == 1


async def test_a_layer_beyond_what_the_quota_leaves_is_refused(node: CacheNode) -> None:
    digest = an_image(node.registry, layer=a_triton_layer(data=bytes(50_000)))
    node.settings["caches_quota"] = 20_000
    async with node.running():
        await node.add_cache(digest)
        detail = await node.until_state("Error", digest)
        assert detail == (
            "the layer's files take more of the disk than the 20000 bytes that the node's quota of caches leaves"
            " for them: each file and directory takes at least 4096"
        )
        assert node.contents() == set()


async def test_a_node_whose_disk_has_no_more_than_is_kept_free_names_cache_and_disk(
    node: CacheNode,
) -> None:
    digest = an_image(node.registry)
    found = [4096, 4096, 1_000, 150, 150, 1_000, 100, 100, 0, 255]
    node.floor = FreeSpaceFloor(read=lambda _: os.statvfs_result(found))
    async with node.running():
        await node.add_cache(digest)
        assert await node.until_state("Pending", digest) == (
            "it does not fit the quota, or the disk, beside what pods use and other caches name: 1000 bytes are"
            " missing; raise the quota, free space on the disk, or remove other caches"
        )
        found[3] = found[4] = 900
        node.role.reconciler.trigger()
        assert await node.until_state("Error", digest) == (
            "GKMCache team-a/llama: its first 0 files and 0 directories take 0 bytes of the node's disk, and its file system"
            " has 3686400 bytes and 100 inodes free, of which 614400 bytes and 100 inodes are kept for others; free"
            " space or inodes there, or give kernel_caches.directory a file system of its own"
        )
        assert node.contents() == set()


async def test_a_cache_without_room_says_how_much_is_missing(node: CacheNode) -> None:
    digest = an_image(node.registry)
    node.settings["caches_quota"] = 1_000
    async with node.running():
        await node.add_cache(digest, layer_bytes=1_500)
        assert await node.until_state("Pending", digest) == (
            "it does not fit the quota, or the disk, beside what pods use and other caches name: 500 bytes are missing;"
            " raise the quota, free space on the disk, or remove other caches"
        )


async def test_a_store_of_another_process_is_waited_for(node: CacheNode) -> None:
    digest = an_image(node.registry)
    other = open_store(node.folder / "caches", node.clock)
    async with node.running():
        await node.add_cache(digest)
        await until(lambda: "in use by another process" in node.context.problems.summary().text)
        assert node.context.problems.summary().reason is AgentDegraded.CACHES_BLOCKED
        uid = await node.add_pod("worker")
        found = await node.publish(uid)
        assert isinstance(found, NotThere)
        assert "in use by another process" in found.reason
        other.close()
        await node.mounted(uid)
        assert node.context.problems.summary().text == ""


async def test_a_store_that_cannot_be_opened_is_the_condition(node: CacheNode) -> None:
    digest = an_image(node.registry)
    (node.folder / "caches").write_text("no directory")
    async with node.running():
        await node.add_cache(digest)
        detail = await node.until_state("Error", digest)
        assert detail.startswith(f"the store of kernel caches {node.folder}/caches cannot be used:")
        (node.folder / "caches").unlink()
        await node.until_state("Extracted", digest)


async def test_a_lost_store_is_opened_again_and_filled(node: CacheNode) -> None:
    digest = an_image(node.registry)
    async with node.running():
        await node.add_cache(digest)
        await node.until_state("Extracted", digest)
        (node.folder / "caches").rename(node.folder / "moved")
        shutil.rmtree(node.folder / "moved")
        uid = await node.add_pod("worker")
        found = await node.publish(uid)
        assert isinstance(found, NotThere)
        assert "was removed or replaced" in found.reason
        await node.mounted(uid)
        assert node.contents() == {digest}


async def test_content_that_was_removed_by_hand_is_extracted_again(node: CacheNode) -> None:
    digest = an_image(node.registry)
    async with node.running():
        await node.add_cache(digest)
        await node.until_state("Extracted", digest)
        content = node.folder / "caches" / "content" / digest.replace(":", "-")
        content.rename(node.folder / "gone")
        uid = await node.add_pod("worker")
        found = await node.publish(uid)
        assert isinstance(found, NotThere)
        assert "is damaged: it is removed once no pod uses it" in found.reason
        await node.mounted(uid)


async def test_mounts_that_cannot_be_read_remove_nothing_and_mount_nothing(node: CacheNode) -> None:
    digest = an_image(node.registry)
    works, node.mounts = node.mounts, _unreadable  # type: ignore[method-assign]
    async with node.running():
        await node.add_cache(digest)
        await until(lambda: "/proc/self/mountinfo" in node.context.problems.summary().text)
        uid = await node.add_pod("worker")
        found = await node.publish(uid)
        assert isinstance(found, NotThere)
        assert found.reason == "the node agent starts, and has not read the caches yet"
        node.role.uses._mounts = works
        await node.mounted(uid)
        assert node.context.problems.summary().text == ""


def _unreadable() -> tuple[MountEntry, ...]:
    raise VolumesUnknownError("/proc/self/mountinfo cannot be read: Permission denied")


@pytest.mark.parametrize("status", [500, 409])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/gkmcachenodes$"),
        ("PUT", "/gkmcachenodes/node-1/status"),
        ("PATCH", "/gkmcachenodes/node-1$"),
        ("DELETE", "/gkmcachenodes/node-1$"),
        ("GET", "/nodes/node-1"),
    ],
)
async def test_each_write_that_fails_is_made_again(
    node: CacheNode, method: str, path: str, status: int
) -> None:
    first, second = an_image(node.registry, tag="1"), an_image(node.registry, tag="2")
    other = CacheName(namespace=TEAM, name="other")
    node.api.faults.fail(method, path, status)
    async with node.running():
        await node.add_cache(first)
        await node.until_state("Extracted", first)
        await node.add_cache(second, other, tag="2")
        await node.until_state("Extracted", second, other)
        await node.delete_cache(other)
        await node.until_not_visible(other)
        await node.delete_cache()

        async def is_gone() -> bool:
            return await node.object() is None

        await until_async(is_gone)


async def test_a_mount_that_fails_leaves_no_reference_but_what_is_mounted(node: CacheNode) -> None:
    """C10: no reference is lost, and none stays of what is not mounted."""
    digest = an_image(node.registry)
    async with node.running():
        await node.add_cache(digest)
        await node.until_state("Extracted", digest)
        uid = await node.add_pod("worker")
        node.mounter.fault = "no such device"
        with pytest.raises(MountError):
            await node.publish(uid)
        await until(lambda: node.role.uses.references.all() == ())
        node.mounter.fault = ""
        await node.mounted(uid)
        await node.role.uses.read()
        assert node.role.uses.references.digests() == {digest}


async def test_secrets_of_the_caches_namespace_are_used(node: CacheNode) -> None:
    """W6."""
    node.registry.auth = "basic"
    digest = an_image(node.registry)
    async with node.running():
        await node.add_cache(digest, pullSecrets=[{"name": "login"}])
        detail = await node.until_state("Error", digest)
        assert detail == (
            "pull secret team-a/login does not exist: create it, or remove it from spec.pullSecrets"
        )
        await _add_secret(node, "login", TEAM)
        node.pass_time(11)
        await node.until_state("Extracted", digest)


async def test_a_secret_that_may_not_be_read_says_which_rights_are_missing(
    node: CacheNode,
) -> None:
    digest = an_image(node.registry)
    node.api.faults.fail("GET", "/secrets/login", 403)
    async with node.running():
        await node.add_cache(digest, pullSecrets=[{"name": "login"}])
        assert await node.until_state("Error", digest) == (
            "pull secret team-a/login may not be read by the control plane: in namespace team-a, make a RoleBinding"
            " of ClusterRole gpu-kernel-cache-pull-secrets to the service accounts gpu/gpu-control-plane and"
            " gpu/gpu-node-agent"
        )


async def test_a_cluster_cache_uses_the_secrets_that_the_setting_lists(node: CacheNode) -> None:
    node.registry.auth = "basic"
    digest = an_image(node.registry)
    node.settings["cache_pull_secrets"] = frozenset({"listed"})
    await _add_secret(node, "listed", "gpu")
    other = CacheName(namespace="", name="other")
    async with node.running():
        await node.add_cache(digest, other, pullSecrets=[{"name": "unlisted"}])
        assert await node.until_state("Error", digest, other) == (
            "pull secret unlisted may not be used: the setting kernel_caches.pull_secrets does not list it"
        )
        # Of two caches of one digest one has good credentials.
        await node.add_cache(digest, CLUSTER, pullSecrets=[{"name": "listed"}])
        await node.until_state("Extracted", digest, CLUSTER)
        await node.until_state("Extracted", digest, other)


async def _add_secret(node: CacheNode, name: str, namespace: str) -> None:
    entry = {"username": USER, "password": PASSWORD}
    content = json.dumps({"auths": {node.registry.host: entry}}).encode()
    body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/dockerconfigjson",
        "metadata": {"name": name, "namespace": namespace},
        "data": {".dockerconfigjson": base64.b64encode(content).decode()},
    }
    await node.client.create(SECRETS, body)
