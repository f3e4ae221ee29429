"""Certificates that `cryptography` refuses in its several ways are refused in one."""

import pytest

from kernelcache.signatures.certificate_parsing import (
    CertificateUnreadableError,
    read_der_certificate,
    read_pem_certificate,
)
from tests.support.sigstore_instance import SigstoreInstance

HOLDER = SigstoreInstance().holder()
VERSION_3 = bytes.fromhex("a003020102")
KEY_USAGE, PURPOSES = bytes.fromhex("0603551d0f"), bytes.fromhex("0603551d25")


def replaced(old: bytes, new: bytes) -> bytes:
    assert HOLDER.der.count(old) >= 1
    assert len(old) == len(new)
    return HOLDER.der.replace(old, new)


def test_a_certificate_is_read_from_both_encodings():
    assert read_pem_certificate(HOLDER.pem.encode()) == HOLDER.certificate
    assert read_der_certificate(HOLDER.der) == HOLDER.certificate


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(replaced(VERSION_3, bytes.fromhex("a003020104")), id="version 5"),
        pytest.param(replaced(KEY_USAGE, PURPOSES), id="an extension twice"),
        pytest.param(
            replaced(bytes.fromhex("06072a8648ce3d0201"), bytes.fromhex("06072a8648ce3d0209")),
            id="a key of an unknown kind",
        ),
        pytest.param(
            replaced(b"\x81\x13builder@example.com", b"\x83\x13builder@example.com"),
            id="a name of an unknown kind",
        ),
    ],
)
def test_another_content_is_refused(content: bytes):
    with pytest.raises(CertificateUnreadableError):
        read_der_certificate(content)


def test_a_text_without_a_certificate_is_refused():
    with pytest.raises(CertificateUnreadableError):
        read_pem_certificate(b"-----BEGIN CERTIFICATE-----")
