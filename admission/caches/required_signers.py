"""Whose signatures an image needs, by the object and by the cluster's settings.

A GKMCache can add to what the cluster enforces, and take nothing from it. A ClusterGKMCache, which only
administrators write, replaces it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import msgspec

from admission.caches.images import RequiredSigners
from admission.decision import Denied
from api.field_errors import UNDECODABLE
from api.image_reference import ImageReference, ImageReferenceError, parse_image_reference
from api.kinds.gkmcache import VerificationMode
from api.names import KYVERNO_ANNOTATION
from kernelcache.signatures.policy import SignaturePolicyError, read_signature_policy
from telemetry.reasons import RefusalReason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.caches.context import ClusterVerification
    from api.cache_name import CacheName
    from api.kinds.gkmcache import Verification

_KYVERNO_OK: Final = "pass"
_verified: Final = msgspec.json.Decoder(dict[str, str])
_FIELD: Final = "spec.verification"
_SETTING: Final = "kernel_caches.verification"
SIGNER_LINE: Final = 'spec: {verification: {keys: ["-----BEGIN PUBLIC KEY-----…"]}}'
"""A line of a cache that has a good signer."""
UNSIGNED_LINE: Final = "settings: {kernel_caches: {verification: {allow_unsigned: true}}}"
"""The line of the chart's values that lets images in without a signer."""
_NO_SIGNER: Final = (
    f"no signer is named whose signature of the image is good: list keys or identities in {_FIELD}, as `{SIGNER_LINE}`, or in the"
    f" control plane's setting {_SETTING}; the line `{UNSIGNED_LINE}` of the chart's values lets unsigned images in"
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
    return Denied(RefusalReason.IMAGE_NOT_VERIFIED, f"{image}: {_NO_SIGNER}{hint}")


def has_kyverno_verified(annotations: "Mapping[str, str]", image: ImageReference) -> bool:
    """Say whether the annotation has this image with this digest, and nothing but `pass` for it."""
    text = annotations.get(KYVERNO_ANNOTATION)
    if text is None or image.digest is None:
        return False
    try:
        listed = _verified.decode(text)
    except UNDECODABLE:
        return False
    found = [result for key, result in listed.items() if _names(key, image)]
    return bool(found) and all(result == _KYVERNO_OK for result in found)


def _names(key: str, image: ImageReference) -> bool:
    try:
        found = parse_image_reference(key)
    except ImageReferenceError:
        return False
    is_same = (found.registry, found.repository, found.digest) == (
        image.registry,
        image.repository,
        image.digest,
    )
    # Kyverno leaves out the tag beside a digest; where it is there, it is compared.
    return is_same and found.tag in {None, image.tag}
