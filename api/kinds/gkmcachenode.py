"""GKMCacheNode and ClusterGKMCacheNode: the kernel caches of one namespace, or of the cluster, on one node.

The node's agent writes them; there is one a namespace and node, with the node's name.
"""

from typing import Final

import msgspec

from api.kinds.gkmcache import CacheCounts
from api.meta import Condition, Model, ObjectMeta
from api.names import NodeName

NO_GPU: Final = "None Detected"
"""`gpuType` of a node without a device."""


class NodeGPUs(Model, frozen=True):
    """Devices of the node of one product."""

    gpu_type: str = ""
    """Product name of the devices; "None Detected" where the node has none."""
    driver_version: str = ""
    """Version of the node's driver."""
    ids: list[int] | None = None
    """Numbers of the devices, as the driver counts them."""


class CachePod(Model, frozen=True):
    """A pod that uses the cache."""

    pod_namespace: str = ""
    """Namespace of the pod."""
    pod_name: str = ""
    """Name of the pod."""
    volume_id: str = ""
    """Id of the pod's volume, as kubelet gave it."""


class CachedDigest(Model, frozen=True):
    """One digest of a cache on the node."""

    compatible_gpus: list[int] | None = msgspec.field(default=None, name="compatibleGPUs")
    """Devices that the cache fits."""
    incompatible_gpus: list[int] | None = msgspec.field(default=None, name="incompatibleGPUs")
    """Devices that it does not fit; the condition says why, where it fits none."""
    conditions: list[Condition] | None = None
    """One of Pending, Extracted, Running, Outdated, Error, UnloadError."""
    last_updated: str = ""
    """Time of the last change."""
    volume_size: int = 0
    """Bytes on the node's disk."""
    pods: list[CachePod] | None = None
    """Pods of the node that use it."""


class GKMCacheNodeStatus(Model, frozen=True):
    """Observed caches of the node."""

    node_name: str = ""
    """Name of the node."""
    counts: CacheCounts = CacheCounts()
    gpus: list[NodeGPUs] | None = None
    """Devices of the node, by product."""
    caches: dict[str, dict[str, CachedDigest]] | None = None
    """Digests on the node, by name of the cache, then by digest."""


class GKMCacheNode(Model, frozen=True):
    """The GKMCaches of a namespace on one node."""

    metadata: ObjectMeta = ObjectMeta()
    status: GKMCacheNodeStatus = msgspec.field(default_factory=GKMCacheNodeStatus)

    @property
    def node(self) -> NodeName:
        return NodeName(self.status.node_name)

    def digests_of(self, cache: str) -> dict[str, CachedDigest]:
        """Return what the node has of a cache, by digest; nothing while it has no status."""
        return (self.status.caches or {}).get(cache, {})


class ClusterGKMCacheNode(GKMCacheNode, frozen=True):
    """The ClusterGKMCaches on one node."""
