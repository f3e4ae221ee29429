"""`gpu-control-plane demo --console`: the console's page on a cluster that lives."""

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from console.data.console_cluster import ConsoleCluster
from console.data.read_scope import ReadScope
from console.edge.static_files import PageMissingError
from console.processes.local_console import serving_page, viewer_of
from demo.cluster import BackgroundTasks
from demo.demo_folder import demo_folder
from demo.ending import ended, say
from demo.living_cluster import living_cluster
from http_edge.listening_sockets import ListenError
from manifests import constants

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from demo.cluster import DemoCluster

ORIGIN: Final = "the demo's cluster in memory"
_POLL_S: Final = 0.05


@asynccontextmanager
async def console_page(cluster: "DemoCluster", *, port: int = 0) -> "AsyncIterator[str]":
    """Serve the page of a cluster to its administrator; the value is the address, which is good for one login.

    Raises:
        ListenError: the port is taken.
        PageMissingError: the page has not been built.
    """
    scope = ReadScope.whole(system_namespace=constants.DEFAULT_NAMESPACE)
    clock = cluster.clock
    async with (
        cluster.administrator() as client,
        _read(ConsoleCluster(client, clock, scope=scope, origin=ORIGIN)) as console,
        serving_page(console, viewer_of(scope), clock, port=port) as address,
    ):
        while not console.is_ready:  # noqa: ASYNC110  # the lists have no event
            await asyncio.sleep(_POLL_S)
        yield address


@asynccontextmanager
async def _read(console: ConsoleCluster) -> "AsyncIterator[ConsoleCluster]":
    """Read and watch the cluster inside the context."""
    async with BackgroundTasks() as tasks:
        tasks.spawn(console.run(), "console")
        yield console


async def show_console(log_file: Path | None, *, seed: int, port: int) -> int:
    """Serve the page until cancelled; return 1 where the cluster does not run."""
    with demo_folder() as folder:
        log = log_file or Path(folder) / "server.log"
        try:
            return await ended(_show(Path(folder), log, seed=seed, port=port), log)
        except (ListenError, PageMissingError) as error:
            say(f"The page cannot be served: {error}")
            return 1


async def _show(folder: Path, log: Path, *, seed: int, port: int) -> None:
    say("Starting a cluster in memory, with the real GPU control plane: 6 nodes, 3 pools …")
    async with (
        living_cluster(folder, log, seed=seed) as living,
        console_page(living.cluster, port=port) as address,
    ):
        say(f"\nOpen {address}")
        say("The address is good for one login. Pods come, wait and end until you press Ctrl-C.")
        await living.live()
