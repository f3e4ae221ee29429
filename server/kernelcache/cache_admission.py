"""Admission of kernel caches, put together: its context, its keys and its registries."""

from typing import TYPE_CHECKING, final

from admission.caches.context import CacheAdmissionContext, ClusterVerification
from api.kinds.gkmcache import SignerIdentity, Verification
from kernelcache.signatures.policy import SignaturePolicy, read_signature_policy
from server.kernelcache.mutation_key_secret import MutationKeySecret
from server.kernelcache.registry_images import TIMEOUT_S, RegistryImages

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from api.clock import Clock
    from kube.client import KubeClient
    from pool.catalog import Catalog
    from server.kernel_cache_settings import CacheVerificationSettings, KernelCacheSettings


@final
class CacheAdmission:
    """Parts of one process, built without I/O."""

    def __init__(
        self,
        settings: "KernelCacheSettings",
        client: "KubeClient",
        clock: "Clock",
        *,
        namespace: str,
        catalog: "Catalog",
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Take the server's own namespace, the catalog that has all, and the time to resolve and verify an image."""
        self.keys = MutationKeySecret(client, namespace)
        self.images = RegistryImages(
            settings,
            client,
            clock,
            namespace=namespace,
            catalog=catalog,
            timeout_s=timeout_s,
        )
        verification = settings.verification
        self.context = CacheAdmissionContext(
            images=self.images,
            keys=self.keys.keys,
            verification=ClusterVerification(
                signers=_policy(verification),
                is_enforced=verification.mode == "Enforce",
                allows_unsigned=verification.allow_unsigned,
                trusts_kyverno=settings.kyverno,
            ),
            own_namespace=namespace,
            cluster_pull_secrets=frozenset(settings.pull_secrets),
        )

    def tasks(self) -> "dict[str, Coroutine[Any, Any, object]]":
        """Return the tasks by name; each runs until cancelled."""
        return {"caches.key": self.keys.run(), "caches.registries": self.images.run()}


def _policy(settings: "CacheVerificationSettings") -> SignaturePolicy | None:
    if not settings.keys and not settings.identities:
        return None
    identities = [
        SignerIdentity(subject=identity.subject, issuer=identity.issuer)
        for identity in settings.identities
    ]
    return read_signature_policy(Verification(keys=list(settings.keys), identities=identities))
