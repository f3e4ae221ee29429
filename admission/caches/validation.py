"""Validation of caches: what is stored proves itself.

The whole set of annotations is judged at each creation and each change (W5), by any user, and after all
mutating webhooks. An object that is being deleted passes with what it has.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from admission.caches.mutation import KEYS_NOT_LOADED
from admission.decision import Admitted, Decision, Denied
from api.names import GKM_ANNOTATIONS, RESOLVED_DIGEST_ANNOTATION
from kernelcache.admitted_image import ProvenImage, proven_image
from telemetry.reasons import RefusalReason

if TYPE_CHECKING:
    from admission.caches.context import CacheAdmissionContext
    from admission.caches.request import CacheRequest

_MUTATED_LATER: Final = "another mutating webhook changed it after gpu-control-plane's: let its configuration sort before"


def validate_cache(request: "CacheRequest", context: "CacheAdmissionContext") -> Decision:
    """Admit the cache as it will be stored, or deny it."""
    if request.is_deleting:
        return _validate_deleting(request)
    keys = context.keys()
    if keys is None:
        return KEYS_NOT_LOADED
    revision = request.revision
    if request.new.metadata.generation:
        # Final at validation, and what the proof will be compared with.
        revision = replace(revision, generation=request.new.metadata.generation)
    found = proven_image(request.new.annotations, revision, keys)
    if not isinstance(found, ProvenImage):
        return Denied(RefusalReason.FORGED_ANNOTATION, f"{request.name}: {found}; {_MUTATED_LATER}")
    digest = found.image.digest
    before = _digest_before(request, context)
    if before is not None and before != digest:
        text = f"{RESOLVED_DIGEST_ANNOTATION} is immutable when spec.image is unchanged"
        return Denied(RefusalReason.FORGED_ANNOTATION, text)
    return Admitted(facts={"digest": digest})


def _validate_deleting(request: "CacheRequest") -> Decision:
    stored = request.old.annotations if request.old is not None else {}
    is_same = all(stored.get(key) == request.new.annotations.get(key) for key in GKM_ANNOTATIONS)
    if is_same and request.has_same_spec:
        return Admitted()
    text = f"{request.name} is being deleted: its spec and its annotations cannot change any more"
    return Denied(RefusalReason.FORGED_ANNOTATION, text)


def _digest_before(request: "CacheRequest", context: "CacheAdmissionContext") -> str | None:
    """Return the digest that the stored object proves for the same image."""
    old, revision, keys = request.old, request.old_revision, context.keys()
    if old is None or revision is None or keys is None or old.image != request.new.image:
        return None
    found = proven_image(old.annotations, revision, keys)
    return found.image.digest if isinstance(found, ProvenImage) else None
