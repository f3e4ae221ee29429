"""TLS of the client: trusted authorities, server names and client certificates."""

import ssl
from pathlib import Path

import pytest

from kube.client import KubeClient
from kube.config.connection import StaticConnection
from kube.errors import Unreachable
from kube.resources import NODES
from tests.support.canned_api import CannedApi, Json
from tests.support.loop_clock import LoopClock
from tests.support.self_signed import SelfSigned, self_signed, serving_tls


def serving(server: SelfSigned, *, client: SelfSigned | None = None) -> CannedApi:
    context = serving_tls(server)
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
