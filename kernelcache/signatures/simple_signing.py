"""Signatures in the older form, by key and keyless.

A signature by key needs no entry of a transparency log: the key itself is what the policy trusts, and taking it
off the list ends that. A keyless one does: nothing else says when it was made, and its certificate is valid for
minutes. `sigstore` cannot verify it, because the entry has no proof of inclusion; so it is done here, with
`cryptography`, by the trust root that `sigstore` has for bundles.
"""

import base64
from typing import TYPE_CHECKING

from kernelcache.signatures import signing_certificate
from kernelcache.signatures.certificate_parsing import read_pem_certificate
from kernelcache.signatures.keyless_policy import trust_root_for_keyless
from kernelcache.signatures.signed_image import check_payload
from kernelcache.signatures.transparency_log import logged_at
from kernelcache.signatures.verification import (
    KeySigner,
    SignatureFault,
    SignatureProblem,
    Signer,
)

if TYPE_CHECKING:
    from api.image_reference import Digest
    from kernelcache.signatures.material import SimpleSigning
    from kernelcache.signatures.policy import SignaturePolicy
    from kernelcache.signatures.trust_root import TrustRoot


def simple_signing_signer(
    material: "SimpleSigning",
    digest: "Digest",
    *,
    policy: "SignaturePolicy",
    trust_root: "TrustRoot | None",
) -> Signer:
    """Return the listed signer who has signed the image with this digest.

    Raises:
        SignatureProblem: it proves nothing of the kind.
    """
    try:
        signature = base64.b64decode(material.signature, validate=True)
    except ValueError:
        raise SignatureProblem(SignatureFault.MALFORMED, "it is not in Base64") from None
    for key in policy.keys:
        if key.has_signed(signature, material.payload):
            signer: Signer = KeySigner(fingerprint=key.fingerprint)
            break
    else:
        signer = _keyless_signer(material, signature, policy=policy, trust_root=trust_root)
    check_payload(material.payload, digest=digest, signer=signer)
    return signer


def _keyless_signer(
    material: "SimpleSigning",
    signature: bytes,
    *,
    policy: "SignaturePolicy",
    trust_root: "TrustRoot | None",
) -> Signer:
    trust_root = trust_root_for_keyless(
        policy, trust_root, has_certificate=bool(material.certificate)
    )
    try:
        certificate = read_pem_certificate(material.certificate.encode())
    except ValueError:
        raise SignatureProblem(SignatureFault.MALFORMED, "its certificate cannot be read") from None
    signed_at = logged_at(
        material.log_bundle,
        trust_root,
        payload=material.payload,
        signature=signature,
        certificate=certificate,
    )
    signing_certificate.check_certificate(certificate, trust_root, signed_at=signed_at)
    if not signing_certificate.certified_key(certificate).has_signed(signature, material.payload):
        raise SignatureProblem(
            SignatureFault.OTHER_CONTENT, "the key in its certificate has not signed its payload"
        )
    return signing_certificate.accepted_signer(certificate, policy)
