"""Leads pods to the API server by the address of its Service, as kube-proxy does in a cluster.

    python -m tests.cluster.node.environment.service_proxy BUSYBOX PORT

The API server of the tests listens on loopback, where no pod reaches it, and the Service `kubernetes` has no
endpoints for that reason. This puts the Service's address onto the loopback interface and passes each
connection on. kubelet tells every pod that address, so that a pod finds the API server as it always does.
"""

import asyncio
import contextlib
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from tests.cluster.environment import processes

ROOT: Final = Path(__file__).resolve().parents[4]
MODULE: Final = "tests.cluster.node.environment.service_proxy"
ADDRESS: Final = "10.96.0.1"
"""The first of the range that the API server is started with."""
PORT: Final = 443
READY: Final = "passing on"
_CHUNK: Final = 64 * 1024


@final
class ServiceProxy:
    """The process, and the address that goes with it."""

    def __init__(self, run: "processes.Run", busybox: Path, target_port: int) -> None:
        self._busybox = str(busybox)
        self.process = run.child(
            "service-proxy",
            [sys.executable, "-m", MODULE, self._busybox, str(target_port)],
            env={"PYTHONPATH": str(ROOT)},
        )

    async def start(self) -> None:
        """Start it; returns when connections are passed on."""
        self.process.start()
        await self.process.wait_ready(self._missing, within=30)

    def close(self) -> None:
        """End it and take the address away."""
        self.process.kill9()
        set_address(self._busybox, is_there=False)

    async def _missing(self) -> str | None:
        return None if READY in self.process.logs() else "it does not listen yet"


def set_address(busybox: str, *, is_there: bool) -> None:
    """Put the address onto the loopback interface, or take it off; it may be so already."""
    verb = "add" if is_there else "del"
    command = [busybox, "ip", "address", verb, f"{ADDRESS}/32", "dev", "lo"]
    subprocess.run(command, check=False, capture_output=True)


async def pass_on(target_port: int) -> None:
    """Serve until cancelled."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", target_port)
            async with asyncio.TaskGroup() as group:
                group.create_task(_pump(reader, there_writer))
                group.create_task(_pump(there_reader, writer))

    server = await asyncio.start_server(connected, ADDRESS, PORT)
    sys.stdout.write(f"{READY}\n")
    sys.stdout.flush()
    await server.serve_forever()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()


if __name__ == "__main__":
    set_address(sys.argv[1], is_there=True)
    asyncio.run(pass_on(int(sys.argv[2])))
