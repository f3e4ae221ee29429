"""GKMCache and ClusterGKMCache: a GPU kernel cache in an OCI image, served to pods (group `gkm.io`).

The kinds are GKM's, of the generation with a CSI driver; manifests of its later generation apply as well.
"""

from enum import Enum
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from api.cache_name import CacheName
from api.image_reference import IMAGE_PATTERN, MAX_IMAGE_LENGTH
from api.meta import Condition, Model, ObjectMeta
from api.names import RESOLVED_DIGEST_ANNOTATION

MAX_KEYS: Final = 16
MAX_IDENTITIES: Final = 64
MAX_WARM_NODES: Final = 10_000
PUBLIC_KEY_PATTERN: Final = "^\\s*-----BEGIN ([A-Z]+ )?PUBLIC KEY-----"
"""First line of a PEM block; a private key that was pasted by mistake is refused before it is stored."""

_Text = Annotated[str, Meta(min_length=1, max_length=2048)]
_ObjectName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=253,
        pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
    ),
]


class CacheConditionType(Enum):
    """State of a cache, or of one digest of it on a node.

    One condition is shown at a time, with status True and the type as its reason.
    """

    PENDING = "Pending"
    EXTRACTED = "Extracted"
    """On the node's disk, and no pod uses it."""
    RUNNING = "Running"
    """Pods use it."""
    OUTDATED = "Outdated"
    """Pods use it, and the cache names another digest now."""
    ERROR = "Error"
    UNLOAD_ERROR = "UnloadError"
    """The node could not remove it."""


class VerificationMode(Enum):
    """Treatment of an image without a good signature."""

    ENFORCE = "Enforce"
    """It is refused, and no node pulls it."""
    WARN = "Warn"
    """It is pulled; the author of the object is warned."""


class WarmPolicy(Enum):
    """Nodes that pull the cache before a pod asks for it; a number is that many nodes."""

    ALL = "All"
    """Every node with a device that the cache fits."""
    DEMAND = "Demand"
    """None: a node pulls it for the first pod that mounts it there."""


class SignerIdentity(Model, frozen=True):
    """A signer without a key of its own, as the certificate of its signature names it."""

    subject: _Text
    """Subject alternative name of the certificate, such as the address of a person or the URI of a workflow."""
    issuer: _Text
    """Issuer of the OpenID Connect token for which the certificate was issued."""


class Verification(Model, frozen=True):
    """Signatures of which one must be good: of a key, or of an identity."""

    keys: (
        Annotated[
            list[Annotated[str, Meta(max_length=16_384, pattern=PUBLIC_KEY_PATTERN)]],
            Meta(max_length=MAX_KEYS),
        ]
        | None
    ) = None
    """Public keys, PEM."""
    identities: Annotated[list[SignerIdentity], Meta(max_length=MAX_IDENTITIES)] | None = None
    """Signers without keys; subject and issuer must both be equal."""
    mode: VerificationMode = VerificationMode.ENFORCE


class PullSecret(Model, frozen=True):
    """A Secret of type kubernetes.io/dockerconfigjson."""

    name: _ObjectName
    """Name of the Secret, in the namespace of the cache; of a ClusterGKMCache, in the control plane's."""


class ExtractionPodTemplate(Model, frozen=True):
    """Field of GKM's generation with PersistentVolumeClaims; it has no effect."""


class GKMCacheSpec(Model, frozen=True):
    """Desired state of the cache."""

    image: Annotated[str, Meta(max_length=MAX_IMAGE_LENGTH, pattern=IMAGE_PATTERN)] = ""
    """The image that holds the cache, by tag or by digest."""
    verification: Verification | None = None
    """Whose signatures are good. The default of the cluster if left out."""
    pull_secrets: Annotated[list[PullSecret], Meta(max_length=16)] | None = None
    """Credentials of the image's registry."""
    warm: WarmPolicy | Annotated[int, Meta(ge=1, le=MAX_WARM_NODES)] | None = None
    """All if left out."""
    pod_template: ExtractionPodTemplate | None = None
    storage_class_name: str = ""
    """Field of GKM's generation with PersistentVolumeClaims; it has no effect."""
    access_modes: list[str] | None = None
    """Field of GKM's generation with PersistentVolumeClaims; it has no effect."""
    workload_namespaces: list[str] | None = None
    """Field of GKM's generation with PersistentVolumeClaims; it has no effect."""

    @property
    def ignored_fields(self) -> tuple[str, ...]:
        """Return the fields that are set and have no effect, as the object spells them."""
        found = {
            "podTemplate": self.pod_template is not None,
            "storageClassName": bool(self.storage_class_name),
            "accessModes": bool(self.access_modes),
            "workloadNamespaces": bool(self.workload_namespaces),
        }
        return tuple(name for name, is_set in found.items() if is_set)

    @property
    def warm_nodes(self) -> WarmPolicy | int:
        return WarmPolicy.ALL if self.warm is None else self.warm


