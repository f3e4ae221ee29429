"""Whether a signature that no listed key has made may be verified as a keyless one."""

from typing import TYPE_CHECKING

from kernelcache.signatures.verification import SignatureFault, SignatureProblem

if TYPE_CHECKING:
    from kernelcache.signatures.policy import SignaturePolicy
    from kernelcache.signatures.trust_root import TrustRoot


def trust_root_for_keyless(
    policy: "SignaturePolicy", trust_root: "TrustRoot | None", *, has_certificate: bool
) -> "TrustRoot":
    """Return the trust root by which the certificate of a signature is to be verified.

    Raises:
        SignatureProblem: it has none, no identity is listed, or there is no trust root.
    """
    if not has_certificate:
        raise SignatureProblem(SignatureFault.UNKNOWN_KEY, _unknown_key(policy))
    if not policy.identities:
        raise SignatureProblem(
            SignatureFault.UNKNOWN_KEY,
            "no listed key has made it; it is keyless, and no identity is listed",
        )
    if trust_root is None:
        raise SignatureProblem(
            SignatureFault.NO_TRUST_ROOT,
            "it is keyless, and the control plane has no trust root for keyless signatures",
        )
    return trust_root


def _unknown_key(policy: "SignaturePolicy") -> str:
    if not policy.keys:
        return "it is by a key, and no key is listed"
    if any(key.is_ed25519 for key in policy.keys):
        return (
            "no listed key has made it; of the listed Ed25519 key, signatures of cosign (Ed25519ph)"
            " cannot be verified: sign with a key of ECDSA or RSA"
        )
    return "no listed key has made it"
