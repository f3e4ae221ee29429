"""Reviews of caches, a registry's answers by hand, and an API server's part in storing them."""

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import jsonpatch

from admission.cache_webhooks import (
    mutate_clustergkmcache,
    mutate_gkmcache,
    validate_clustergkmcache,
    validate_gkmcache,
)
from admission.caches.context import CacheAdmissionContext, ClusterVerification
from admission.caches.images import ImageFault, ImageQuestion, ResolvedImage
from api.image_reference import Digest
from api.kinds.gkmcache import CacheImageFacts, KernelTarget, Verification
from api.names import GKM_ANNOTATIONS
from kernelcache.admitted_image import AdmittedImage
from kernelcache.signatures.mutation import MutationKeys
from kernelcache.signatures.policy import SignaturePolicy, read_signature_policy
from kernelcache.signatures.public_keys import VerificationKey
from kernelcache.signatures.verification import (
    KeySigner,
    SignatureFault,
    SignatureProblem,
    SignatureVerified,
    VerificationResult,
    refusal,
)
from tests.support.reviews import Reply, a_review
from tests.support.sigstore_instance import new_key, public_pem

GKMCACHE = {"group": "gkm.io", "version": "v1alpha1", "kind": "GKMCache"}
CLUSTERGKMCACHE = {**GKMCACHE, "kind": "ClusterGKMCache"}
IMAGE = "registry.example.com/team/cache:1"
FACTS = CacheImageFacts(
    type="triton",
    targets=[KernelTarget(backend="cuda", arch="90", warp_size=32)],
    layer_bytes=1000,
    size_bytes=4000,
)
KEYS = MutationKeys(current=b"c" * 32, previous=None)
SIGNERS = {name: public_pem(new_key()) for name in ("alice", "bob")}
"""Name -> public key."""


def a_digest(number: int = 1) -> Digest:
    return Digest(f"sha256:{number:064x}")


def a_policy(*names: str) -> SignaturePolicy:
    return read_signature_policy(Verification(keys=[SIGNERS[name] for name in names]))


def a_verification(*names: str, mode: str = "Enforce") -> dict[str, Any]:
    return {"keys": [SIGNERS[name] for name in names], "mode": mode}


@dataclass
class ScriptedImages:
    """What tags stand for, and who has signed what; `fault` is answered to everything."""

    tags: dict[str, Digest] = field(default_factory=lambda: {IMAGE: a_digest()})
    signed: dict[Digest, set[str]] = field(default_factory=dict)
    fault: ImageFault | None = None
    asked: list[ImageQuestion] = field(default_factory=list)

    async def resolve(self, question: ImageQuestion) -> ResolvedImage | ImageFault:
        self.asked.append(question)
        if self.fault is not None:
            return self.fault
        digest = question.reference.digest or self.tags[str(question.reference)]
        return ResolvedImage(
            image=AdmittedImage(digest=digest, facts=FACTS),
            results=tuple(self._result(digest, signer.policy) for signer in question.signers),
        )

    def _result(self, digest: Digest, policy: SignaturePolicy) -> VerificationResult:
        for name in sorted(self.signed.get(digest, ())):
            key = VerificationKey.from_pem(SIGNERS[name])
            if key.fingerprint in {item.fingerprint for item in policy.keys}:
                return SignatureVerified(digest=digest, signer=KeySigner(fingerprint=name))
        return refusal(
            digest, [SignatureProblem(SignatureFault.NONE_AT_ALL, "it has no signature")]
        )


@dataclass
class CacheAdmissionSetup:
    """A control plane's admission of caches."""

    images: ScriptedImages = field(default_factory=ScriptedImages)
    keys: MutationKeys | None = KEYS
    verification: ClusterVerification = field(
        default_factory=lambda: ClusterVerification(allows_unsigned=True)
    )
    pull_secrets: frozenset[str] = frozenset()

    @property
    def context(self) -> CacheAdmissionContext:
        return CacheAdmissionContext(
            images=self.images,
            keys=lambda: self.keys,
            verification=self.verification,
            own_namespace="gpu-control-plane",
            cluster_pull_secrets=self.pull_secrets,
        )

    def demand(self, **changes: Any) -> None:
        self.verification = replace(self.verification, **changes)

    def mutate(self, obj: dict[str, Any], old: Any = None, **review: Any) -> Reply:
        webhook = mutate_clustergkmcache if _is_cluster(obj) else mutate_gkmcache
        return Reply(asyncio.run(webhook(_reviewed(obj, old, **review), self.context)))

    def validate(self, obj: dict[str, Any], old: Any = None, **review: Any) -> Reply:
        webhook = validate_clustergkmcache if _is_cluster(obj) else validate_gkmcache
        return Reply(webhook(_reviewed(obj, old, **review), self.context))

    def store(self, obj: dict[str, Any], old: Any = None, **review: Any) -> dict[str, Any]:
        """Return the object as the API server stores it.

        Raises:
            RefusedError: one of the webhooks has refused it.
        """
        found = self.mutate(obj, old, **review)
        if not found.allowed:
            raise RefusedError(found)
        changed: dict[str, Any] = jsonpatch.JsonPatch(found.patch).apply(obj)
        return self.store_unmutated(changed, old, **review)

    def store_unmutated(
        self, obj: dict[str, Any], old: Any = None, **review: Any
    ) -> dict[str, Any]:
        """Store it past the mutating webhook, as where another one has changed it later."""
        generation = 1
        if old is not None:
            generation = old["metadata"]["generation"] + (old.get("spec") != obj.get("spec"))
        meta = {**obj["metadata"], "generation": generation}
        if old is not None and "deletionTimestamp" in old["metadata"]:
            meta["deletionTimestamp"] = old["metadata"]["deletionTimestamp"]
        changed = {**obj, "metadata": meta}
        judged = self.validate(changed, old, **review)
        if not judged.allowed:
            raise RefusedError(judged)
        return changed


class RefusedError(Exception):
    """A webhook has refused the object."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.message)
        self.code = reply.code


def a_cache(
    name: str = "cache", image: Any = IMAGE, *, namespace: str | None = "team-a", **spec: Any
) -> dict[str, Any]:
    """A GKMCache; a ClusterGKMCache without a namespace."""
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {
        "apiVersion": "gkm.io/v1alpha1",
        "kind": "GKMCache" if namespace else "ClusterGKMCache",
        "metadata": meta,
        "spec": {"image": image, **spec},
    }


def changed(obj: dict[str, Any], *, annotations: Any = None, **spec: Any) -> dict[str, Any]:
    """The object with other fields; `annotations` replace all."""
    meta = dict(obj["metadata"])
    if annotations is not None:
        meta["annotations"] = annotations
    return {**obj, "metadata": meta, "spec": {**obj["spec"], **spec}}


def ours(obj: dict[str, Any]) -> dict[str, str]:
    annotations = obj["metadata"].get("annotations") or {}
    return {key: annotations[key] for key in GKM_ANNOTATIONS if key in annotations}


def _is_cluster(obj: dict[str, Any]) -> bool:
    return bool(obj["kind"] == "ClusterGKMCache")


def _reviewed(obj: dict[str, Any], old: Any, **review: Any) -> bytes:
    kind = CLUSTERGKMCACHE if _is_cluster(obj) else GKMCACHE
    review.setdefault("operation", "CREATE" if old is None else "UPDATE")
    return a_review(obj, kind=kind, old=old, **review)
