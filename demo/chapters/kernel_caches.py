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
    from demo.run import DemoRun

CACHE: Final = "llama"
NAMESPACE: Final = "default"
VOLUME: Final = "cache"
OTHER_NODE, NODE = "n1", "n2"
"""Where the first pod has to go; the pool's strategy prefers another node for the next one."""
FIRST, SECOND, UNSIGNED = "1.0", "2.0", "unsigned"
SIZES: Final = {FIRST: 4_000_000, SECOND: 5_000_000, UNSIGNED: 10_000}
"""Bytes of the kernel in the image of each tag."""


async def kernel_caches(run: "DemoRun") -> None:
    """Serve a cache to pods: pulled for the first, there for the second, another one for the third."""
    run.title("Kernel caches: compiled once, in a signed image, mounted into pods")
    await _finish_all(run)
    await run.cluster.change_pool(WHOLE, {"scheduling": {"strategy": "Spread"}})
    digests = await _pack(run)
    await _unsigned(run)
    await run.cluster.create_cache(_cache(run, FIRST))
    await _resolved(run, digests[FIRST])
    await _cold_start(run)
    await _warm(run)
    await _outdated(run, digests)
    await run.finish("renewed")


async def _finish_all(run: "DemoRun") -> None:
    """Let the pods of earlier chapters end on nodes that are of one product."""
    pods = await run.cluster.client.list_(PODS, Pod, namespace=NAMESPACE)
    names = [
        item.metadata.name
        for item in pods.items
        if item.spec.node_name in {NODE, OTHER_NODE} and not item.is_terminal
    ]
    if names:
        await run.finish(*names)


async def _pack(run: "DemoRun") -> "Mapping[str, str]":
    run.say(
        "  $ gpu-control-plane cache pack ~/.triton/cache --image …/llama-cache:1.0 --sign-key signer.key"
    )
    packed = await asyncio.gather(
        *(
            run.cluster.images.pack(tag, object_bytes=size, is_signed=tag != UNSIGNED)
            for tag, size in SIZES.items()
        )
    )
    return dict(zip(SIZES, packed, strict=True))


async def _unsigned(run: "DemoRun") -> None:
    run.say("  a GKMCache with an image without a signature:")
    await run.refused(
        "an image without a signature",
        run.cluster.create_cache(_cache(run, UNSIGNED)),
        says="it has no signature",
    )


async def _resolved(run: "DemoRun", digest: str) -> None:
    await run.until(
        f"the cache has the digest {digest}",
        lambda: run.cluster.cache(CACHE),
        lambda cache: cache.status.resolved_digest == digest,
    )
    run.claim(f"the signature of the image is good; nodes pull {_short(digest)}")


async def _cold_start(run: "DemoRun") -> None:
    clock, layer = run.cluster.clock, run.cluster.images.layer_of(FIRST)
    body = _pod("cold")
    body["spec"]["nodeSelector"] = {HOSTNAME_LABEL: NODE}
    since = clock.monotonic()
    await run.cluster.create_pod(body)
    await run.bind("cold")
    elapsed_s = clock.monotonic() - since
    event = await run.cluster.event(FAILED_MOUNT, "cold")
    # There is none where the files are there before kubelet mounts the volume.
    if event is not None:
        run.say("  until then its Event says:")
        run.quote(f"{FAILED_MOUNT}: {event.note}")
    run.check(
        f"cold: it runs after {elapsed_s:.1f} s; {layer.size / 2**20:.1f} MiB were pulled and extracted",
        holds=_pulls(run, FIRST) == 1,
    )
    run.check(
        "its container sees the files of the image",
        holds=await _kernel_bytes(run, "cold") == SIZES[FIRST],
    )


async def _warm(run: "DemoRun") -> None:
    clock = run.cluster.clock
    await run.cluster.create_pod(a_pod("without", WHOLE, 1))
    other = await run.bind("without")
    await run.finish("without")
    since = clock.monotonic()
    await run.cluster.create_pod(_pod("warm"))
    pod = await run.bind("warm")
    elapsed_s = clock.monotonic() - since
    run.check(
        f"a pod without the cache goes to {other.spec.node_name}, where most devices are free; one with it to {NODE}",
        holds=other.spec.node_name != NODE and pod.spec.node_name == NODE,
    )
    run.check(
        f"warm: it runs after {elapsed_s:.1f} s; nothing was pulled",
        holds=_pulls(run, FIRST) == 1,
    )


async def _outdated(run: "DemoRun", digests: "Mapping[str, str]") -> None:
    run.say(f"  $ kubectl patch gkmcache {CACHE} … spec.image: …/llama-cache:{SECOND}")
    await run.cluster.change_cache(CACHE, run.cluster.images.reference(SECOND))
    await _resolved(run, digests[SECOND])
    await run.cluster.create_pod(_pod("renewed"))
    await run.bind("renewed")
    cache = await run.until(
        "the cache is Outdated",
        lambda: run.cluster.cache(CACHE),
        lambda found: (
            reported_state(found.status.conditions).type is CacheConditionType.OUTDATED
            and (found.status.counts.pods_running, found.status.counts.pods_outdated) == (1, 2)
        ),
    )
    run.say("  $ kubectl get gkmcaches")
    run.table([_HEADING, _row(cache)])
    sizes = [await _kernel_bytes(run, name) for name in ("cold", "warm", "renewed")]
    run.check(
        "pods that ran keep their files, the new one has the new ones",
        holds=sizes == [SIZES[FIRST], SIZES[FIRST], SIZES[SECOND]],
    )
    await run.finish("cold", "warm")
    await run.until(
        f"node {NODE} has no content",
        lambda: run.cluster.stored_caches(NODE),
        lambda found: not found,
    )
    run.claim(f"after their end the former content leaves the disk of {NODE}")


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


def _cache(run: "DemoRun", tag: str) -> dict[str, Any]:
    return {
        "apiVersion": GKM_API_VERSION,
        "kind": GKM_CACHES.kind,
        "metadata": {"name": CACHE, "namespace": NAMESPACE},
        "spec": {"image": run.cluster.images.reference(tag), "warm": "Demand"},
    }


def _pod(name: str) -> dict[str, Any]:
    body = a_pod(name, WHOLE, 1)
    attributes = {CACHE_ATTRIBUTE: CACHE, NAMESPACE_ATTRIBUTE: NAMESPACE}
    csi = {"driver": DRIVER_NAME, "volumeAttributes": attributes}
    body["spec"]["volumes"] = [{"name": VOLUME, "csi": csi}]
    return body


def _short(digest: str) -> str:
    return f"{digest[:19]}…"


def _pulls(run: "DemoRun", tag: str) -> int:
    images = run.cluster.images
    return images.registry.pulls_of(images.layer_of(tag).digest)


async def _kernel_bytes(run: "DemoRun", name: str) -> int:
    """Return the size of the kernel that a pod's container sees."""
    mount = run.cluster.volumes.mount_of(await run.pod(name), VOLUME)
    return (await asyncio.to_thread((mount / CUBIN).stat)).st_size
