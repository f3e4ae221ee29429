"""Who may talk to the test API server, and how it proves itself.

One CA a run signs the serving certificate of every component and the certificates of users made up
by a test; the users that are known beforehand have bearer tokens as well. Keys stay in the
directory of the run.
"""

import datetime as dt
import ipaddress
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

ADMIN = "admin"
CONTROLLER_MANAGER = "system:kube-controller-manager"
SCHEDULER = "system:kube-scheduler"
KUBELETS = "kubelet-double"
AUDIT_MARKER = "audit-marker"

_MASTERS = "system:masters,gpu-control-plane:break-glass"
"""What a test writes by hand stands for what controllers of an earlier moment wrote."""

# Constants instead of the clock: the certificates of a run are never too young or too old.
_NOT_BEFORE = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
_NOT_AFTER = dt.datetime(2099, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificatePair:
    certificate: "Path"
    key: "Path"


@final
class Credentials:
    """Issues everything into `directory`; tokens are stable for the run."""

    def __init__(self, directory: "Path", *, plain_users: "Sequence[str]") -> None:
        directory.mkdir(mode=0o700)
        self._directory = directory
        self._ca_key = ec.generate_private_key(ec.SECP256R1())
        self._ca_name = _common_name("gpu-cluster-tests")
        self.ca_file = directory / "ca.crt"
        self.ca_file.write_bytes(_pem(self._self_signed()))
        self.serving = self._issue(
            "serving", _common_name("kube-apiserver"), ExtendedKeyUsageOID.SERVER_AUTH
        )
        self.service_account_key = directory / "service-account.key"
        self.service_account_key.write_bytes(_key_pem(ec.generate_private_key(ec.SECP256R1())))

        groups = {ADMIN: _MASTERS, KUBELETS: _MASTERS}
        users = [ADMIN, CONTROLLER_MANAGER, SCHEDULER, KUBELETS, AUDIT_MARKER, *plain_users]
        self._tokens = {user: secrets.token_hex(16) for user in users}
        self.token_file = directory / "tokens.csv"
        self.token_file.write_text(
            "".join(
                f'{token},{user},{user},"{groups.get(user, "")}"\n'
                for user, token in self._tokens.items()
            ),
            encoding="utf-8",
        )

    @property
    def users(self) -> "Mapping[str, str]":
        """user -> bearer token"""
        return self._tokens

    def client_certificate(self, user: str, groups: "Sequence[str]") -> CertificatePair:
        """Return a certificate that authenticates `user` in `groups`."""
        name = x509.Name(
            [
                *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups),
                x509.NameAttribute(NameOID.COMMON_NAME, user),
            ]
        )
        stem = f"client-{secrets.token_hex(4)}"
        return self._issue(stem, name, ExtendedKeyUsageOID.CLIENT_AUTH)

    def _issue(
        self, stem: str, subject: x509.Name, usage: x509.ObjectIdentifier
    ) -> CertificatePair:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _builder(subject, self._ca_name, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(
                x509.SubjectAlternativeName(
                    [
                        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
                        # Of the Service `kubernetes`, by which pods find the API server.
                        x509.IPAddress(ipaddress.ip_address("10.96.0.1")),
                        x509.DNSName("localhost"),
                        x509.DNSName("kubernetes.default.svc"),
                    ]
                ),
                critical=False,
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._ca_key.public_key()),
                critical=False,
            )
            .sign(self._ca_key, hashes.SHA256())
        )
        pair = CertificatePair(
            certificate=self._directory / f"{stem}.crt", key=self._directory / f"{stem}.key"
        )
        pair.certificate.write_bytes(_pem(certificate))
        pair.key.write_bytes(_key_pem(key))
        return pair

    def _self_signed(self) -> x509.Certificate:
        return (
            _builder(self._ca_name, self._ca_name, self._ca_key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_CA_KEY_USAGE, critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self._ca_key.public_key()),
                critical=False,
            )
            .sign(self._ca_key, hashes.SHA256())
        )


_CA_KEY_USAGE = x509.KeyUsage(
    digital_signature=True,
    key_cert_sign=True,
    crl_sign=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_NOT_BEFORE)
        .not_valid_after(_NOT_AFTER)
    )


def _common_name(value: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, value)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
