"""Whose signatures an image needs, by the object and by the cluster's settings.

A GKMCache can add to what the cluster enforces, and take nothing from it. A ClusterGKMCache, which only
administrators write, replaces it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from admission.caches.cache_images import RequiredSigners
from admission.caches.kyverno_annotation import has_kyverno_verified
from admission.decision import Denied
from api.kinds.gkmcache import VerificationMode
from kernelcache.signatures.signature_policy import SignaturePolicyError, read_signature_policy
from telemetry.reasons import RefusalReason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.caches.cache_context import ClusterVerification
    from api.cache_name import CacheName
    from api.image_reference import ImageReference
    from api.kinds.gkmcache import Verification

_FIELD: Final = "spec.verification"
_SETTING: Final = "kernel_caches.verification"
_NOBODY: Final = (
    f"no signer is named whose signature of the image is good: list keys or identities in {_FIELD}, or in the control"
    f" plane's setting {_SETTING}"
)
_NOT_BY_KYVERNO: Final = (
    "; Kyverno has not verified it: annotation kyverno.io/verify-images must have this image with its digest, and"
    ' "pass"'
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureDemands:
    """The policies for an image, all of which count."""

    signers: tuple[RequiredSigners, ...]
    warnings: tuple[str, ...] = ()


def required_signers(
    name: "CacheName", verification: "Verification | None", cluster: "ClusterVerification"
) -> SignatureDemands | Denied:
    """Return the policies for an image of this cache; none where no signer is named."""
    own = None
    if verification is not None:
        try:
            policy = read_signature_policy(verification)
        except SignaturePolicyError as error:
            return Denied(RefusalReason.INVALID_CACHE, f"spec.{error}")
        own = RequiredSigners(
            policy=policy,
            is_enforced=verification.mode is VerificationMode.ENFORCE,
            source=_FIELD,
        )
    if cluster.signers is None:
        return SignatureDemands(signers=() if own is None else (own,))
    of_cluster = RequiredSigners(
        policy=cluster.signers, is_enforced=cluster.is_enforced, source=_SETTING
    )
    if own is None:
        return SignatureDemands(signers=(of_cluster,))
    if not name.namespace:
        return SignatureDemands(signers=(own,))
    if own.is_enforced or not cluster.is_enforced:
        return SignatureDemands(signers=(of_cluster, own))
    enforced = RequiredSigners(policy=own.policy, is_enforced=True, source=_FIELD)
    warning = f"{_FIELD}.mode Warn has no effect: the cluster's verification is enforced"
    return SignatureDemands(signers=(of_cluster, enforced), warnings=(warning,))


def unsigned_denial(
    image: "ImageReference", annotations: "Mapping[str, str]", cluster: "ClusterVerification"
) -> Denied | None:
    """Return why an image for which no signer is named is refused, or None."""
    if cluster.allows_unsigned:
        return None
    if cluster.trusts_kyverno and has_kyverno_verified(annotations, image):
        return None
    hint = _NOT_BY_KYVERNO if cluster.trusts_kyverno else ""
    return Denied(RefusalReason.IMAGE_NOT_VERIFIED, f"{image}: {_NOBODY}{hint}")
