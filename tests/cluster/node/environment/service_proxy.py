"""Leads pods and the API server to Services by their addresses and names, as kube-proxy and DNS do.

    python -m tests.cluster.node.environment.service_proxy BUSYBOX PORT KUBECONFIG

Puts the range of Services onto the loopback interface, listens at each Service's address and passes each
connection on to one of its ready endpoints, which is looked up at that moment. The API server of the tests
listens on loopback at PORT, where no pod reaches it, and its Service `kubernetes` has no endpoints for that
reason: connections to that one lead to the API server.
"""

import asyncio
import contextlib
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import aiohttp

from tests.cluster.environment import client
from tests.cluster.node.environment import cluster_dns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.cluster.environment import control_plane as control_planes
    from tests.cluster.environment.client import JsonObject

ROOT: Final = Path(__file__).resolve().parents[4]
MODULE: Final = "tests.cluster.node.environment.service_proxy"
ADDRESS: Final = "10.96.0.1"
"""The first of the range that the API server is started with: its own."""
_RANGE: Final = f"{ADDRESS}/16"
"""On the loopback interface the whole range is this machine's then."""
SERVICES: Final = "/api/v1/services"
API_SERVER: Final = "default/kubernetes"
READY: Final = "passing on"
_CHUNK: Final = 64 * 1024


@final
class ServiceProxy:
    """The process, and the addresses that go with it."""

    def __init__(self, control_plane: "control_planes.ControlPlane", busybox: Path) -> None:
        self._busybox = str(busybox)
        port, kubeconfig = str(control_plane.port), str(control_plane.kubeconfig())
        self.process = control_plane.run.child(
            "service-proxy",
            [sys.executable, "-m", MODULE, self._busybox, port, kubeconfig],
            env={"PYTHONPATH": str(ROOT)},
        )

    async def start(self) -> None:
        """Start it; returns when connections are passed on."""
        self.process.start()
        await self.process.wait_ready(self._missing, within=120)

    def close(self) -> None:
        """End it and take the addresses away."""
        self.process.kill9()
        set_addresses(self._busybox, are_there=False)

    async def _missing(self) -> str | None:
        return None if READY in self.process.logs() else "it does not listen yet"


def set_addresses(busybox: str, *, are_there: bool) -> None:
    """Put the range onto the loopback interface, or take it off; it may be so already."""
    verb = "add" if are_there else "del"
    command = [busybox, "ip", "address", verb, _RANGE, "dev", "lo"]
    subprocess.run(command, check=False, capture_output=True)


@final
class Proxy:
    """Listens for every Service that there is."""

    def __init__(self, api: client.ApiClient, api_server_port: int) -> None:
        self._api = api
        self._api_server_port = api_server_port
        self._listeners: dict[tuple[str, int], asyncio.Server] = {}
        # (address, port) -> its listener
        self._services: dict[tuple[str, int], tuple[str, JsonObject]] = {}
        # (address, port) -> name of the Service, and the port as it describes it
        self.addresses: dict[str, str] = {}
        """Of Services, by their names in DNS."""

    async def follow(self) -> None:
        """Follow the Services until cancelled."""
        while True:
            await client.watch_until(self._api, SERVICES, satisfied=self._note)
            await self._listen()

    async def listen_now(self) -> None:
        """Listen for the Services of this moment."""
        items = (await self._api.get(SERVICES))["items"]
        self._note(
            {f"{item['metadata']['namespace']}/{item['metadata']['name']}": item for item in items}
        )
        await self._listen()

    def _note(self, services: "Mapping[str, JsonObject]") -> bool:
        """Take the Services over, and say whether listeners have to change."""
        self._services = {
            (address, port["port"]): (name, port)
            for name, service in services.items()
            if (address := service["spec"].get("clusterIP", "None")) != "None"
            for port in service["spec"]["ports"]
        }
        return self._services.keys() != self._listeners.keys()

    async def _listen(self) -> None:
        for gone in self._listeners.keys() - self._services.keys():
            self._listeners.pop(gone).close()
        for address, port in self._services.keys() - self._listeners.keys():
            self._listeners[address, port] = await asyncio.start_server(
                self._connected, address, port
            )
        self.addresses.clear()
        for (address, _), (name, _) in self._services.items():
            namespace, _, short = name.partition("/")
            self.addresses[f"{short}.{namespace}.svc.{cluster_dns.DOMAIN}"] = address

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, aiohttp.ClientError, client.ApiRefusedError):
            endpoint = await self._endpoint(writer.get_extra_info("sockname")[:2])
            if endpoint is not None:
                there_reader, there_writer = await asyncio.open_connection(*endpoint)
                async with asyncio.TaskGroup() as group:
                    group.create_task(_pump(reader, there_writer))
                    group.create_task(_pump(there_reader, writer))
        # kube-proxy rejects a connection to a Service without endpoints.
        writer.transport.abort()

    async def _endpoint(self, address: tuple[str, int]) -> tuple[str, int] | None:
        """Return one of the ready endpoints of the Service at an address."""
        if address not in self._services:
            return None
        service, port = self._services[address]
        if service == API_SERVER:
            return "127.0.0.1", self._api_server_port
        namespace, _, name = service.partition("/")
        slices = await self._api.get(
            f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices",
            labelSelector=f"kubernetes.io/service-name={name}",
        )
        found = [
            ((endpoint["addresses"][0], number["port"]), endpoint.get("conditions", {}))
            for item in slices["items"]
            for number in item.get("ports") or ()
            if number.get("name", "") == port.get("name", "")
            for endpoint in item.get("endpoints") or ()
        ]
        ready = [where for where, conditions in found if conditions.get("ready", True)]
        # As kube-proxy: one that terminates is better than none.
        serving = [where for where, conditions in found if conditions.get("serving", True)]
        chosen = ready or serving
        return random.choice(chosen) if chosen else None


async def serve(api_server_port: int, kubeconfig: Path) -> None:
    """Serve until cancelled."""
    async with client.open_client(kubeconfig) as api:
        proxy = Proxy(api, api_server_port)
        await proxy.listen_now()
        await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: cluster_dns.Server(proxy.addresses), local_addr=(cluster_dns.ADDRESS, 53)
        )
        sys.stdout.write(f"{READY}\n")
        sys.stdout.flush()
        await proxy.follow()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()


if __name__ == "__main__":
    set_addresses(sys.argv[1], are_there=True)
    asyncio.run(serve(int(sys.argv[2]), Path(sys.argv[3])))
