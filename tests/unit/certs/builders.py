"""Bundles, foreign keys and certificates with realistic defaults."""

import datetime as dt
import ipaddress
from dataclasses import replace
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

from certs.bundle import Bundle, KeyPair, Requirements
from certs.pem import Certificate, CertificateDefect, DecodedPair, decode_certificates, decode_pair
from certs.renewal import renew
from certs.validity import RenewalNeeded, needs_renewal

NOW = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)


def requirements(**changes: Any) -> Requirements:
    required = Requirements.for_service(
        "gpu", "gpu-system", extra_ip_addresses=["127.0.0.1"], extra_dns_names=["localhost"]
    )
    return replace(required, **changes)


REQUIRED = requirements()


def renewed(bundle: Bundle, required: Requirements = REQUIRED, now: dt.datetime = NOW) -> Bundle:
    """The bundle as a replica leaves it at this moment."""
    needed = needs_renewal(bundle, required, now)
    if isinstance(needed, RenewalNeeded):
        return renew(bundle, needed, required=required, now=now)
    return bundle


def a_bundle(required: Requirements = REQUIRED, now: dt.datetime = NOW) -> Bundle:
    return renewed(Bundle(), required, now)


def certificates(pem: bytes) -> tuple[Certificate, ...]:
    decoded = decode_certificates(pem)
    assert not isinstance(decoded, CertificateDefect), decoded
    return decoded


def certificate(pem: bytes) -> Certificate:
    return certificates(pem)[0]


def decoded(pair: KeyPair) -> DecodedPair:
    result = decode_pair(pair)
    assert not isinstance(result, CertificateDefect), result
    return result


def pem_of(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, password: str = "") -> bytes:
    encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


def rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def a_pair_by(authority: KeyPair, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> KeyPair:
    """A certificate for localhost, by the authority, for a key of any kind."""
    signer = decoded(authority)
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "foreign")]))
        .issuer_name(signer.certificate.parsed.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - DAY)
        .not_valid_after(NOW + 300 * DAY)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .sign(signer.key, hashes.SHA256())
    )
    return KeyPair(certificate_pem=made.public_bytes(Encoding.PEM), key_pem=pem_of(key))
