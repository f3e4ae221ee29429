"""Kernel caches in an index, and pods that mount them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from api.cache_name import CacheName
from api.image_reference import Digest
from api.kinds.gkmcache import KernelTarget
from api.names import NodeName
from kernelcache.cache_index import CacheIndex, ResolvedCache

if TYPE_CHECKING:
    from collections.abc import Iterable

LLAMA = CacheName(namespace="default", name="llama")
MISTRAL = CacheName(namespace="default", name="mistral")
SHARED = CacheName(namespace="", name="shared")
DIGEST = Digest("sha256:" + "1" * 64)


def a_resolved_cache(*archs: int, digest: Digest = DIGEST) -> ResolvedCache:
    """A cache with kernels for these architectures, as 90."""
    targets = tuple(KernelTarget(backend="cuda", arch=str(arch), warp_size=32) for arch in archs)
    return ResolvedCache(digest=digest, targets=targets)


def set_warm(
    index: CacheIndex, warm: "dict[CacheName, Iterable[str]]", *, digest: Digest = DIGEST
) -> None:
    """Let these nodes have the caches extracted, and nothing else."""
    nodes = {node for item in warm.values() for node in item}
    namespaces = {name.namespace for name in warm}
    for node in nodes:
        for namespace in namespaces:
            extracted = frozenset(
                (name, digest)
                for name, item in warm.items()
                if name.namespace == namespace and node in item
            )
            index.set_node(NodeName(node), namespace, extracted)


def a_cache_volume(
    cache: CacheName = LLAMA, attributes: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """A volume of a pod on the wire."""
    named = {"csi.gkm.io/GKMCache": cache.name} | (
        {"csi.gkm.io/namespace": cache.namespace} if cache.namespace else {}
    )
    csi = {
        "driver": "csi.gkm.io",
        "readOnly": True,
        "volumeAttributes": {**named, **(attributes or {})},
    }
    return {"name": f"cache-{cache.name}", "csi": csi}


def mounting(pod: dict[str, Any], *caches: CacheName) -> dict[str, Any]:
    """Return a pod on the wire that mounts the caches."""
    volumes = [
        {"name": "kube-api-access", "projected": {"defaultMode": 420}},
        *map(a_cache_volume, caches),
    ]
    return {**pod, "spec": {**pod["spec"], "volumes": volumes}}
