"""Sigstore bundles of version 0.3: an envelope (DSSE) around a statement, or a signature of the manifest itself.

By key they are verified here, without a transparency log, as the older form is. Keyless, all but the identity
and the statement is left to `sigstore`.
"""

import datetime as dt
from typing import TYPE_CHECKING, Annotated, Final, final

import msgspec

from kernelcache.signatures import certificate_parsing, signing_certificate
from kernelcache.signatures.keyless_bundle import verify_keyless_envelope, verify_keyless_message
from kernelcache.signatures.keyless_policy import trust_root_for_keyless
from kernelcache.signatures.signed_image import check_image, check_statement
from kernelcache.signatures.verification import (
    KeySigner,
    SignatureFault,
    SignatureProblem,
    Signer,
)

if TYPE_CHECKING:
    from api.image_reference import Digest
    from kernelcache.signatures.policy import SignaturePolicy
    from kernelcache.signatures.public_keys import VerificationKey
    from kernelcache.signatures.trust_root import TrustRoot

_MEDIA_TYPES: Final = frozenset(
    {
        "application/vnd.dev.sigstore.bundle.v0.3+json",
        "application/vnd.dev.sigstore.bundle+json;version=0.3",
    }
)
_SHA256: Final = "SHA2_256"
_SHA256_BYTES: Final = 32


def envelope_content(payload_type: str, payload: bytes) -> bytes:
    """Return what is signed of an envelope: DSSE's pre-authentication encoding."""
    kind = payload_type.encode("utf-8", "surrogatepass")
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


class _EnvelopeSignature(msgspec.Struct, frozen=True):
    sig: bytes


@final
class _Envelope(msgspec.Struct, frozen=True, rename="camel"):
    payload: bytes
    payload_type: str
    signatures: list[_EnvelopeSignature]

    def is_signed_by(self, key: "VerificationKey") -> bool:
        content = envelope_content(self.payload_type, self.payload)
        return key.has_signed(self.signatures[0].sig, content)

    def check(self, digest: "Digest", signer: Signer) -> None:
        check_statement(self.payload_type, self.payload, digest=digest, signer=signer)


class _MessageDigest(msgspec.Struct, frozen=True):
    algorithm: str
    digest: bytes


@final
class _MessageSignature(msgspec.Struct, frozen=True, rename="camel"):
    message_digest: _MessageDigest
    signature: bytes

    def is_signed_by(self, key: "VerificationKey") -> bool:
        return key.has_signed_digest(self.signature, self.message_digest.digest)

    def check(self, digest: "Digest", signer: Signer) -> None:
        check_image(f"sha256:{self.message_digest.digest.hex()}", digest=digest, signer=signer)


class _Certificate(msgspec.Struct, frozen=True, rename="camel"):
    raw_bytes: bytes


class _LogEntry(msgspec.Struct, frozen=True, rename="camel"):
    integrated_time: Annotated[str, msgspec.Meta(pattern="^[0-9]{1,11}$")] = "0"
    """Seconds since 1970; 0 where a timestamping authority confirms the time instead."""


class _Material(msgspec.Struct, frozen=True, rename="camel"):
    certificate: _Certificate | None = None
    tlog_entries: list[_LogEntry] = []


class _Bundle(msgspec.Struct, frozen=True, rename="camel"):
    media_type: str
    verification_material: _Material
    dsse_envelope: _Envelope | None = None
    message_signature: _MessageSignature | None = None


_decoder: Final = msgspec.json.Decoder(_Bundle)


def bundle_signer(
    content: bytes,
    digest: "Digest",
    *,
    policy: "SignaturePolicy",
    trust_root: "TrustRoot | None",
) -> Signer:
    """Return the listed signer who has signed the image with this digest.

    Raises:
        SignatureProblem: it proves nothing of the kind.
    """
    bundle = _read(content)
    signed = _signed_in(bundle)
    for key in policy.keys:
        if signed.is_signed_by(key):
            signer = KeySigner(fingerprint=key.fingerprint)
            signed.check(digest, signer)
            return signer
    material = bundle.verification_material
    trust_root = trust_root_for_keyless(
        policy, trust_root, has_certificate=material.certificate is not None
    )
    assert material.certificate is not None  # as was just checked
    if not material.tlog_entries:
        raise SignatureProblem(
            SignatureFault.NOT_LOGGED, "it is keyless and has no entry of a transparency log"
        )
    _check_certificate(material.certificate, material.tlog_entries[0], signed)
    # From here on only what `sigstore` has verified counts, not what was read above.
    if isinstance(signed, _Envelope):
        envelope = verify_keyless_envelope(content, trust_root)
        keyless = signing_certificate.accepted_signer(envelope.certificate, policy)
        check_statement(envelope.payload_type, envelope.payload, digest=digest, signer=keyless)
    else:
        sha256 = signed.message_digest.digest
        certificate = verify_keyless_message(content, trust_root, sha256=sha256)
        keyless = signing_certificate.accepted_signer(certificate, policy)
        check_image(f"sha256:{sha256.hex()}", digest=digest, signer=keyless)
    return keyless


def _check_certificate(
    certificate: "_Certificate", entry: _LogEntry, signed: _Envelope | _MessageSignature
) -> None:
    """Refuse early, and with the exact reason, what `sigstore` would refuse too."""
    try:
        parsed = certificate_parsing.read_der_certificate(certificate.raw_bytes)
    except certificate_parsing.CertificateUnreadableError:
        raise _malformed("its certificate cannot be read") from None
    if not signed.is_signed_by(signing_certificate.certified_key(parsed)):
        raise SignatureProblem(
            SignatureFault.OTHER_CONTENT, "the key in its certificate has not signed its content"
        )
    if logged_at := int(entry.integrated_time):
        signing_certificate.check_validity(parsed, dt.datetime.fromtimestamp(logged_at, dt.UTC))


def _read(content: bytes) -> _Bundle:
    try:
        # As text: in bytes, `msgspec` does not look at the encoding of members that it leaves out.
        bundle = _decoder.decode(content.decode())
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        raise _malformed("it is no sigstore bundle") from None
    if bundle.media_type not in _MEDIA_TYPES:
        raise SignatureProblem(
            SignatureFault.UNSUPPORTED, f'it is a bundle of type "{bundle.media_type}", not of v0.3'
        )
    return bundle


def _signed_in(bundle: _Bundle) -> _Envelope | _MessageSignature:
    match (bundle.dsse_envelope, bundle.message_signature):
        case (_Envelope() as envelope, None):
            if len(envelope.signatures) != 1:
                raise _malformed(
                    f"its envelope has {len(envelope.signatures)} signatures, and needs one"
                )
            return envelope
        case (None, _MessageSignature() as message):
            digest = message.message_digest
            if digest.algorithm != _SHA256 or len(digest.digest) != _SHA256_BYTES:
                raise SignatureProblem(
                    SignatureFault.UNSUPPORTED,
                    f'it signs a digest of type "{digest.algorithm}", not of {_SHA256}',
                )
            return message
        case _:
            raise _malformed("its bundle needs either an envelope or a signature of a message")


def _malformed(detail: str) -> SignatureProblem:
    return SignatureProblem(SignatureFault.MALFORMED, detail)
