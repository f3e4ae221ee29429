"""CAs of clients, from files: who is whose client, and what becomes of files that cannot be used."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import structlog.testing

from certs.bundle import KeyPair
from certs.client_authorities import ClientTrust, decode_authorities
from certs.client_ca_files import ClientAuthorityFiles, ClientFiles
from certs.tls import ServingContext
from telemetry.metrics import REGISTRY
from tests.component.certs.handshakes import connected
from tests.unit.certs.builders import DAY, a_bundle, requirements

LONG = requirements(authority_lifetime=36500 * DAY, leaf_lifetime=36500 * DAY)
OWN, SCHEDULERS, API_SERVERS = (a_bundle(LONG) for _ in range(3))
"""Three CAs of the same name, each with a client certificate of the same name."""


def serving() -> ServingContext:
    context = ServingContext()
    context.load(OWN.to_serve)
    return context


@asynccontextmanager
async def judged(context: ServingContext, pair: KeyPair | None) -> AsyncIterator["Judge"]:
    """Connect with this certificate; yield what says whose client that is."""
    accepted: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await accepted.put(writer)

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context.context)
    port = server.sockets[0].getsockname()[1]
    async with server, connected(port, OWN.trust_pem, pair, version=ssl.TLSVersion.TLSv1_2):
        writer = await accepted.get()
        yield Judge(context, writer.transport)
        writer.transport.abort()


class Judge:
    def __init__(self, context: ServingContext, transport: asyncio.BaseTransport) -> None:
        self._context = context
        self._transport = transport

    def __call__(self) -> set[str]:
        kinds = {"scheduler": self._context.scheduler, "API server": self._context.api_server}
        return {name for name, them in kinds.items() if them.have_issued(self._transport)}


def errors() -> float:
    return REGISTRY.get_sample_value("gpu_certificate_errors_total", {"step": "reload"}) or 0.0


@pytest.mark.parametrize(
    ("pair", "want"),
    [
        pytest.param(SCHEDULERS.client, {"scheduler"}, id="scheduler"),
        pytest.param(API_SERVERS.client, {"API server"}, id="API server"),
        pytest.param(None, set(), id="no certificate"),
    ],
)
async def test_client_is_whose_ca_signed_its_certificate(
    tmp_path: Path, pair: KeyPair | None, want: set[str]
) -> None:
    context = serving()
    files = ClientFiles(scheduler=tmp_path / "scheduler", api_server=tmp_path / "api-server")
    (tmp_path / "scheduler").write_bytes(SCHEDULERS.trust_pem)
    (tmp_path / "api-server").write_bytes(API_SERVERS.trust_pem)
    ClientAuthorityFiles(files, context).poll()
    async with judged(context, pair) as kinds:
        assert kinds() == want
        assert kinds() == want, "and is so when it is asked again"


async def test_own_ca_signs_for_the_scheduler_unless_it_has_a_file(tmp_path: Path) -> None:
    context = serving()
    async with judged(context, OWN.client) as kinds:
        assert kinds() == {"scheduler"}
        (tmp_path / "scheduler").write_bytes(SCHEDULERS.trust_pem)
        files = ClientFiles(scheduler=tmp_path / "scheduler")
        ClientAuthorityFiles(files, context).poll()
        assert kinds() == set(), "on a connection that is open as well"
    with pytest.raises((ConnectionError, ssl.SSLError)):
        async with judged(context, OWN.client):
            pass


async def test_issuer_of_mounted_certificates_signs_for_no_client() -> None:
    """An issuer of the cluster's gives anybody a certificate of any name."""
    context = serving()
    ClientAuthorityFiles(ClientFiles(own_scheduler=False), context).poll()
    with pytest.raises((ConnectionError, ssl.SSLError)):
        async with judged(context, OWN.client):
            pass


@pytest.mark.parametrize("content", [None, b"", b"junk"], ids=["missing", "empty", "junk"])
async def test_file_that_cannot_be_used_is_named_counted_and_changes_nothing(
    tmp_path: Path, content: bytes | None
) -> None:
    context = serving()
    file = tmp_path / "scheduler"
    file.write_bytes(SCHEDULERS.trust_pem)
    files = ClientAuthorityFiles(ClientFiles(scheduler=file), context)
    files.poll()
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    before = errors()
    with structlog.testing.capture_logs() as lines:
        files.poll()
        files.poll()
    assert errors() == before + 2
    assert [str(file) in line["error"] for line in lines] == [True]
    async with judged(context, SCHEDULERS.client) as kinds:
        assert kinds() == {"scheduler"}


def test_nothing_is_ready_before_all_files_could_be_read(tmp_path: Path) -> None:
    file = tmp_path / "api-server"
    files = ClientAuthorityFiles(ClientFiles(api_server=file), serving())
    files.poll()
    assert not files.ready.is_set()
    file.write_bytes(API_SERVERS.trust_pem)
    files.poll()
    assert files.ready.is_set()


async def test_files_are_read_again(tmp_path: Path) -> None:
    context = serving()
    file = tmp_path / "api-server"
    files = ClientAuthorityFiles(ClientFiles(api_server=file), context, interval_s=0.01)
    async with asyncio.timeout(120), asyncio.TaskGroup() as group:
        following = group.create_task(files.run())
        file.write_bytes(API_SERVERS.trust_pem)
        await files.ready.wait()
        following.cancel()


async def test_many_certificates_are_not_all_remembered() -> None:
    context = serving()
    context.trust(ClientTrust(api_server=decode_authorities(API_SERVERS.trust_pem, "test")))
    context.api_server._issued.update({bytes([number]): True for number in range(64)})
    async with judged(context, API_SERVERS.client) as kinds:
        assert kinds() == {"API server"}
    assert len(context.api_server._issued) == 1
