"""Certificates of test servers and clients, as files."""

import datetime as dt
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class SelfSigned:
    """A certificate that is its own authority, as files."""

    certificate: str
    key: str


def self_signed(
    folder: Path, name: str, *, dns: str | None = None, key: rsa.RSAPrivateKey | None = None
) -> SelfSigned:
    """Issue one for 127.0.0.1, or for the DNS name; with a key of ECDSA P-256 where none is given."""
    private = key or ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    now = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(private.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now.replace(year=2099))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(dns) if dns else address]), critical=False
        )
        .sign(private, hashes.SHA256())
    )
    files = SelfSigned(str(folder / f"{name}.crt"), str(folder / f"{name}.key"))
    Path(files.certificate).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    Path(files.key).write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files


def serving_tls(server: SelfSigned) -> ssl.SSLContext:
    """Return the context of a server with this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.certificate, server.key)
    return context
