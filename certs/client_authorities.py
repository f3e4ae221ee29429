"""The CAs of clients' certificates, by kind of client.

TLS verifies a certificate against every CA that is trusted for anything, and a name says nothing of its
issuer. So each kind of client has CAs of its own, and a name counts only in a certificate that one of
them has signed itself. That a chain leads to it is not enough: Python 3.11 does not show the chain.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from cryptography import x509

from certs.errors import UnusableBundleError
from certs.pem import Certificate, CertificateDefect, decode_certificates

if TYPE_CHECKING:
    import asyncio

_MOST_REMEMBERED: Final = 64
"""Certificates of which the issuer is known: a scheduler and some API servers, each renewed at times."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTrust:
    """CAs of clients' certificates; where there is none, no certificate of theirs is good."""

    scheduler: tuple[Certificate, ...] | None = None
    """None is the CAs of our own serving certificate, which issue kube-scheduler's as well."""
    api_server: tuple[Certificate, ...] = ()


@final
class ClientAuthorities:
    """The CAs of one kind of client."""

    def __init__(self) -> None:
        """Trust no CA, so that every client is refused."""
        self._trusted: tuple[Certificate, ...] = ()
        self._issued: dict[bytes, bool] = {}
        # certificate (DER) -> whether one of these signed it

    def replace(self, trusted: tuple[Certificate, ...]) -> None:
        """Replace the CAs; they apply to open connections as well."""
        self._trusted = trusted
        self._issued.clear()

    def have_issued(self, transport: "asyncio.BaseTransport | None") -> bool:
        """Return whether one of these signed the peer's certificate, which TLS has verified."""
        connection = transport.get_extra_info("ssl_object") if transport is not None else None
        der = connection.getpeercert(binary_form=True) if connection is not None else None
        if der is None:
            return False
        if der not in self._issued:
            if len(self._issued) >= _MOST_REMEMBERED:
                self._issued.clear()
            self._issued[der] = self._signed(der)
        return self._issued[der]

    def _signed(self, der: bytes) -> bool:
        certificate = Certificate.from_x509(x509.load_der_x509_certificate(der))
        return any(certificate.is_issued_by(authority) for authority in self._trusted)


def decode_authorities(pem: bytes, subject: str) -> tuple[Certificate, ...]:
    """Return the CAs of a PEM text, at least one.

    Raises:
        UnusableBundle: there is none, or it cannot be read; `subject` names it.
    """
    trusted = decode_certificates(pem)
    if isinstance(trusted, CertificateDefect):
        raise UnusableBundleError(f"{subject}: {trusted.detail} ({trusted.defect.value})")
    return trusted
