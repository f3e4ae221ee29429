"""Certificates of keyless signers: which identity they certify, and whether an authority issued them then.

Needed here for the older form of signatures only: of bundles, `sigstore` checks all but the identity. Both ways
demand the same: a chain to an authority of the trust root that was valid at the time of signing, code signing as
the purpose, and the promise of a certificate transparency log (RFC 6962) inside the certificate.
"""

import datetime as dt
import hashlib
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.hazmat import asn1
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509 import verification
from cryptography.x509.certificate_transparency import LogEntryType
from cryptography.x509.oid import ExtendedKeyUsageOID

from api.text import listed
from kernelcache.signatures.public_keys import PublicKeyError, VerificationKey
from kernelcache.signatures.verification import (
    KeylessSigner,
    SignatureFault,
    SignatureProblem,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cryptography.x509.certificate_transparency import SignedCertificateTimestamp

    from kernelcache.signatures.policy import SignaturePolicy
    from kernelcache.signatures.trust_root import TrustRoot

# Fulcio's, under 1.3.6.1.4.1.57264.1
_ISSUER: Final = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.8")
_ISSUER_UNTIL_2023: Final = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.1")
"""Its value is the bare text, without an ASN.1 type."""
_OTHER_NAME: Final = x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.7")


def certified_signer(certificate: x509.Certificate) -> KeylessSigner:
    """Return the signer that a certificate certifies; the certificate is verified elsewhere.

    Raises:
        SignatureProblem: it names no issuer, two different ones, or other than one subject.
    """
    try:
        issuers, subjects = _issuers(certificate), _subjects(certificate)
    except (ValueError, x509.ExtensionNotFound):
        raise SignatureProblem(
            SignatureFault.MALFORMED, "the names in its certificate cannot be read"
        ) from None
    if len(issuers) != 1 or len(subjects) != 1:
        raise SignatureProblem(
            SignatureFault.UNTRUSTED_CERTIFICATE,
            f"its certificate names {len(subjects)} subjects and {len(issuers)} issuers;"
            " one of each is needed",
        )
    return KeylessSigner(subject=subjects.pop(), issuer=issuers.pop())


def certified_key(certificate: x509.Certificate) -> VerificationKey:
    """Return the signer's key.

    Raises:
        SignatureProblem: it is of a kind that is not supported.
    """
    try:
        return VerificationKey.of(certificate.public_key())
    except PublicKeyError as error:
        raise SignatureProblem(
            SignatureFault.UNSUPPORTED, f"the key in its certificate is {error}"
        ) from None


def accepted_signer(certificate: x509.Certificate, policy: "SignaturePolicy") -> KeylessSigner:
    """Return the signer that a verified certificate certifies, if the policy lists it.

    Raises:
        SignatureProblem: the subject, or the issuer of this subject, is not listed.
    """
    signer = certified_signer(certificate)
    issuers = [
        identity.issuer for identity in policy.identities if identity.subject == signer.subject
    ]
    if signer.issuer in issuers:
        return signer
    if issuers:
        raise SignatureProblem(
            SignatureFault.OTHER_ISSUER,
            f"it is by {signer}; of this subject, the issuer {listed(issuers)} is listed",
        )
    raise SignatureProblem(SignatureFault.OTHER_SUBJECT, f"it is by {signer}, who is not listed")


def check_certificate(
    certificate: x509.Certificate, trust_root: "TrustRoot", *, signed_at: dt.datetime
) -> None:
    """Check that an authority of the trust root issued the certificate, valid at that time, for signing.

    Raises:
        SignatureProblem: it is not so.
    """
    check_validity(certificate, signed_at)
    issuer = _issuer_of(certificate, trust_root, signed_at)
    _check_purpose(certificate)
    _check_promise_of_log(certificate, issuer, trust_root)


def check_validity(certificate: x509.Certificate, signed_at: dt.datetime) -> None:
    """Check the certificate's own period.

    Raises:
        SignatureProblem: it was not valid at that time.
    """
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if not start <= signed_at <= end:
        raise SignatureProblem(
            SignatureFault.EXPIRED_CERTIFICATE,
            f"it was made at {signed_at:%Y-%m-%dT%H:%M:%SZ}, and its certificate was valid"
            f" from {start:%Y-%m-%dT%H:%M:%SZ} to {end:%Y-%m-%dT%H:%M:%SZ}",
        )


def _issuers(certificate: x509.Certificate) -> set[str]:
    found = set()
    for extension in certificate.extensions:
        value = extension.value
        if isinstance(value, x509.UnrecognizedExtension):
            if extension.oid == _ISSUER:
                found.add(asn1.decode_der(str, value.value))
            elif extension.oid == _ISSUER_UNTIL_2023:
                found.add(value.value.decode())
    return found


def _subjects(certificate: x509.Certificate) -> set[str]:
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    found = set()
    for name in names:
        match name:
            case x509.RFC822Name() | x509.UniformResourceIdentifier():
                found.add(name.value)
            case x509.OtherName(type_id=type_id) if type_id == _OTHER_NAME:
                found.add(asn1.decode_der(str, name.value))
            case _:
                # Counted, and never equal to a listed subject's text.
                found.add(repr(name))
    return found


def _issuer_of(
    certificate: x509.Certificate, trust_root: "TrustRoot", signed_at: dt.datetime
) -> x509.Certificate:
    trusted = trust_root.authorities_at(signed_at)
    if not trusted:
        raise SignatureProblem(
            SignatureFault.UNTRUSTED_CERTIFICATE,
            f"the trust root has no authority for {signed_at:%Y-%m-%d}",
        )
    # The web's defaults but for the purpose, which is signing code, not authenticating a client.
    verifier = (
        verification.PolicyBuilder()
        .store(verification.Store(trusted))
        .time(signed_at)
        .extension_policies(
            ca_policy=_any_purpose(verification.ExtensionPolicy.webpki_defaults_ca()),
            ee_policy=_any_purpose(verification.ExtensionPolicy.webpki_defaults_ee()),
        )
        .build_client_verifier()
    )
    try:
        return verifier.verify(certificate, []).chain[1]
    except (verification.VerificationError, ValueError):
        raise SignatureProblem(
            SignatureFault.UNTRUSTED_CERTIFICATE,
            "no authority of the trust root has issued its certificate",
        ) from None


def _any_purpose(policy: verification.ExtensionPolicy) -> verification.ExtensionPolicy:
    return policy.may_be_present(x509.ExtendedKeyUsage, verification.Criticality.NON_CRITICAL, None)


def _check_purpose(certificate: x509.Certificate) -> None:
    extensions = certificate.extensions
    try:
        usage = extensions.get_extension_for_class(x509.KeyUsage).value
        purposes = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        is_for_signing = False
    else:
        is_for_signing = usage.digital_signature and ExtendedKeyUsageOID.CODE_SIGNING in purposes
    if not is_for_signing:
        raise SignatureProblem(
            SignatureFault.UNTRUSTED_CERTIFICATE, "its certificate is not for signing code"
        )


def _check_promise_of_log(
    certificate: x509.Certificate, issuer: x509.Certificate, trust_root: "TrustRoot"
) -> None:
    try:
        promises: Iterable[SignedCertificateTimestamp] = (
            certificate.extensions.get_extension_for_class(
                x509.PrecertificateSignedCertificateTimestamps
            ).value
        )
    except x509.ExtensionNotFound:
        promises = ()
    if not any(
        _is_promised(promise, certificate, issuer, trust_root=trust_root) for promise in promises
    ):
        raise SignatureProblem(
            SignatureFault.UNTRUSTED_CERTIFICATE,
            "no certificate transparency log of the trust root knows its certificate",
        )


def _is_promised(
    promise: "SignedCertificateTimestamp",
    certificate: x509.Certificate,
    issuer: x509.Certificate,
    *,
    trust_root: "TrustRoot",
) -> bool:
    made_at = promise.timestamp.replace(tzinfo=dt.UTC)
    key = trust_root.certificate_log_key(promise.log_id, made_at)
    if (
        key is None
        or promise.entry_type is not LogEntryType.PRE_CERTIFICATE
        or not isinstance(promise.signature_hash_algorithm, hashes.SHA256)
    ):
        return False
    return key.has_signed(promise.signature, _promised_content(promise, certificate, issuer))


def _promised_content(
    promise: "SignedCertificateTimestamp", certificate: x509.Certificate, issuer: x509.Certificate
) -> bytes:
    """Return what a log signs for a precertificate (RFC 6962, 3.2)."""
    issuer_key = issuer.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    content = certificate.tbs_precertificate_bytes
    milliseconds = (promise.timestamp.replace(tzinfo=dt.UTC) - _EPOCH) // dt.timedelta(
        milliseconds=1
    )
    return b"".join(
        (
            bytes((promise.version.value, 0)),  # a certificate's timestamp
            milliseconds.to_bytes(8, "big"),
            LogEntryType.PRE_CERTIFICATE.value.to_bytes(2, "big"),
            hashlib.sha256(issuer_key).digest(),
            len(content).to_bytes(3, "big"),
            content,
            len(promise.extension_bytes).to_bytes(2, "big"),
            promise.extension_bytes,
        )
    )


_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
