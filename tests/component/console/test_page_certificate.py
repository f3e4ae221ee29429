"""The certificate of the console's port: any kind of key, read again when it changes, kept while it cannot be."""

import asyncio
import shutil
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from console.processes.console_settings import CertificateFiles
from console.processes.page_certificate import (
    POLL_EVERY_S,
    PageCertificate,
    UnusableCertificateError,
)
from tests.support.self_signed import SelfSigned, self_signed
from tests.support.served_app import sample


@pytest.fixture
def files(tmp_path: Path) -> CertificateFiles:
    """The files of a Secret of the type kubernetes.io/tls."""
    return CertificateFiles(certificate=tmp_path / "tls.crt", key=tmp_path / "tls.key")


def put(files: CertificateFiles, issued: SelfSigned) -> None:
    shutil.copy(issued.certificate, files.certificate)
    shutil.copy(issued.key, files.key)


async def common_name(context: ssl.SSLContext, *, name: str | None = None) -> str:
    """Shake hands, and return whose certificate is shown."""
    server = await asyncio.start_server(lambda _, w: w.close(), "127.0.0.1", 0, ssl=context)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    port = server.sockets[0].getsockname()[1]
    async with server:
        _, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=client, server_hostname=name or "127.0.0.1"
        )
        current = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
    (found,) = x509.load_der_x509_certificate(current).subject
    return str(found.value)


@pytest.mark.parametrize("name", [None, "gpu.example.com"])
async def test_it_is_shown_with_and_without_a_name(
    tmp_path: Path, files: CertificateFiles, name: str | None
) -> None:
    put(files, self_signed(tmp_path, "first"))
    certificate = PageCertificate(files)
    certificate.load()
    assert await common_name(certificate.context, name=name) == "first"
    expected = x509.load_pem_x509_certificate(files.certificate.read_bytes()).not_valid_after_utc
    current = sample("gpu_certificate_not_after_timestamp_seconds", certificate="leaf")
    assert current == expected.timestamp()


async def test_a_key_of_another_kind_is_taken(tmp_path: Path, files: CertificateFiles) -> None:
    """As of a company's authority: those of the server's webhooks are ECDSA P-256 alone."""
    key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    put(files, self_signed(tmp_path, "rsa", key=key))
    certificate = PageCertificate(files)
    certificate.load()
    assert await common_name(certificate.context) == "rsa"


async def test_a_change_is_served_from_the_next_handshake_on(
    tmp_path: Path, files: CertificateFiles
) -> None:
    put(files, self_signed(tmp_path, "first"))
    certificate = PageCertificate(files)
    certificate.load()
    put(files, self_signed(tmp_path, "second"))
    certificate.poll()
    assert await common_name(certificate.context) == "second"


@pytest.mark.looptime
async def test_files_are_looked_at_while_the_process_lives(
    tmp_path: Path, files: CertificateFiles
) -> None:
    put(files, self_signed(tmp_path, "first"))
    certificate = PageCertificate(files)
    certificate.load()
    put(files, self_signed(tmp_path, "second"))
    async with asyncio.TaskGroup() as group:
        running = group.create_task(certificate.run())
        await asyncio.sleep(POLL_EVERY_S + 0.1)
        running.cancel()
    assert await common_name(certificate.context) == "second"


@pytest.mark.parametrize("broken", ["gone", "half", "of another pair", "no PEM", "empty"])
async def test_what_cannot_be_served_leaves_what_is(
    tmp_path: Path, files: CertificateFiles, broken: str
) -> None:
    put(files, self_signed(tmp_path, "first"))
    certificate = PageCertificate(files)
    certificate.load()
    match broken:
        case "gone":
            files.key.unlink()
        case "half":
            content = files.certificate.read_bytes()
            files.certificate.write_bytes(content[: len(content) // 2])
        case "of another pair":
            shutil.copy(self_signed(tmp_path, "other").key, files.key)
        case "no PEM":
            files.certificate.write_bytes(b"\x00\xff")
        case _:
            files.key.write_bytes(b"")
    before = sample("gpu_certificate_errors_total", step="reload")
    certificate.poll()
    certificate.poll()
    assert sample("gpu_certificate_errors_total", step="reload") == before + 2
    assert await common_name(certificate.context) == "first"
    with pytest.raises(UnusableCertificateError) as caught:
        certificate.load()
    assert str(files.key) in str(caught.value)
    assert "PRIVATE" not in str(caught.value)


async def test_an_encrypted_key_is_refused_and_no_terminal_asked(
    tmp_path: Path, files: CertificateFiles
) -> None:
    put(files, self_signed(tmp_path, "first"))
    key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    files.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(UnusableCertificateError, match="are no certificate with its key"):
        PageCertificate(files).load()


async def test_an_old_version_of_tls_is_refused(tmp_path: Path, files: CertificateFiles) -> None:
    put(files, self_signed(tmp_path, "first"))
    certificate = PageCertificate(files)
    certificate.load()
    assert certificate.context.minimum_version is ssl.TLSVersion.TLSv1_2
