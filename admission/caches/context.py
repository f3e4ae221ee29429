"""Dependencies of the webhooks for caches."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission.caches.images import CacheImages
    from kernelcache.signatures.mutation import MutationKeys
    from kernelcache.signatures.policy import SignaturePolicy


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterVerification:
    """What the cluster's settings demand of every cache's image."""

    signers: "SignaturePolicy | None" = None
    is_enforced: bool = True
    allows_unsigned: bool = False
    """Whether an image may come in for which no signer is named."""
    trusts_kyverno: bool = False
    """Whether Kyverno's annotation counts: it must keep users from writing it."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CacheAdmissionContext:
    """Settings and ports of a decision."""

    images: "CacheImages"
    keys: "Callable[[], MutationKeys | None]"
    """None until they are loaded."""
    verification: ClusterVerification
    own_namespace: str
    """Where the pull secrets of ClusterGKMCaches are."""
    cluster_pull_secrets: frozenset[str]
    """Those that ClusterGKMCaches may name."""
