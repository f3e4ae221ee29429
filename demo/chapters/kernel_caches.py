"""The demo's chapter about kernel caches: cold, warm, outdated, and an image without a signature."""

import asyncio
from typing import TYPE_CHECKING, Any, Final

from api.csi.names import CACHE_ATTRIBUTE, DRIVER_NAME, NAMESPACE_ATTRIBUTE
from api.foreign.core import Pod
from api.kinds.gkmcache import CacheConditionType
from api.names import GKM_API_VERSION
from api.well_known_labels import HOSTNAME_LABEL
from demo.objects import WHOLE, a_pod
from kernelcache.cache_conditions import reported_state
from kube.resources import GKM_CACHES, PODS
from simulator.node.kubelet import FAILED_MOUNT
from simulator.registry.triton_cache import CUBIN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from api.kinds.gkmcache import GKMCache
    from demo.story import Narrator

CACHE: Final = "llama"
NAMESPACE: Final = "default"
VOLUME: Final = "cache"
OTHER_NODE, NODE = "n1", "n2"
"""Where the first pod has to go; the pool's strategy prefers another node for the next one."""
FIRST, SECOND, UNSIGNED = "1.0", "2.0", "unsigned"
SIZES: Final = {FIRST: 4_000_000, SECOND: 5_000_000, UNSIGNED: 10_000}
"""Bytes of the kernel in the image of each tag."""


async def kernel_caches(story: "Narrator") -> None:
    """Serve a cache to pods: pulled for the first, there for the second, another one for the third."""
    story.title("Kernel caches: compiled once, in a signed image, mounted into pods")
    await _finish_all(story)
    await story.cluster.change_pool(WHOLE, {"scheduling": {"strategy": "Spread"}})
    digests = await _pack(story)
    await _unsigned(story)
    await story.cluster.create_cache(_cache(story, FIRST))
    await _resolved(story, digests[FIRST])
    await _cold_start(story)
    await _warm(story)
    await _outdated(story, digests)
    await story.finish("renewed")


async def _finish_all(story: "Narrator") -> None:
    """Let the pods of earlier chapters end on nodes that are of one product."""
    pods = await story.cluster.client.list_(PODS, Pod, namespace=NAMESPACE)
    names = [
        item.metadata.name
        for item in pods.items
        if item.spec.node_name in {NODE, OTHER_NODE} and not item.is_terminal
    ]
    if names:
        await story.finish(*names)


async def _pack(story: "Narrator") -> "Mapping[str, str]":
    story.say(
        "  $ gpu-control-plane cache pack ~/.triton/cache --image …/llama-cache:1.0 --sign-key signer.key"
    )
    packed = await asyncio.gather(
        *(
            story.cluster.images.pack(tag, object_bytes=size, is_signed=tag != UNSIGNED)
            for tag, size in SIZES.items()
        )
    )
    return dict(zip(SIZES, packed, strict=True))


async def _unsigned(story: "Narrator") -> None:
    story.say("  a GKMCache with an image without a signature:")
    await story.refused(
        "an image without a signature",
        story.cluster.create_cache(_cache(story, UNSIGNED)),
        says="it has no signature",
    )


async def _resolved(story: "Narrator", digest: str) -> None:
    await story.until(
        f"the cache has the digest {digest}",
        lambda: story.cluster.cache(CACHE),
        lambda cache: cache.status.resolved_digest == digest,
    )
    story.claim(f"the signature of the image is good; nodes pull {_short(digest)}")


async def _cold_start(story: "Narrator") -> None:
    clock, layer = story.cluster.clock, story.cluster.images.layer_of(FIRST)
    body = _pod("cold")
    body["spec"]["nodeSelector"] = {HOSTNAME_LABEL: NODE}
    since = clock.monotonic()
    await story.cluster.create_pod(body)
    await story.bind("cold")
    elapsed_s = clock.monotonic() - since
    event = await story.cluster.event(FAILED_MOUNT, "cold")
    # There is none where the files are there before kubelet mounts the volume.
    if event is not None:
        story.say("  until then its Event says:")
        story.quote(f"{FAILED_MOUNT}: {event.note}")
    story.check(
        f"cold: it runs after {elapsed_s:.1f} s; {layer.size / 2**20:.1f} MiB were pulled and extracted",
        holds=_pulls(story, FIRST) == 1,
    )
    story.check(
        "its container sees the files of the image",
        holds=await _kernel_bytes(story, "cold") == SIZES[FIRST],
    )