class CacheCounts(Model, frozen=True, omit_defaults=False):
    """Numbers of nodes and pods; of a node object, which is one node, its numbers of caches and pods."""

    nodes: int = msgspec.field(default=0, name="nodeCnt")
    """Nodes that have the cache, or are to get it."""
    nodes_in_use: int = msgspec.field(default=0, name="nodeInUseCnt")
    """Nodes where pods use it."""
    nodes_not_in_use: int = msgspec.field(default=0, name="nodeNotInUseCnt")
    """Nodes that have it, and no pod uses it."""
    nodes_in_error: int = msgspec.field(default=0, name="nodeErrorCnt")
    """Nodes that could not extract or remove it, or whose devices it does not fit."""
    pods_running: int = msgspec.field(default=0, name="podRunningCnt")
    """Pods that use the digest that the cache names."""
    pods_outdated: int = msgspec.field(default=0, name="podOutdatedCnt")
    """Pods that use another digest."""
    pods_deleting: int = msgspec.field(default=0, name="podDeletingCnt")
    """Pods that use a cache that is being deleted."""


class KernelTarget(Model, frozen=True, order=True):
    """An architecture that the kernels were compiled for, as the image spells it."""

    backend: str
    """`cuda` or `hip`."""
    arch: str
    """`90` or `sm_90` of CUDA, `gfx942` of HIP."""
    warp_size: int
    """Threads of a warp."""


class CacheImageFacts(Model, frozen=True):
    """What the image says about its cache; of one digest, so that it never changes."""

    type: str
    """`triton` or `vllm`."""
    targets: list[KernelTarget]
    """Architectures that the kernels were compiled for."""
    layer_bytes: int
    """Bytes of the layer, which is compressed."""
    size_bytes: int | None = None
    """Bytes of the extracted files, where the image says them."""


class PoolWarmth(Model, frozen=True):
    """Nodes of one GPUPool, as far as they concern the cache."""

    name: str
    """Name of the GPUPool."""
    nodes: int
    """Nodes with devices of the pool."""
    warm: int
    """Nodes of them that have the cache extracted."""
    incompatible: int
    """Nodes of them of which the cache fits no device."""


class GKMCacheStatus(Model, frozen=True):
    """Observed state of the cache."""

    resolved_digest: str = ""
    """Digest of the image, which nodes pull. Written once its annotations are proven to be admission's."""
    image: CacheImageFacts | None = None
    """What the image with this digest says about its cache."""
    warm_below: str = ""
    """With a number in spec.warm: nodes whose place in the cache's order is at or below this one keep the cache."""
    pools: list[PoolWarmth] | None = None
    """GPUPools, and on how many of their nodes the cache is warm, by name."""
    conditions: list[Condition] | None = None
    """One of Error, UnloadError, Outdated, Running, Extracted, Pending: the first that a node reports."""
    counts: CacheCounts = CacheCounts()
    last_updated: str = ""
    """Time of the last change of the status."""


class GKMCache(Model, frozen=True):
    """A GPU kernel cache for pods of its namespace."""

    metadata: ObjectMeta = ObjectMeta()
    spec: GKMCacheSpec = GKMCacheSpec()
    status: GKMCacheStatus = GKMCacheStatus()

    @property
    def cache_name(self) -> CacheName:
        return CacheName(namespace=self.metadata.namespace, name=self.metadata.name)

    @property
    def annotated_digest(self) -> str | None:
        """Return the digest that admission resolved, or None; only admission can write it."""
        return self.metadata.annotation(RESOLVED_DIGEST_ANNOTATION)

    @property
    def is_deleting(self) -> bool:
        return self.metadata.deletion_timestamp is not None


class ClusterGKMCache(GKMCache, frozen=True):
    """A GPU kernel cache for pods of every namespace."""
