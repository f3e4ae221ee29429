"""Keyless bundles, verified by `sigstore` with a trust root of our own and without a network.

It checks the chain to an authority, the promise of the certificate's log, the time of signing, the entry in the
transparency log with its proof of inclusion, and the signature. Which identity is accepted is decided elsewhere,
by the certificate that is returned. `sigstore` is imported by the first use; `--help` must not wait for it.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar, final

from kernelcache.signatures.signing_certificate import check_validity
from kernelcache.signatures.verification import SignatureFault, SignatureProblem

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable

    from cryptography.x509 import Certificate
    from sigstore.models import Bundle
    from sigstore.verify import Verifier

    from kernelcache.signatures.trust_root import TrustRoot


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedEnvelope:
    """What the holder of a certificate has signed."""

    certificate: "Certificate" = field(repr=False)
    payload_type: str
    payload: bytes = field(repr=False)


@final
class _CheckedCertificate:
    """A policy of `sigstore` that keeps the certificate, which has been verified when it is asked."""

    def __init__(self) -> None:
        self.certificate: Certificate | None = None

    def verify(self, cert: "Certificate") -> None:
        self.certificate = cert


Result = TypeVar("Result")


def verify_keyless_envelope(content: bytes, trust_root: "TrustRoot") -> VerifiedEnvelope:
    """Return what a bundle with an envelope proves.

    Raises:
        SignatureProblem: it proves nothing.
    """
    certificate, (payload_type, payload) = _verify(
        content, trust_root, lambda verifier, bundle, policy: verifier.verify_dsse(bundle, policy)
    )
    return VerifiedEnvelope(certificate=certificate, payload_type=payload_type, payload=payload)


def verify_keyless_message(
    content: bytes, trust_root: "TrustRoot", *, sha256: bytes
) -> "Certificate":
    """Return the certificate whose holder has signed the message with this digest of 32 bytes.

    Raises:
        SignatureProblem: the bundle does not prove it.
    """
    from sigstore.hashes import Hashed  # noqa: PLC0415  # see the module

    message = Hashed.model_validate({"algorithm": "SHA2_256", "digest": sha256})
    certificate, _ = _verify(
        content,
        trust_root,
        lambda verifier, bundle, policy: verifier.verify_artifact(message, bundle, policy),
    )
    return certificate


def _verify(
    content: bytes,
    trust_root: "TrustRoot",
    check: "Callable[[Verifier, Bundle, _CheckedCertificate], Result]",
) -> "tuple[Certificate, Result]":
    from sigstore.models import Bundle  # noqa: PLC0415  # see the module

    try:
        bundle = Bundle.from_json(content)
    except Exception as error:  # noqa: BLE001  # foreign bytes in a foreign parser: no exception is declared
        raise SignatureProblem(
            SignatureFault.MALFORMED, f"its bundle cannot be read: {_one_line(error)}"
        ) from None
    checked = _CheckedCertificate()
    try:
        result = check(trust_root.bundle_verifier, bundle, checked)
    except Exception as error:  # noqa: BLE001  # as above; whatever it is, nothing is proven
        raise _problem(bundle, checked, error) from None
    assert checked.certificate is not None  # a verified bundle has passed the policy
    return checked.certificate, result


def _problem(bundle: "Bundle", checked: _CheckedCertificate, error: Exception) -> SignatureProblem:
    if checked.certificate is not None:
        return SignatureProblem(
            SignatureFault.NOT_LOGGED,
            f"its entry of the transparency log proves nothing: {_one_line(error)}",
        )
    try:
        for time in _timestamps(bundle):
            check_validity(bundle.signing_certificate, time)
    except SignatureProblem as expired:
        return expired
    return SignatureProblem(
        SignatureFault.UNTRUSTED_CERTIFICATE,
        f"its certificate, or the time of signing, is not trusted: {_one_line(error)}",
    )


def _timestamps(bundle: "Bundle") -> "list[dt.datetime]":
    """Return the times that timestamping authorities are said to have confirmed."""
    found = bundle.verification_material.timestamp_verification_data
    return [timestamp.tst_info.gen_time for timestamp in found.rfc3161_timestamps] if found else []


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