async def _warm(story: "Narrator") -> None:
    clock = story.cluster.clock
    await story.cluster.create_pod(a_pod("without", WHOLE, 1))
    other = await story.bind("without")
    await story.finish("without")
    since = clock.monotonic()
    await story.cluster.create_pod(_pod("warm"))
    pod = await story.bind("warm")
    elapsed_s = clock.monotonic() - since
    story.check(
        f"a pod without the cache goes to {other.spec.node_name}, where most devices are free; one with it to {NODE}",
        holds=other.spec.node_name != NODE and pod.spec.node_name == NODE,
    )
    story.check(
        f"warm: it runs after {elapsed_s:.1f} s; nothing was pulled",
        holds=_pulls(story, FIRST) == 1,
    )


async def _outdated(story: "Narrator", digests: "Mapping[str, str]") -> None:
    story.say(f"  $ kubectl patch gkmcache {CACHE} … spec.image: …/llama-cache:{SECOND}")
    await story.cluster.change_cache(CACHE, story.cluster.images.reference(SECOND))
    await _resolved(story, digests[SECOND])
    await story.cluster.create_pod(_pod("renewed"))
    await story.bind("renewed")
    cache = await story.until(
        "the cache is Outdated",
        lambda: story.cluster.cache(CACHE),
        lambda found: (
            reported_state(found.status.conditions).type is CacheConditionType.OUTDATED
            and (found.status.counts.pods_running, found.status.counts.pods_outdated) == (1, 2)
        ),
    )
    story.say("  $ kubectl get gkmcaches")
    story.table([_HEADING, _row(cache)])
    sizes = [await _kernel_bytes(story, name) for name in ("cold", "warm", "renewed")]
    story.check(
        "pods that ran keep their files, the new one has the new ones",
        holds=sizes == [SIZES[FIRST], SIZES[FIRST], SIZES[SECOND]],
    )
    await story.finish("cold", "warm")
    await story.until(
        f"node {NODE} has no content",
        lambda: story.cluster.stored_caches(NODE),
        lambda found: not found,
    )
    story.claim(f"after their end the former content leaves the disk of {NODE}")


_HEADING: Final = ("NAME", "STATUS", "NODES", "IN-USE", "ERROR", "RUNNING", "OUTDATED")


def _row(cache: "GKMCache") -> tuple[str, ...]:
    counts = cache.status.counts
    figures = (
        counts.nodes,
        counts.nodes_in_use,
        counts.nodes_in_error,
        counts.pods_running,
        counts.pods_outdated,
    )
    state = reported_state(cache.status.conditions).type.value
    return (cache.metadata.name, state, *map(str, figures))


def _cache(story: "Narrator", tag: str) -> dict[str, Any]:
    return {
        "apiVersion": GKM_API_VERSION,
        "kind": GKM_CACHES.kind,
        "metadata": {"name": CACHE, "namespace": NAMESPACE},
        "spec": {"image": story.cluster.images.reference(tag), "warm": "Demand"},
    }


def _pod(name: str) -> dict[str, Any]:
    body = a_pod(name, WHOLE, 1)
    attributes = {CACHE_ATTRIBUTE: CACHE, NAMESPACE_ATTRIBUTE: NAMESPACE}
    csi = {"driver": DRIVER_NAME, "volumeAttributes": attributes}
    body["spec"]["volumes"] = [{"name": VOLUME, "csi": csi}]
    return body


def _short(digest: str) -> str:
    return f"{digest[:19]}…"


def _pulls(story: "Narrator", tag: str) -> int:
    images = story.cluster.images
    return images.registry.pulls_of(images.layer_of(tag).digest)


async def _kernel_bytes(story: "Narrator", name: str) -> int:
    """Return the size of the kernel that a pod's container sees."""
    mount = story.cluster.volumes.mount_of(await story.pod(name), VOLUME)
    return (await asyncio.to_thread((mount / CUBIN).stat)).st_size
