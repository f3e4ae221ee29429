"""Certificates and keys decoded from PEM, or their defects, as values.

Decoding is total: no content of a Secret or a file raises. Texts are ours, never the parser's, so that no part
of a key can reach a log.
"""

import datetime as dt
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Self, TypeVar, final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from certs.bundle import IpAddress

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

    from certs.bundle import KeyPair

E = TypeVar("E", bound=x509.ExtensionType)

Usage = x509.ObjectIdentifier


class Defect(Enum):
    """A defect of a certificate or its key."""

    MISSING = "Missing"
    UNDECODABLE = "Undecodable"
    WRONG_KEY_TYPE = "WrongKeyType"
    KEY_MISMATCH = "KeyMismatch"
    NOT_AN_AUTHORITY = "NotAnAuthority"
    UNKNOWN_ISSUER = "UnknownIssuer"
    RETIRING_ISSUER = "RetiringIssuer"
    """Its CA has been replaced, and the new one has been trusted for long enough."""
    WRONG_USAGE = "WrongUsage"
    NAMES_MISSING = "NamesMissing"
    NOT_YET_VALID = "NotYetValid"
    EXPIRED = "Expired"
    EXPIRING = "Expiring"
    RETIRED = "Retired"
    """A replaced CA that is needed no longer is still trusted."""


@final
@dataclass(frozen=True, slots=True)
class CertificateDefect:
    """A defect, and its description."""

    defect: Defect
    detail: str


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """The facts of a certificate."""

    parsed: x509.Certificate = field(repr=False)
    public_key: bytes = field(repr=False)
    """SubjectPublicKeyInfo, DER."""
    not_before: dt.datetime
    not_after: dt.datetime
    is_authority: bool
    usages: frozenset[Usage]
    dns_names: frozenset[str]
    ip_addresses: "frozenset[IpAddress]"
    common_names: tuple[str, ...]

    @property
    def pem(self) -> bytes:
        return self.parsed.public_bytes(Encoding.PEM)

    def is_issued_by(self, authority: "Certificate") -> bool:
        try:
            self.parsed.verify_directly_issued_by(authority.parsed)
        except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
            return False
        return True

    @classmethod
    def from_x509(cls, parsed: x509.Certificate) -> Self:
        """Read all facts at once, since the parser is lazy and raises late."""
        names = _extension(parsed, x509.SubjectAlternativeName)
        constraints = _extension(parsed, x509.BasicConstraints)
        return cls(
            parsed=parsed,
            public_key=parsed.public_key().public_bytes(
                Encoding.DER, PublicFormat.SubjectPublicKeyInfo
            ),
            not_before=parsed.not_valid_before_utc,
            not_after=parsed.not_valid_after_utc,
            is_authority=constraints is not None and constraints.ca,
            usages=frozenset(_extension(parsed, x509.ExtendedKeyUsage) or ()),
            dns_names=frozenset(
                name.lower() for name in (names.get_values_for_type(x509.DNSName) if names else ())
            ),
            ip_addresses=frozenset(
                address
                for address in (names.get_values_for_type(x509.IPAddress) if names else ())
                if isinstance(address, IpAddress)  # a CA's name constraints may be networks
            ),
            common_names=tuple(
                str(attribute.value)
                for attribute in parsed.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
            ),
        )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedPair:
    """A chain, the pair's own certificate first, and the key that belongs to it: ECDSA P-256."""

    chain: tuple[Certificate, ...]
    key: ec.EllipticCurvePrivateKey = field(repr=False)

    @property
    def certificate(self) -> Certificate:
        return self.chain[0]

    @property
    def pem(self) -> bytes:
        return b"".join(certificate.pem for certificate in self.chain) + key_pem(self.key)


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return the key as PEM, not encrypted."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def decode_certificates(pem: bytes) -> tuple[Certificate, ...] | CertificateDefect:
    """Return the certificates of a PEM text, at least one."""
    if not pem.strip():
        return CertificateDefect(Defect.MISSING, "there is no certificate")
    try:
        return tuple(
            Certificate.from_x509(parsed) for parsed in x509.load_pem_x509_certificates(pem)
        )
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.DuplicateExtension):
        return CertificateDefect(Defect.UNDECODABLE, "the certificate is no PEM that can be read")


def decode_pair(pair: "KeyPair") -> DecodedPair | CertificateDefect:
    """Return the pair, if its key is ECDSA P-256 and belongs to its first certificate.

    No other kind of key is taken, so that replicas and reloads never differ in it, and what is
    served is what was measured.
    """
    chain = decode_certificates(pair.certificate_pem)
    if isinstance(chain, CertificateDefect):
        return chain
    key = _decode_key(pair.key_pem)
    if isinstance(key, CertificateDefect):
        return key
    if key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo) != (
        chain[0].public_key
    ):
        return CertificateDefect(Defect.KEY_MISMATCH, "the key belongs to another certificate")
    return DecodedPair(chain=chain, key=key)


def _decode_key(pem: bytes) -> ec.EllipticCurvePrivateKey | CertificateDefect:
    if not pem.strip():
        return CertificateDefect(Defect.MISSING, "there is no key")
    try:
        key = load_pem_private_key(pem, password=None)
    except TypeError:
        return CertificateDefect(Defect.UNDECODABLE, "the key is encrypted")
    except (ValueError, UnsupportedAlgorithm):
        return CertificateDefect(Defect.UNDECODABLE, "the key is no PEM that can be read")
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
        return CertificateDefect(
            Defect.WRONG_KEY_TYPE, f"the key is {_kind_of(key)}; it must be ECDSA P-256 (secp256r1)"
        )
    return key


def _kind_of(key: "PrivateKeyTypes") -> str:
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return f"ECDSA {key.curve.name}"
    return type(key).__name__.removesuffix("PrivateKey")


def _extension(parsed: x509.Certificate, kind: type[E]) -> E | None:
    try:
        return parsed.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None
