"""`kubectl gpu console`: a page in the browser that shows pools, devices and pods that wait, live.

The page is served on the loopback address, and reads through `kubectl proxy` with the user's own rights. This module has the
flags, what the terminal shows, and the end; `console.processes.local_console` has the rest, and is imported when it runs.
"""

# ruff: noqa: PLC0415  # the console's libraries take half a second to import

import asyncio
import gc
import signal
from typing import TYPE_CHECKING, Final, final

from api.text import printable
from cli.command_parser import CommandLineError, CommandParser
from kube.resources import GPU_DEVICES, GPU_POOLS
from kubectl_gpu.errors import UnreadableError
from kubectl_gpu.exit_codes import ANSWERED
from kubectl_gpu.terminal import PROGRAM
from kubectl_gpu.verb_flags import add_cluster_flags, open_cluster
from manifests.constants import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from console.processes.local_console import LocalSettings
    from kubectl_gpu.kubectl import KubectlProxy
    from kubectl_gpu.terminal import Terminal

_DESCRIPTION: Final = """\
Show pools, devices and pods that wait on a page in the browser of this machine, live.

The page has your rights until you end it with Ctrl-C, and only reads unless --decisions is given. Its address is good for one login, in one browser."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_console(arguments: "Sequence[str]", terminal: "Terminal") -> int:
    """Serve the page until it is ended."""
    parser = CommandParser("console", _DESCRIPTION, program=PROGRAM)
    parser.add_argument(
        "--port", type=int, default=0, metavar="N", help="port on 127.0.0.1 (a free one)"
    )
    parser.add_argument("--open", action="store_true", help="open the page in the browser")
    parser.add_argument(
        "--decisions",
        action="store_true",
        help="let the page approve and release devices, with your rights",
    )
    parser.add_argument(
        "-n",
        "--namespace",
        metavar="NAME",
        help="show the pods of this namespace where you may not list those of all (the context's)",
    )
    parser.add_argument(
        "--install-namespace",
        default=DEFAULT_NAMESPACE,
        metavar="NAME",
        help=f"namespace of the control plane ({DEFAULT_NAMESPACE})",
    )
    add_cluster_flags(parser)
    given = parser.parse_flags(arguments)
    if not 0 <= given.port <= 65_535:
        raise CommandLineError(f"--port {given.port}: ports end at 65535")
    gc.enable()
    with open_cluster(given) as cluster:
        # What cannot be read is said in the same words as by the other verbs.
        for resource in (GPU_POOLS, GPU_DEVICES):
            cluster.probe(resource)
        return _serve(cluster, given, terminal)


def _serve(cluster: "KubectlProxy", given: "argparse.Namespace", terminal: "Terminal") -> int:
    from console.processes.local_console import LocalSettings, NoPageError, PortTakenError
    from telemetry.logs import configure_logs

    configure_logs("error", "Console")
    settings = LocalSettings(
        socket=cluster.process.start(),
        origin=_origin(cluster),
        namespace=cluster.namespace(),
        system_namespace=given.install_namespace,
        port=given.port,
        decisions=given.decisions,
    )
    try:
        return asyncio.run(
            _run(cluster, settings, _ConsoleState(terminal, settings.origin, opens=given.open))
        )
    except PortTakenError as error:
        raise CommandLineError(f"{error}; name another --port, or none") from error
    except NoPageError as error:
        raise UnreadableError(str(error)) from error


async def _run(cluster: "KubectlProxy", settings: "LocalSettings", current: "_ConsoleState") -> int:
    """Serve until a signal, or the end of the proxy; return the exit code."""
    from console.processes.local_console import run_local_console

    end = _End(cluster)
    try:
        await run_local_console(settings, current)
    except asyncio.CancelledError:
        return end.code()
    finally:
        end.close()


def _origin(cluster: "KubectlProxy") -> str:
    context = cluster.context()
    return f"{cluster.origin}, context {context}" if context else cluster.origin


@final
class _End:
    """What ends the page, by cancelling its task: a signal, or the end of the proxy."""

    def __init__(self, cluster: "KubectlProxy") -> None:
        self._process = cluster.process
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._came: signal.Signals | UnreadableError | None = None
        for number in _SIGNALS:
            self._loop.add_signal_handler(number, self._come, number)
        self._loop.add_reader(self._process.fileno(), self._on_readable)

    def code(self) -> int:
        """Return the exit code; raises UnreadableError where the proxy ended by itself."""
        match self._came:
            case None:
                raise asyncio.CancelledError
            case UnreadableError() as error:
                raise error
            case signal.SIGINT:
                return ANSWERED
            case number:
                return 128 + number

    def close(self) -> None:
        self._loop.remove_reader(self._process.fileno())
        for number in _SIGNALS:
            self._loop.remove_signal_handler(number)

    def _on_readable(self) -> None:
        try:
            end = self._process.end()
        except BlockingIOError:
            return
        self._loop.remove_reader(self._process.fileno())
        # A terminal sends the signal of Ctrl-C to both of us.
        self._come(signal.SIGINT if end is None else end)

    def _come(self, end: "signal.Signals | UnreadableError") -> None:
        if self._came is None and self._task is not None:
            self._came = end
            self._task.cancel()


@final
class _ConsoleState:
    """What the terminal shows of the start; a `LocalProgress`."""

    def __init__(self, terminal: "Terminal", origin: str, *, opens: bool) -> None:
        self._terminal = terminal
        self._origin = origin
        self._opens = opens

    def reading(self, gaps: "Sequence[str]") -> None:
        self._write(f"Reading from {self._origin}")
        for gap in gaps:
            self._write(f"partial: {gap}")

    def still_reading(self, unread: "Sequence[str]") -> None:
        self._write(f"still to be read: {', '.join(unread)}")

    async def ready(self, address: str) -> None:
        self._write(address)
        self._write("Open this address in a browser of this machine; it is good for one login.")
        self._write("The page is served until Ctrl-C.")
        if self._opens:
            await self._open(address)

    async def _open(self, address: str) -> None:
        import webbrowser

        # A browser may want its page before this returns.
        if not await asyncio.to_thread(webbrowser.open, address):
            self._terminal.print_error("no browser can be opened here: open the address yourself")

    def _write(self, text: str) -> None:
        self._terminal.write(f"{printable(text)}\n")
