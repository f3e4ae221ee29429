"""The CSI driver in a process with a mount namespace of its own, whose mounts end with it; needs root."""

import os
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import final

import pytest

from demo.demo_folder import demo_folder
from tests.cluster.caches.driver_process import CONTENT, DRIVER_SOCKET, PODS
from tests.cluster.environment import processes
from tests.support.csi import CsiClient, a_target

READY_S = 120


@final
@dataclass(frozen=True)
class DriverProcess:
    folder: Path
    process: processes.ChildProcess

    @property
    def target(self) -> Path:
        """The target of a pod's volume, whose directory is there."""
        return a_target(self.folder / PODS)

    @property
    def client(self) -> CsiClient:
        return CsiClient(self.folder / DRIVER_SOCKET)

    def seen(self, path: Path) -> Path:
        """Return the path as the driver's process sees it, with its mounts."""
        return Path(f"/proc/{self.process.pid}/root") / path.relative_to("/")

    def mountinfo(self) -> str:
        return Path(f"/proc/{self.process.pid}/mountinfo").read_text(encoding="utf-8")


@pytest.fixture
def node() -> Iterator[Path]:
    """The node's disk; a short name, since a socket's path may have 107 characters."""
    with demo_folder() as name:
        folder = Path(name).resolve()
        (folder / CONTENT).mkdir()
        (folder / CONTENT / "kernel.cubin").write_bytes(b"x" * 1000)
        a_target(folder / PODS).parent.mkdir(parents=True)
        yield folder


@pytest.fixture
async def driver(run: processes.Run, node: Path) -> AsyncIterator[DriverProcess]:
    if os.geteuid() != 0:
        pytest.skip("mounts need root")
    argv = ["unshare", "--mount", sys.executable, "-m", "tests.cluster.caches.driver_process"]
    process = run.child(f"csi-driver-{node.name}", [*argv, str(node)])
    process.start()

    async def probe() -> str | None:
        return None if (node / DRIVER_SOCKET).is_socket() else "there is no socket"

    try:
        await process.wait_ready(probe, within=READY_S)
        yield DriverProcess(node, process)
    finally:
        process.kill9()
