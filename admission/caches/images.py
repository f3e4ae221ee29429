"""The port by which admission learns about a cache's image, and the decision on its contents."""

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol, final

from kernelcache.signatures.verification import SignatureRefused

if TYPE_CHECKING:
    from api.cache_name import CacheName
    from api.image_reference import ImageReference
    from kernelcache.admitted_image import AdmittedImage
    from kernelcache.signatures.policy import SignaturePolicy
    from kernelcache.signatures.verification import VerificationResult


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RequiredSigners:
    """One of the policies that an image must satisfy."""

    policy: "SignaturePolicy"
    is_enforced: bool
    """Otherwise an image without such a signature is let in with a warning."""
    source: str
    """The field or setting that lists the signers."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SecretName:
    """A pull secret."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ImageQuestion:
    """The question for the digest of an image, the facts of its cache, and its signers."""

    cache: "CacheName"
    reference: "ImageReference"
    """With a digest, its tag is not asked for."""
    signers: tuple[RequiredSigners, ...]
    """Without any, signatures are not read."""
    pull_secrets: tuple[SecretName, ...]


class VerificationOutcome(Enum):
    """What an image's signatures were worth."""

    VERIFIED = "verified"
    """Each policy has a signature."""
    UNSIGNED = "unsigned"
    """No policy asks for one."""
    WARNED = "warned"
    """One is missing that is not enforced."""
    REFUSED = "refused"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedImage:
    """What a registry says of an image."""

    image: "AdmittedImage"
    """Not admitted before `decide` says so."""
    results: "tuple[VerificationResult, ...]"
    """One for each of the question's signers."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFault:
    """The fault for which nothing is known of an image."""

    text: str
    """With the image's name, the fact, and what to do."""
    is_transient: bool
    """Whether the same question may be answered later."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ImageDecision:
    """What follows from the results."""

    outcome: VerificationOutcome
    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class CacheImages(Protocol):
    """Resolves images of kernel caches at their registries."""

    async def resolve(self, question: ImageQuestion) -> ResolvedImage | ImageFault:
        """Answer within the time that a webhook has; never raises for what a registry does."""


def decide(question: ImageQuestion, resolved: ResolvedImage) -> ImageDecision:
    """Decide whether the image's signatures suffice."""
    refusals: list[str] = []
    warnings: list[str] = []
    for signers, result in zip(question.signers, resolved.results, strict=True):
        if isinstance(result, SignatureRefused):
            text = f"{signers.source}: {result.message}"
            (refusals if signers.is_enforced else warnings).append(text)
    if refusals:
        outcome = VerificationOutcome.REFUSED
    elif warnings:
        outcome = VerificationOutcome.WARNED
    else:
        outcome = VerificationOutcome.VERIFIED if question.signers else VerificationOutcome.UNSIGNED
    return ImageDecision(outcome=outcome, refusals=tuple(refusals), warnings=tuple(warnings))
