"""The real server of the demo, as a process of its own."""

import asyncio
import contextlib
import signal
import socket
from typing import TYPE_CHECKING, Any, Final, final

import aiohttp
import msgspec
import yaml

from certs.bundle import Bundle
from certs.tls import client_context
from demo.child_programs import start_program
from kube.errors import NotFound
from kube.resources import SECRETS
from manifests import constants

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from api.clock import Clock
    from kube.client import KubeClient

START_TIMEOUT_S: Final = 120.0
SAMPLE_EVERY_S: Final = 0.25
"""Seconds between two checks. A node becomes ready, and a device recovers, after three; the default is 10 s."""


class _Secret(msgspec.Struct):
    data: dict[str, bytes]


@final
class DemoServer:
    """`gpu-control-plane serve` on a free port of this machine; its output goes to `log`."""

    def __init__(self, folder: "Path", log: "Path", clock: "Clock") -> None:
        self.kernel_caches: Mapping[str, Any] = {}
        """Settings of the section, before it serves."""
        self.serves_software = False
        """Whether ClusterPolicies bring the software of nodes, before it serves."""
        self._folder = folder
        self._log = log
        self._clock = clock
        self._port = _free_port()
        self._client: KubeClient
        self._kubeconfig: Path
        self.url = f"https://127.0.0.1:{self._port}"
        self.process: asyncio.subprocess.Process

    @contextlib.asynccontextmanager
    async def serving(
        self, api_url: str, token: str, client: "KubeClient"
    ) -> "AsyncIterator[None]":
        """Run the server; the context is entered once it is ready.

        Args:
            api_url: where it finds the API server.
            token: by which that knows it.
            client: reads its certificate.

        Raises:
            OSError: it ended, or was not ready in time.
        """
        self._client = client
        self._kubeconfig = write_kubeconfig(self._folder / "kubeconfig", api_url, token)
        self._log.write_bytes(b"")
        await self._start({})
        try:
            await self._wait_ready()
            yield
        finally:
            await self._stop()

    async def restart(self, bootstrap: "Mapping[str, Any]") -> None:
        """End the server, and run it with further settings of the section `bootstrap` until it is ready.

        Raises:
            OSError: as `serving`.
        """
        await self._stop()
        await self._start(bootstrap)
        await self._wait_ready()

    async def _start(self, bootstrap: "Mapping[str, Any]") -> None:
        file = self._folder / "settings.yaml"
        file.write_text(yaml.safe_dump(self._settings(bootstrap)), encoding="utf-8")
        with self._log.open("ab") as log:
            self.process = await start_program("cli", "serve", "--settings", str(file), stderr=log)

    async def _stop(self) -> None:
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
            await self.process.wait()

    async def bundle(self, client: "KubeClient") -> Bundle:
        secret = await client.get(
            SECRETS, _Secret, constants.SERVING_SECRET, namespace=constants.DEFAULT_NAMESPACE
        )
        return Bundle.from_secret(secret.data)

    def _settings(self, bootstrap: "Mapping[str, Any]") -> dict[str, Any]:
        return {
            "kubeconfig": str(self._kubeconfig),
            "listen": {"host": "127.0.0.1", "port": self._port},
            "tls": {"ip_addresses": ["127.0.0.1"]},
            "drain_s": 0,
            "bootstrap": {"period_s": SAMPLE_EVERY_S, **self._operands(), **bootstrap},
            "health": {"period_s": SAMPLE_EVERY_S},
            "device_plugin": {
                "image": "registry.example/gpu-control-plane:demo",
                "hand_out": "Environment",
            },
            "kernel_caches": self.kernel_caches,
            "node_software": {"enabled": self.serves_software},
        }

    def _operands(self) -> dict[str, str]:
        return {"operands": "External"} if self.serves_software else {}

    async def _wait_ready(self) -> None:
        deadline = self._clock.monotonic() + START_TIMEOUT_S
        while not await self._is_ready(self._client):
            if self.process.returncode is not None:
                raise OSError(f"the server ended with status {self.process.returncode}")
            if self._clock.monotonic() > deadline:
                raise OSError(f"the server was not ready after {START_TIMEOUT_S:g} s")
            await asyncio.sleep(0.1)

    async def _is_ready(self, client: "KubeClient") -> bool:
        url = f"{self.url}{constants.READINESS_PATH}"
        try:
            context = client_context((await self.bundle(client)).trust_pem)
            async with aiohttp.ClientSession() as session, session.get(url, ssl=context) as answer:
                return answer.status == 200  # OK
        except (aiohttp.ClientError, NotFound):
            return False


def write_kubeconfig(file: "Path", url: str, token: str) -> "Path":
    """Write the credentials of a client to a file, and return it."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "demo", "cluster": {"server": url}}],
        "users": [{"name": "server", "user": {"token": token}}],
        "contexts": [{"name": "demo", "context": {"cluster": "demo", "user": "server"}}],
        "current-context": "demo",
    }
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    return file


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
