"""The verification of an image by all signatures that a registry has of it.

Called in a thread: a keyless bundle takes some milliseconds, and an image can have 64. The caller passes all that
it has read, of both forms, and the problems of signatures that it could not read, for their size or their faults.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernelcache.signatures import verification
from kernelcache.signatures.material import (
    MAX_SIGNATURE_BYTES,
    MAX_SIGNATURES,
    SignatureMaterial,
    SigstoreBundle,
    SimpleSigning,
)
from kernelcache.signatures.sigstore_bundle import bundle_signer
from kernelcache.signatures.simple_signing import simple_signing_signer

if TYPE_CHECKING:
    from api.image_reference import Digest
    from kernelcache.signatures.policy import SignaturePolicy
    from kernelcache.signatures.trust_root import TrustRoot


def verify_signatures(
    digest: "Digest",
    signatures: Sequence[SignatureMaterial],
    *,
    policy: "SignaturePolicy",
    trust_root: "TrustRoot | None",
    unread: Sequence[verification.SignatureProblem] = (),
) -> verification.VerificationResult:
    """Return the first listed signer who has signed the image with this digest, or why there is none.

    `unread` are the problems of signatures that are no material; they count where none is accepted. Total: no content of a registry raises. The digest is that of the manifest which the image's reference
    resolved to, the index where there is one, as cosign signs it.
    """
    if len(signatures) > MAX_SIGNATURES:
        problem = verification.SignatureProblem(
            verification.SignatureFault.TOO_MANY,
            f"it has {len(signatures)} signatures; at most {MAX_SIGNATURES} are possible: remove"
            " those that are not needed",
        )
        return verification.refusal(digest, [problem])
    problems = [*unread]
    for material in signatures:
        try:
            signer = _signer(material, digest, policy=policy, trust_root=trust_root)
        except verification.SignatureProblem as problem:
            problems.append(problem)
        else:
            return verification.SignatureVerified(digest=digest, signer=signer)
    return verification.refusal(
        digest,
        problems
        or [
            verification.SignatureProblem(
                verification.SignatureFault.NONE_AT_ALL, "it has no signature"
            )
        ],
    )


def _signer(
    material: SignatureMaterial,
    digest: "Digest",
    *,
    policy: "SignaturePolicy",
    trust_root: "TrustRoot | None",
) -> verification.Signer:
    if material.size_bytes > MAX_SIGNATURE_BYTES:
        raise verification.SignatureProblem(
            verification.SignatureFault.TOO_LARGE,
            f"it has {material.size_bytes} bytes; at most {MAX_SIGNATURE_BYTES} are possible",
        )
    match material:
        case SimpleSigning():
            return simple_signing_signer(material, digest, policy=policy, trust_root=trust_root)
        case SigstoreBundle():
            return bundle_signer(material.content, digest, policy=policy, trust_root=trust_root)
