"""Certificates from bytes that anybody may have written: a certificate that can be used, or one declared error."""

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm


class CertificateUnreadableError(ValueError):
    """The bytes are no certificate, or one with extensions or a key that cannot be read."""


def read_pem_certificate(content: bytes) -> x509.Certificate:
    """Return the first certificate of a PEM text.

    Raises:
        CertificateUnreadableError: there is none.
    """
    try:
        return _checked(x509.load_pem_x509_certificate(content))
    except (ValueError, x509.InvalidVersion):
        raise CertificateUnreadableError from None


def read_der_certificate(content: bytes) -> x509.Certificate:
    """Return the certificate.

    Raises:
        CertificateUnreadableError: it is none.
    """
    try:
        return _checked(x509.load_der_x509_certificate(content))
    except (ValueError, x509.InvalidVersion):
        raise CertificateUnreadableError from None


def _checked(certificate: x509.Certificate) -> x509.Certificate:
    """Parse now what `cryptography` parses at first use, with errors of its own for each part."""
    try:
        certificate.extensions  # noqa: B018  # parsed and kept
        certificate.public_key()
    except (x509.DuplicateExtension, x509.UnsupportedGeneralNameType, UnsupportedAlgorithm):
        raise CertificateUnreadableError from None
    return certificate
