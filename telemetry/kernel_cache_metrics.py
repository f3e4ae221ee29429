"""Metrics of kernel caches in the server; those of their stores on nodes are in `telemetry.agent_metrics`.

Series of one cache exist while pods use a former digest of it, and no longer. Its label is the cache as texts name it
(`str(CacheName)`): a label `namespace` would be replaced by that of the server's pod where Prometheus scrapes it.
"""

from telemetry.metrics import REQUEST_BUCKETS, counter, gauge, histogram

VERIFICATIONS = counter(
    "gpu_kernel_cache_verifications_total",
    "Images of caches that admission was asked to verify, by outcome: verified, unsigned (accepted without a"
    " signature), warned (accepted by mode Warn), refused, failed (no answer of the registry).",
    ["outcome"],
)
RESOLUTION_DURATION = histogram(
    "gpu_kernel_cache_resolution_seconds",
    "Time in which admission learned digest, facts and signatures of a cache's image from its registry, by the"
    " outcome of the verification.",
    ["outcome"],
    buckets=REQUEST_BUCKETS,
)
CACHES = gauge(
    "gpu_kernel_cache_caches",
    "GKMCaches and ClusterGKMCaches by state, which is their condition.",
    ["state"],
)
OUTDATED_SINCE = gauge(
    "gpu_kernel_cache_outdated_since_seconds",
    "Unix time since when pods use a former digest of the cache; caches without such pods have no series.",
    ["cache"],
)
NODES_OF_CACHES = gauge(
    "gpu_kernel_cache_cluster_nodes",
    "Nodes of each cache, summed over all caches, by state: in_use, not_in_use (extracted, and no pod uses it), error.",
    ["state"],
)
PODS_OF_CACHES = gauge(
    "gpu_kernel_cache_cluster_pods",
    "Pods of each cache, summed over all caches, by state: running, outdated (on a former digest), deleting (of a"
    " cache that is being deleted).",
    ["state"],
)
CACHE_PLACEMENTS = counter(
    "gpu_kernel_cache_placements_total",
    "Pods with kernel caches that were bound, by whether their node had all of them (warm, cold).",
    ["warmth"],
)
