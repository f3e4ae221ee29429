"""Mutation of caches: our annotations are what this control plane found out about the image, and nothing else.

* Spec unchanged: they are put back as they are stored; users cannot drop or change them (W5).
* Image unchanged: the digest stays, and is signed for the coming generation. Signatures are verified again where
  `spec.verification` changed, as when a key was taken off.
* Otherwise the image is resolved and verified.

An object that is being deleted is left to its deletion, whatever its registry says.
"""

from typing import TYPE_CHECKING, Final

import msgspec

from admission.caches import images
from admission.caches.required_signers import required_signers, unsigned_denial
from admission.decision import Admitted, Decision, Denied
from api.field_errors import UNDECODABLE
from api.image_reference import ImageReference, ImageReferenceError, parse_image_reference
from api.kinds.gkmcache import GKMCacheSpec
from api.names import GKM_ANNOTATIONS, LAST_MUTATED_BY_ANNOTATION
from api.text import pointer_token
from kernelcache.admitted_image import (
    ProvenImage,
    image_annotations,
    proven_image,
)
from kernelcache.signatures.mutation import SignedWith
from telemetry.reasons import RefusalReason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from admission.caches.context import CacheAdmissionContext
    from admission.caches.request import CacheRequest
    from admission.decision import PatchOperation
    from kernelcache.admitted_image import AdmittedImage
    from kernelcache.signatures.mutation import MutationKeys

KEYS_NOT_LOADED: Final = Denied(
    RefusalReason.NOT_READY,
    "gpu-control-plane is starting: its key for the annotations of caches is not loaded yet; try again",
)


async def mutate_cache(request: "CacheRequest", context: "CacheAdmissionContext") -> Decision:
    """Admit the cache with the annotations that belong to it, or deny it."""
    if request.is_deleting:
        return Admitted(patch=_patch(request, _own_annotations(request)))
    keys = context.keys()
    if keys is None:
        return KEYS_NOT_LOADED
    kept = _stored_proof(request, keys)
    if kept is not None and request.has_same_spec:
        return Admitted(patch=_patch(request, _restored(request, kept, keys)))
    reference = _reference(request)
    if isinstance(reference, Denied):
        return reference
    spec = _spec(request)
    if isinstance(spec, Denied):
        return spec
    if kept is None or not request.has_same_verification:
        if kept is not None:
            reference = reference.with_digest(kept.image.digest)
        found = await _resolve(request, spec, reference=reference, context=context)
        if isinstance(found, Denied):
            return found
        image, warnings = found
    else:
        image, warnings = kept.image, ()
    annotations = image_annotations(image, request.revision, keys, user=request.user)
    return Admitted(
        patch=_patch(request, annotations),
        warnings=(*_ignored(spec), *warnings),
        audit={"digest": image.digest},
        facts={"digest": image.digest},
    )


def _stored_proof(request: "CacheRequest", keys: "MutationKeys") -> ProvenImage | None:
    """Return what the stored object proves, where it names the same image."""
    old, revision = request.old, request.old_revision
    if old is None or revision is None or old.image != request.new.image:
        return None
    found = proven_image(old.annotations, revision, keys)
    return found if isinstance(found, ProvenImage) else None


def _own_annotations(request: "CacheRequest") -> dict[str, str]:
    """Return our annotations as they are stored."""
    stored = request.old.annotations if request.old is not None else {}
    return {key: stored[key] for key in GKM_ANNOTATIONS if key in stored}


def _restored(
    request: "CacheRequest", kept: ProvenImage, keys: "MutationKeys"
) -> "Mapping[str, str]":
    ours = _own_annotations(request)
    if kept.signed_with is SignedWith.CURRENT:
        return ours
    # Nothing has changed but the key.
    user = ours.get(LAST_MUTATED_BY_ANNOTATION, request.user)
    return image_annotations(kept.image, request.revision, keys, user=user)


def _reference(request: "CacheRequest") -> ImageReference | Denied:
    try:
        return parse_image_reference(request.new.image)
    except ImageReferenceError as error:
        return Denied(RefusalReason.INVALID_CACHE, f"spec.image: {error}")


def _spec(request: "CacheRequest") -> GKMCacheSpec | Denied:
    try:
        return msgspec.convert(request.new.spec or {}, GKMCacheSpec)
    except UNDECODABLE as error:
        return Denied(RefusalReason.INVALID_CACHE, f"spec: {error}")


async def _resolve(
    request: "CacheRequest",
    spec: GKMCacheSpec,
    *,
    reference: ImageReference,
    context: "CacheAdmissionContext",
) -> "tuple[AdmittedImage, tuple[str, ...]] | Denied":
    """Return the image and warnings about it."""
    required = required_signers(request.name, spec.verification, context.verification)
    if isinstance(required, Denied):
        return required
    if not required.signers:
        denial = unsigned_denial(reference, request.new.annotations, context.verification)
        if denial is not None:
            return denial
    secrets = _pull_secrets(request, spec, context)
    if isinstance(secrets, Denied):
        return secrets
    question = images.ImageQuestion(
        cache=request.name, reference=reference, signers=required.signers, pull_secrets=secrets
    )
    found = await context.images.resolve(question)
    if isinstance(found, images.ImageFault):
        reason = (
            RefusalReason.REGISTRY_UNAVAILABLE
            if found.is_transient
            else RefusalReason.IMAGE_UNUSABLE
        )
        return Denied(reason, found.text)
    decision = images.decide(question, found)
    if decision.refusals:
        return Denied(
            RefusalReason.IMAGE_NOT_VERIFIED, f"{reference}: {'; '.join(decision.refusals)}"
        )
    return found.image, (*required.warnings, *decision.warnings)


def _pull_secrets(
    request: "CacheRequest", spec: GKMCacheSpec, context: "CacheAdmissionContext"
) -> tuple[images.SecretName, ...] | Denied:
    names = tuple(secret.name for secret in spec.pull_secrets or ())
    namespace = request.name.namespace or context.own_namespace
    if not request.name.namespace:
        for name in names:
            if name not in context.cluster_pull_secrets:
                text = (
                    f"spec.pullSecrets: a ClusterGKMCache may not name {name}: the control plane's setting"
                    " kernel_caches.pull_secrets lists those that it may name"
                )
                return Denied(RefusalReason.INVALID_CACHE, text)
    return tuple(images.SecretName(namespace=namespace, name=name) for name in names)


def _ignored(spec: GKMCacheSpec) -> tuple[str, ...]:
    fields = spec.ignored_fields
    if not fields:
        return ()
    verb = "has" if len(fields) == 1 else "have"
    return (f"{', '.join(f'spec.{name}' for name in fields)} {verb} no effect here",)


def _patch(
    request: "CacheRequest", annotations: "Mapping[str, str]"
) -> "tuple[PatchOperation, ...]":
    """Return what makes our annotations these, and touches no other."""
    present = request.new.metadata.annotations
    if present is None:
        whole = {"op": "add", "path": "/metadata/annotations", "value": dict(annotations)}
        return (whole,) if annotations else ()
    operations: list[PatchOperation] = []
    for key in GKM_ANNOTATIONS:
        path = f"/metadata/annotations/{pointer_token(key)}"
        if key in annotations and present.get(key) != annotations[key]:
            operations.append({"op": "add", "path": path, "value": annotations[key]})
        elif key in present and key not in annotations:
            operations.append({"op": "remove", "path": path})
    return tuple(operations)
