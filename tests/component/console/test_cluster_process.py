"""`gpu-control-plane console` as a process, against an API server in memory: from its start to its last event."""

import signal
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from cli.exit_status import FAILED, MISUSED, OK
from console.processes.rbac import CONSOLE_NAMESPACED_RBAC, CONSOLE_RBAC
from demo.control_plane import write_kubeconfig
from kube.client import KubeClient
from kube.config.connection import StaticConnection
from kube.resources import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES
from manifests.constants import DEFAULT_NAMESPACE
from manifests.install.crds import build_crds
from simulator.apiserver.server import InMemoryApiServer
from simulator.apiserver.webhooks.chain import User
from tests.support.console_process import console_process
from tests.support.loop_clock import LoopClock
from tests.support.polling import until_async
from tests.support.rights import allows, asked_by, rights_of
from tests.support.self_signed import self_signed

CONSOLE = "system:serviceaccount:gpu-control-plane:gpu-console"
RIGHTS = [
    ("gpupools.gpu.deckhouse.io", ""),
    ("gpudevices.gpu.deckhouse.io", ""),
    ("pods", "default"),
]


@pytest.fixture
async def api() -> AsyncIterator[InMemoryApiServer]:
    """An API server with our kinds, which knows the console and a viewer."""
    tokens = {
        "admin": User(name="admin"),
        "console": User(name=CONSOLE),
        "alice": User(name="alice"),
    }
    clock = LoopClock()
    async with InMemoryApiServer(clock, tokens=tokens) as server:
        server.reviewer.listers = {("alice", *right) for right in RIGHTS}
        async with KubeClient(StaticConnection(server.url, token="admin"), clock) as client:
            for definition in build_crds():
                await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
            metadata = {"name": DEFAULT_NAMESPACE}
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
            await client.create(NAMESPACES, body)
        yield server


@pytest.fixture
def kubeconfig(api: InMemoryApiServer, tmp_path: Path) -> Path:
    """The console's credentials."""
    return write_kubeconfig(tmp_path / "kubeconfig", api.url, "console")


async def test_a_console_lives_from_its_start_to_the_last_event_of_its_streams(
    api: InMemoryApiServer, kubeconfig: Path
) -> None:
    async with (
        console_process(kubeconfig) as console,
        aiohttp.ClientSession(headers={"Authorization": "Bearer alice"}) as session,
    ):
        url = f"http://127.0.0.1:{(await console.log('listening'))['port']}"
        await console.log("ready")
        for path in ("/readyz", "/livez", "/", "/console.js"):
            async with session.get(url + path) as reply:
                assert reply.status == 200
        async with session.get(f"{url}/api/v1/stream?namespace=default") as reply:
            first = await reply.content.readuntil(b"\n\n")
            assert first.startswith(b"event: snapshot\n")
            assert b'"name":"alice","namespace":"default"' in first
            console.process.send_signal(signal.SIGTERM)
            assert b"\nevent: end\ndata: " in b"\n" + await reply.content.read()
        assert (await console.ended())[0] == OK
    of_the_console = [request for request in api.requests if request.user == CONSOLE]
    asked = {right for item in of_the_console for right in asked_by(item)}
    granted = rights_of([(CONSOLE_RBAC, "*"), (CONSOLE_NAMESPACED_RBAC, DEFAULT_NAMESPACE)])
    assert [item for item in asked if not any(allows(right, item) for right in granted)] == []
    assert [item for item in granted if not any(allows(item, right) for right in asked)] == []


async def test_tokens_pass_under_tls(kubeconfig: Path, tmp_path: Path) -> None:
    server = self_signed(tmp_path, "console")
    flags = ("--tls-certificate", server.certificate, "--tls-key", server.key)
    trust = ssl.create_default_context(cafile=server.certificate)
    async with (
        console_process(kubeconfig, *flags, listen="0.0.0.0:0") as console,
        aiohttp.ClientSession(headers={"Authorization": "Bearer alice"}) as session,
    ):
        url = f"https://127.0.0.1:{(await console.log('listening'))['port']}"
        await console.log("ready")
        async with session.get(f"{url}/api/v1/devices/none", ssl=trust) as reply:
            assert (reply.status, await reply.json()) == (404, {"error": "there is no device none"})
        async with session.get(
            f"{url}/api/v1/devices/none", ssl=trust, headers={"Authorization": "Bearer bob"}
        ) as reply:
            assert reply.status == 401


async def test_an_api_server_that_is_away_at_the_start_is_waited_for(
    api: InMemoryApiServer, kubeconfig: Path
) -> None:
    await api.stop()
    async with console_process(kubeconfig) as console, aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{(await console.log('listening'))['port']}"

        async def answers(path: str, status: int) -> bool:
            async with session.get(url + path) as reply:
                return reply.status == status

        assert await answers("/livez", 200)
        assert await answers("/readyz", 503)
        await api.start()
        await until_async(lambda: answers("/readyz", 200))


async def test_a_port_that_is_taken_ends_in_a_line(kubeconfig: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        async with console_process(kubeconfig, listen=listen) as console:
            assert await console.ended() == (
                FAILED,
                [f"gpu-control-plane: cannot listen on {listen}: Address already in use"],
            )


async def test_a_kubeconfig_that_is_none_ends_in_a_line(tmp_path: Path) -> None:
    async with console_process(tmp_path / "none") as console:
        code, lines = await console.ended()
    assert code == MISUSED
    assert lines == [
        f"gpu-control-plane: no usable configuration: no kubeconfig at {tmp_path}/none"
    ]
