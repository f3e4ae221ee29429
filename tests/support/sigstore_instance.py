"""A Sigstore instance of the tests' own: authority, certificate log, transparency log and its trust root.

It writes what Fulcio, the certificate transparency log and Rekor would, with the faults that a test asks for.
The formats are those of RFC 6962 (3.2, 3.3), of Rekor's hashedrekord and dsse entries, and of signed notes.
"""

import base64
import datetime as dt
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kernelcache.signatures.material import SigstoreBundle, SimpleSigning

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SIGNED_AT = dt.datetime(2026, 5, 1, 12, 0, tzinfo=dt.UTC)
SUBJECT, ISSUER = "builder@example.com", "https://issuer.example.com"
SCT_LIST = x509.ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
STATEMENT = "application/vnd.in-toto+json"
SIGNATURE_PREDICATE = "https://sigstore.dev/cosign/sign/v1"


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def sign(key: ec.EllipticCurvePrivateKey, content: bytes) -> bytes:
    return key.sign(content, ec.ECDSA(hashes.SHA256()))


def public_der(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def public_pem(key: Any) -> str:
    public: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return public.decode()


def key_id(key: ec.EllipticCurvePrivateKey) -> bytes:
    return hashlib.sha256(public_der(key)).digest()


def b64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def utf8_der(text: str) -> bytes:
    encoded = text.encode()
    assert len(encoded) < 128
    return bytes((0x0C, len(encoded))) + encoded


def payload_of(digest: str, kind: str = "cosign container image signature") -> bytes:
    return json.dumps(
        {
            "critical": {
                "identity": {"docker-reference": "registry.example.com/caches/sample"},
                "image": {"docker-manifest-digest": digest},
                "type": kind,
            },
            "optional": None,
        }
    ).encode()


def statement_of(digest: str, predicate: str = SIGNATURE_PREDICATE) -> bytes:
    return json.dumps(
        {
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{"digest": {"sha256": digest.removeprefix("sha256:")}}],
            "predicateType": predicate,
            "predicate": {},
        }
    ).encode()


