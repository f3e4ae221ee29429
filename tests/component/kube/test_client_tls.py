"""TLS of the client: trusted authorities, server names and client certificates."""

import datetime as dt
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kube.client import KubeClient
from kube.config.connection import StaticConnection
from kube.errors import Unreachable
from kube.resources import NODES
from tests.support.canned_api import CannedApi, Json
from tests.support.loop_clock import LoopClock


@dataclass(frozen=True)
class SelfSigned:
    """A certificate that is its own authority, as files."""

    certificate: str
    key: str


def self_signed(folder: Path, name: str, *, dns: str | None = None) -> SelfSigned:
    """Issue one for 127.0.0.1, or for the DNS name."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    now = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now.replace(year=2099))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(dns) if dns else address]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    files = SelfSigned(str(folder / f"{name}.crt"), str(folder / f"{name}.key"))
    Path(files.certificate).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    Path(files.key).write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files


def serving(server: SelfSigned, *, client: SelfSigned | None = None) -> CannedApi:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.certificate, server.key)
    if client is not None:
        context.load_verify_locations(client.certificate)
        context.verify_mode = ssl.CERT_REQUIRED
    api = CannedApi(context)
    api.always = Json({})
    return api


async def ask(configuration: StaticConnection) -> None:
    async with KubeClient(configuration, LoopClock()) as client:
        await client.delete(NODES, "n")


async def test_a_server_of_the_given_authority_is_trusted(tmp_path: Path) -> None:
    server = self_signed(tmp_path, "server")
    async with serving(server) as api:
        await ask(StaticConnection(api.url, ssl_ca_cert=server.certificate))
        assert len(api.seen) == 1


async def test_a_server_of_another_authority_gets_no_request(tmp_path: Path) -> None:
    other = self_signed(tmp_path, "other")
    async with serving(self_signed(tmp_path, "server")) as api:
        with pytest.raises(Unreachable, match="certificate") as caught:
            await ask(StaticConnection(api.url, ssl_ca_cert=other.certificate))
        assert caught.value.is_definite
        assert api.seen == []


async def test_a_server_of_another_name_gets_no_request(tmp_path: Path) -> None:
    server = self_signed(tmp_path, "server", dns="api.example")
    async with serving(server) as api:
        with pytest.raises(Unreachable, match="certificate"):
            await ask(StaticConnection(api.url, ssl_ca_cert=server.certificate))
        assert api.seen == []


async def test_the_servers_name_can_be_given(tmp_path: Path) -> None:
    server = self_signed(tmp_path, "server", dns="api.example")
    async with serving(server) as api:
        configuration = StaticConnection(api.url, ssl_ca_cert=server.certificate)
        configuration.tls_server_name = "api.example"
        await ask(configuration)
        assert len(api.seen) == 1


async def test_verification_is_left_out_only_where_asked_for(tmp_path: Path) -> None:
    async with serving(self_signed(tmp_path, "server")) as api:
        configuration = StaticConnection(api.url)
        configuration.verify_ssl = False
        configuration.disable_strict_ssl_verification = True
        await ask(configuration)
        assert len(api.seen) == 1


async def test_a_client_certificate_is_shown(tmp_path: Path) -> None:
    server, client = self_signed(tmp_path, "server"), self_signed(tmp_path, "client")
    async with serving(server, client=client) as api:
        configuration = StaticConnection(api.url, ssl_ca_cert=server.certificate)
        with pytest.raises(Unreachable):
            await ask(configuration)
        configuration.cert_file, configuration.key_file = client.certificate, client.key
        await ask(configuration)
        assert len(api.seen) == 1


async def test_a_missing_authority_file_is_found_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        await ask(StaticConnection("https://127.0.0.1:1", ssl_ca_cert=str(tmp_path / "no.crt")))
