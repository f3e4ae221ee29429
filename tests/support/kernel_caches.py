"""Builders of kernel caches and of what nodes say of them."""

from typing import Any, Final

from api.image_reference import Digest
from api.kinds import gkmcache, gkmcachenode
from api.meta import Condition, ObjectMeta
from kernelcache.cache_conditions import MESSAGES

D1: Final = Digest("sha256:" + "1" * 64)
D2: Final = Digest("sha256:" + "2" * 64)
TARGET: Final = gkmcache.KernelTarget(backend="cuda", arch="90", warp_size=32)
IMAGE: Final = gkmcache.CacheImageFacts(type="triton", targets=[TARGET], layer_bytes=1000)


def a_cache(
    name: str = "llama", namespace: str = "team", *, digest: str = D1, **meta: Any
) -> gkmcache.GKMCache:
    """Return a cache whose status has the digest; without a namespace a ClusterGKMCache."""
    kind = gkmcache.GKMCache if namespace else gkmcache.ClusterGKMCache
    defaults: dict[str, Any] = {"uid": f"uid-{namespace}-{name}", "generation": 1, **meta}
    return kind(
        metadata=ObjectMeta(name=name, namespace=namespace, **defaults),
        spec=gkmcache.GKMCacheSpec(image="registry.example/llama:1"),
        status=gkmcache.GKMCacheStatus(resolved_digest=digest, image=IMAGE if digest else None),
    )


def a_digest(
    state: gkmcache.CacheConditionType = gkmcache.CacheConditionType.EXTRACTED,
    *,
    pods: int = 0,
    detail: str = "",
) -> gkmcachenode.CachedDigest:
    text = MESSAGES[state]
    return gkmcachenode.CachedDigest(
        conditions=[
            Condition(
                type=state.value,
                status="True",
                reason=state.value,
                message=f"{text}: {detail}" if detail else text,
                last_transition_time="2026-11-20T10:00:00Z",
            )
        ],
        volume_size=1000,
        pods=[
            gkmcachenode.CachePod(
                pod_namespace="team", pod_name=f"pod-{number}", volume_id=f"v{number}"
            )
            for number in range(pods)
        ]
        or None,
    )


def a_cache_node(
    node: str,
    caches: dict[str, dict[str, gkmcachenode.CachedDigest]],
    *,
    namespace: str = "team",
    **meta: Any,
) -> gkmcachenode.GKMCacheNode:
    kind = gkmcachenode.GKMCacheNode if namespace else gkmcachenode.ClusterGKMCacheNode
    defaults: dict[str, Any] = {"uid": f"uid-{namespace}-{node}", **meta}
    return kind(
        metadata=ObjectMeta(name=node, namespace=namespace, **defaults),
        status=gkmcachenode.GKMCacheNodeStatus(node_name=node, caches=caches or None),
    )