def envelope_content(payload_type: str, payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding."""
    return b"DSSEv1 %d %b %d %b" % (
        len(payload_type),
        payload_type.encode(),
        len(payload),
        payload,
    )


def envelope_of(
    key: ec.EllipticCurvePrivateKey, payload: bytes, payload_type: str = STATEMENT
) -> dict[str, Any]:
    return {
        "payload": b64(payload),
        "payloadType": payload_type,
        "signatures": [{"sig": b64(sign(key, envelope_content(payload_type, payload)))}],
    }


def key_bundle(**content: Any) -> dict[str, Any]:
    return {
        "mediaType": BUNDLE,
        "verificationMaterial": {"publicKey": {"hint": "any"}},
        **content,
    }


def material_of(bundle: dict[str, Any]) -> SigstoreBundle:
    return SigstoreBundle(content=json.dumps(bundle).encode())


@dataclass(frozen=True, kw_only=True)
class Holder:
    """A signer with the certificate that it got for minutes."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)


@dataclass(kw_only=True)
class SigstoreInstance:
    """Each has keys of its own; two instances do not trust each other."""

    authority_key: ec.EllipticCurvePrivateKey = field(default_factory=new_key)
    certificate_log_key: ec.EllipticCurvePrivateKey = field(default_factory=new_key)
    log_key: ec.EllipticCurvePrivateKey = field(default_factory=new_key)
    authority: x509.Certificate = field(init=False)

    def __post_init__(self) -> None:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
        usage = _usage(key_cert_sign=True)
        public = self.authority_key.public_key()
        self.authority = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(public)
            .serial_number(1)
            .not_valid_before(START)
            .not_valid_after(START + dt.timedelta(days=3650))
            .add_extension(x509.BasicConstraints(ca=True, path_length=1), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .sign(self.authority_key, hashes.SHA256())
        )

    def trust_root(self, **changed: Any) -> dict[str, Any]:
        period = {"start": "2026-01-01T00:00:00Z"}
        return {
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "certificateAuthorities": [
                {
                    "subject": {"organization": "tests", "commonName": "tests"},
                    "uri": "https://fulcio.example.com",
                    "certChain": {
                        "certificates": [
                            {"rawBytes": b64(self.authority.public_bytes(Encoding.DER))}
                        ]
                    },
                    "validFor": period,
                }
            ],
            "tlogs": [_log("https://rekor.example.com", self.log_key, period)],
            "ctlogs": [_log("https://ct.example.com", self.certificate_log_key, period)],
            **changed,
        }

    def trust_root_file(self, **changed: Any) -> bytes:
        return json.dumps(self.trust_root(**changed)).encode()

    def holder(
        self,
        subject: str = SUBJECT,
        issuer: str = ISSUER,
        *,
        names: list[x509.GeneralName] | None = None,
        purpose: x509.ObjectIdentifier = ExtendedKeyUsageOID.CODE_SIGNING,
        certificate_log_key: ec.EllipticCurvePrivateKey | None = None,
        has_promise: bool = True,
        old_issuer: str | None = None,
        issuer_value: bytes | None = None,
        key: ec.EllipticCurvePrivateKey | None = None,
        left_out: type[x509.ExtensionType] | None = None,
    ) -> Holder:
        """Issue a certificate that is valid for ten minutes around `SIGNED_AT`."""
        key = key or new_key()
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(self.authority.subject)
            .public_key(key.public_key())
            .serial_number(7)
            .not_valid_before(SIGNED_AT - dt.timedelta(minutes=5))
            .not_valid_after(SIGNED_AT + dt.timedelta(minutes=5))
        )
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(
            self.authority_key.public_key()
        )
        for extension, is_critical in (
            (_usage(digital_signature=True), True),
            (x509.ExtendedKeyUsage([purpose]), False),
            (identifier, False),
            (x509.SubjectAlternativeName(names or [x509.RFC822Name(subject)]), True),
            (_fulcio(8, issuer_value or utf8_der(issuer)), False),
            (_fulcio(1, (old_issuer or issuer).encode()), False),
        ):
            if left_out is None or not isinstance(extension, left_out):
                builder = builder.add_extension(extension, critical=is_critical)
        if has_promise:
            unlogged = builder.sign(self.authority_key, hashes.SHA256())
            promise = self._promise(unlogged, certificate_log_key or self.certificate_log_key)
            builder = builder.add_extension(
                x509.UnrecognizedExtension(SCT_LIST, promise), critical=False
            )
        return Holder(key=key, certificate=builder.sign(self.authority_key, hashes.SHA256()))

    def simple_signing(
        self,
        holder: Holder,
        payload: bytes,
        *,
        at: dt.datetime = SIGNED_AT,
        log_key: ec.EllipticCurvePrivateKey | None = None,
        logged_payload: bytes | None = None,
        signature: bytes | None = None,
    ) -> SimpleSigning:
        made = sign(holder.key, payload) if signature is None else signature
        body = _hashedrekord(
            hashlib.sha256(payload if logged_payload is None else logged_payload).hexdigest(),
            made,
            holder,
        )
        entry = self._entry(body, at)
        log_bundle = {
            "SignedEntryTimestamp": b64(sign(log_key or self.log_key, canonical(entry))),
            "Payload": entry,
        }
        return SimpleSigning(
            payload=payload,
            signature=b64(made),
            certificate=holder.pem,
            log_bundle=json.dumps(log_bundle),
        )

    def bundle(
        self,
        holder: Holder,
        *,
        statement: bytes | None = None,
        message_digest: bytes | None = None,
        at: dt.datetime = SIGNED_AT,
        log_key: ec.EllipticCurvePrivateKey | None = None,
        logged_digest: str | None = None,
    ) -> dict[str, Any]:
        """Return a keyless bundle of a statement, or of the message with a SHA-256 digest."""
        content: dict[str, Any]
        if statement is not None:
            envelope = envelope_of(holder.key, statement)
            content = {"dsseEnvelope": envelope}
            kind, body = "dsse", _dsse(logged_digest, statement, envelope, holder)
        else:
            assert message_digest is not None
            signature = holder.key.sign(message_digest, ec.ECDSA(Prehashed(hashes.SHA256())))
            content = {
                "messageSignature": {
                    "messageDigest": {"algorithm": "SHA2_256", "digest": b64(message_digest)},
                    "signature": b64(signature),
                }
            }
            kind = "hashedrekord"
            body = _hashedrekord(logged_digest or message_digest.hex(), signature, holder)
        return {
            "mediaType": BUNDLE,
            "verificationMaterial": {
                "certificate": {"rawBytes": b64(holder.der)},
                "tlogEntries": [self._tlog_entry(kind, body, at, log_key or self.log_key)],
            },
            **content,
        }

    def _promise(self, unlogged: x509.Certificate, log_key: ec.EllipticCurvePrivateKey) -> bytes:
        tbs = unlogged.tbs_certificate_bytes
        milliseconds = int(SIGNED_AT.timestamp() * 1000).to_bytes(8, "big")
        signed = b"".join(
            (
                b"\0\0",
                milliseconds,
                b"\0\1",
                key_id(self.authority_key),
                len(tbs).to_bytes(3, "big"),
                tbs,
                b"\0\0",
            )
        )
        signature = sign(log_key, signed)
        one = b"".join(
            (
                b"\0",
                key_id(log_key),
                milliseconds,
                b"\0\0",
                b"\4\3",  # SHA-256, ECDSA
                len(signature).to_bytes(2, "big"),
                signature,
            )
        )
        entry = len(one).to_bytes(2, "big") + one
        listed = len(entry).to_bytes(2, "big") + entry
        assert len(listed) < 256
        return (b"\x04" + _der_length(len(listed))) + listed

    def _entry(self, body: bytes, at: dt.datetime) -> dict[str, Any]:
        return {
            "body": b64(body),
            "integratedTime": int(at.timestamp()),
            "logIndex": 11,
            "logID": key_id(self.log_key).hex(),
        }

    def _tlog_entry(
        self, kind: str, body: bytes, at: dt.datetime, log_key: ec.EllipticCurvePrivateKey
    ) -> dict[str, Any]:
        leaf = hashlib.sha256(b"\0" + body).digest()
        sibling = hashlib.sha256(b"the entry before").digest()
        root = hashlib.sha256(b"\1" + sibling + leaf).digest()
        note = f"rekor.example.com\n2\n{b64(root)}\n"
        noted = b64(key_id(self.log_key)[:4] + sign(log_key, note.encode()))
        promise = sign(log_key, canonical(self._entry(body, at)))
        return {
            "logIndex": "11",
            "logId": {"keyId": b64(key_id(self.log_key))},
            "kindVersion": {"kind": kind, "version": "0.0.1"},
            "integratedTime": str(int(at.timestamp())),
            "inclusionPromise": {"signedEntryTimestamp": b64(promise)},
            "inclusionProof": {
                "logIndex": "1",
                "rootHash": b64(root),
                "treeSize": "2",
                "hashes": [b64(sibling)],
                "checkpoint": {"envelope": f"{note}\n— rekor.example.com {noted}\n"},
            },
            "canonicalizedBody": b64(body),
        }


def canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _hashedrekord(digest: str, signature: bytes, holder: Holder) -> bytes:
    return canonical(
        {
            "apiVersion": "0.0.1",
            "kind": "hashedrekord",
            "spec": {
                "data": {"hash": {"algorithm": "sha256", "value": digest}},
                "signature": {
                    "content": b64(signature),
                    "publicKey": {"content": b64(holder.pem.encode())},
                },
            },
        }
    )


def _dsse(
    logged_digest: str | None, statement: bytes, envelope: dict[str, Any], holder: Holder
) -> bytes:
    return canonical(
        {
            "apiVersion": "0.0.1",
            "kind": "dsse",
            "spec": {
                "envelopeHash": {"algorithm": "sha256", "value": "0" * 64},
                "payloadHash": {
                    "algorithm": "sha256",
                    "value": logged_digest or hashlib.sha256(statement).hexdigest(),
                },
                "signatures": [
                    {
                        "signature": envelope["signatures"][0]["sig"],
                        "verifier": b64(holder.pem.encode()),
                    }
                ],
            },
        }
    )


def _der_length(length: int) -> bytes:
    return bytes((length,)) if length < 128 else bytes((0x81, length))


def _fulcio(number: int, value: bytes) -> x509.UnrecognizedExtension:
    return x509.UnrecognizedExtension(x509.ObjectIdentifier(f"1.3.6.1.4.1.57264.1.{number}"), value)


def _log(url: str, key: ec.EllipticCurvePrivateKey, period: dict[str, str]) -> dict[str, Any]:
    return {
        "baseUrl": url,
        "hashAlgorithm": "SHA2_256",
        "publicKey": {
            "rawBytes": b64(public_der(key)),
            "keyDetails": "PKIX_ECDSA_P256_SHA_256",
            "validFor": period,
        },
        "logId": {"keyId": b64(key_id(key))},
    }


def _usage(*, digital_signature: bool = False, key_cert_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=key_cert_sign,
        encipher_only=False,
        decipher_only=False,
    )
