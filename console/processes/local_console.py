"""The console of one user, on the loopback address: read through a unix socket with the user's own rights.

Start: rights found → port open → lists read → address told. An API server that is away for a while ends nothing, and the
page says so.
"""

import asyncio
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn, Protocol, final

from console.data.console_cluster import ConsoleCluster
from console.data.read_scope import NothingReadableError, find_scope
from console.data.streams.partial_picture import gaps_of
from console.edge.console_application import ConsoleApplication
from console.edge.console_port import ConsolePort
from console.edge.local_login import LOOPBACK, LocalLogin
from console.edge.static_files import PageMissingError, StaticFiles
from console.edge.viewer_login import LoggedIn
from console.processes.first_lists import until_read
from console.rows import ViewerRow
from http_edge.listening_sockets import ListenError, open_listeners
from http_edge.system_clock import SystemClock
from kube.client import KubeClient
from kube.config.connection import StaticConnection
from kube.errors import KubeError
from telemetry.tasks import start_all

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from api.clock import Clock
    from console.console_data import ConsoleData, DeviceDecisions
    from console.data.read_scope import ReadScope

USER_AGENT: Final = "kubectl-gpu-console"


class NoPageError(Exception):
    """The page cannot be served; the text says why."""


class PortTakenError(NoPageError):
    """Nothing can listen on the port."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSettings:
    """What the command line says, and kubectl's configuration."""

    socket: str
    """Path of a unix socket on which an API server answers without further credentials."""
    origin: str
    """What is read, in words."""
    namespace: str
    """Whose pods are shown where those of all namespaces may not be listed."""
    system_namespace: str
    """Namespace of the control plane."""
    port: int = 0
    """0 for a free one."""
    decisions: bool = False
    """Whether the page may decide on devices, with the user's rights."""


class LocalProgress(Protocol):
    """Receives how far the start is."""

    def reading(self, gaps: "Sequence[str]") -> None:
        """Take what the page will be without, a sentence each, while the rest is being read."""

    def still_reading(self, unread: "Sequence[str]") -> None:
        """Take which lists have not come yet, where that takes longer than a second."""

    async def ready(self, address: str) -> None:
        """Take the page's address, with its one-time token."""


async def run_local_console(
    settings: LocalSettings, progress: LocalProgress, clock: "Clock | None" = None
) -> NoReturn:
    """Serve the page until cancelled; without a clock, by the machine's.

    Raises:
        NoPageError: the port is taken, this installation lacks the page, pools or devices may not be listed, or the API
            server does not answer when it is asked for the first time.
        ExceptionGroup: of a fault of ours, which has logged itself.
    """
    try:
        await _run(settings, progress, clock or SystemClock())
    except ListenError as error:
        raise PortTakenError(str(error)) from error
    except (KubeError, NothingReadableError, PageMissingError) as error:
        raise NoPageError(str(error)) from error


async def _run(settings: LocalSettings, progress: LocalProgress, clock: "Clock") -> NoReturn:
    connection = StaticConnection(f"unix:{settings.socket}")
    async with KubeClient(connection, clock, user_agent=USER_AGENT) as client:
        scope = await find_scope(
            client, namespace=settings.namespace, system_namespace=settings.system_namespace
        )
        cluster = ConsoleCluster(client, clock, scope=scope, origin=settings.origin)
        decisions = cluster.decisions(lambda _: nullcontext(client)) if settings.decisions else None
        viewer = viewer_of(scope, decisions)
        async with serving_page(cluster, viewer, clock, port=settings.port) as address:
            progress.reading(gaps_of(scope, scope.visibility))
            async with asyncio.TaskGroup() as group:
                start_all(group, {"cluster": cluster.run()})
                await until_read(cluster, progress.still_reading)
                await progress.ready(address)
    raise AssertionError("the cluster is read until this is cancelled")


@asynccontextmanager
async def serving_page(
    data: "ConsoleData", viewer: LoggedIn, clock: "Clock", *, port: int = 0
) -> "AsyncIterator[str]":
    """Serve the page of a cluster to one viewer on the loopback address, inside the context; 0 is a free port.

    The value is the page's address with its one-time token. Until the data are ready, the page says that.

    Raises:
        ListenError: the port is taken.
        PageMissingError: this installation lacks the page.
    """
    files = StaticFiles.of_package()
    async with ConsolePort(await open_listeners(LOOPBACK, port)) as listening:
        login = LocalLogin(viewer, listening.number, clock)
        listening.serve(ConsoleApplication(data, login, files=files, clock=clock, has_probes=False))
        yield login.address


def viewer_of(scope: "ReadScope", decisions: "DeviceDecisions | None" = None) -> LoggedIn:
    """Return the user of a process with these rights, whose decisions are written with them; without, it takes none."""
    row = ViewerRow(
        namespace=scope.namespace,
        all_namespaces=scope.all_pods,
        nodes=scope.nodes,
        can_decide=decisions is not None,
    )
    decide = None if decisions is None else partial(decisions.write, token=None)
    return LoggedIn(row=row, visibility=scope.visibility, decide=decide)
