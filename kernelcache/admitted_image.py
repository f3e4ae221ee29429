"""What the annotations of a cache prove about its image: digest and facts, written by admission for this very object.

Admission writes them, admission's validation and the leader's controller read them again; nothing else is trusted.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import msgspec

from api import names
from api.field_errors import UNDECODABLE
from api.image_reference import Digest, parse_digest
from api.kinds.gkmcache import CacheImageFacts
from api.text import truncate
from kernelcache.signatures import mutation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from api.cache_name import CacheName

_facts: Final = msgspec.json.Decoder(CacheImageFacts)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRevision:
    """The object that annotations are for: signatures of another name, generation or image prove nothing for it."""

    name: "CacheName"
    generation: int
    image: str
    """`spec.image` as it is written."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class AdmittedImage:
    """An image that admission resolved, and found to be as the policy of that time demands."""

    digest: Digest
    facts: CacheImageFacts


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenImage:
    """An image of which the annotations prove that admission let it in."""

    image: AdmittedImage
    signed_with: mutation.SignedWith
    """With the previous key: admission is to sign again."""


def image_annotations(
    image: AdmittedImage, revision: CacheRevision, keys: mutation.MutationKeys, *, user: str
) -> dict[str, str]:
    """Return the annotations that prove the image for this object."""
    facts = msgspec.json.encode(image.facts).decode()
    subject = _subject(revision, image.digest, facts)
    annotations = {
        names.RESOLVED_DIGEST_ANNOTATION: image.digest,
        names.CACHE_IMAGE_ANNOTATION: facts,
        names.MUTATION_SIGNATURE_ANNOTATION: mutation.sign_mutation(subject, keys),
        names.LAST_MUTATED_BY_ANNOTATION: user,
    }
    if image.facts.size_bytes is not None:
        annotations[names.CACHE_SIZE_ANNOTATION] = str(image.facts.size_bytes)
    return annotations


def proven_image(
    annotations: "Mapping[str, str]", revision: CacheRevision, keys: mutation.MutationKeys
) -> ProvenImage | str:
    """Return the image that the annotations prove, or why they prove none."""
    text = annotations.get(names.RESOLVED_DIGEST_ANNOTATION)
    facts_text = annotations.get(names.CACHE_IMAGE_ANNOTATION)
    signature = annotations.get(names.MUTATION_SIGNATURE_ANNOTATION)
    for name, found in (
        (names.RESOLVED_DIGEST_ANNOTATION, text),
        (names.CACHE_IMAGE_ANNOTATION, facts_text),
        (names.MUTATION_SIGNATURE_ANNOTATION, signature),
    ):
        if not found:
            return f"annotation {name} is missing"
    assert text is not None, "judged above"
    assert facts_text is not None, "judged above"
    digest = parse_digest(text)
    if digest is None:
        return f'annotation {names.RESOLVED_DIGEST_ANNOTATION} is "{truncate(text)}", no digest'
    subject = _subject(revision, digest, facts_text)
    signed_with = mutation.mutation_signed_with(subject, signature or "", keys)
    if signed_with is None:
        return f"annotation {names.MUTATION_SIGNATURE_ANNOTATION} is not admission's for this object, its image and generation"
    try:
        facts = _facts.decode(facts_text)
    except UNDECODABLE as error:  # signed by a version that knew other facts
        return f"annotation {names.CACHE_IMAGE_ANNOTATION} cannot be read: {truncate(str(error))}"
    size = None if facts.size_bytes is None else str(facts.size_bytes)
    # The webhooks are not asked where an empty text comes in the place of none: it says no size either.
    if (annotations.get(names.CACHE_SIZE_ANNOTATION) or None) != size:
        return f"annotation {names.CACHE_SIZE_ANNOTATION} is not what the image says"
    return ProvenImage(image=AdmittedImage(digest=digest, facts=facts), signed_with=signed_with)


def _subject(revision: CacheRevision, digest: Digest, facts: str) -> mutation.MutationSubject:
    return mutation.MutationSubject(
        namespace=revision.name.namespace,
        name=revision.name.name,
        generation=revision.generation,
        image=revision.image,
        digest=digest,
        image_facts=facts,
    )
