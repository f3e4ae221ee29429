"""The command `demo`, which needs a source checkout."""

import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cli.command_parser import CommandLineError, CommandParser
from cli.exit_status import FAILED, OK

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)


def run_demonstration(arguments: "Sequence[str]") -> int:
    """Run the demo; return the process's exit status.

    Raises:
        CommandLineError: the arguments cannot be used, or this installation has no demo.
    """
    parser = CommandParser("demo", "Show the main job on an in-memory cluster.")
    parser.add_argument(
        "--keep-logs", type=Path, metavar="FILE", help="write the server's log there"
    )
    parser.add_argument(
        "--console",
        action="store_true",
        help="show the console's page on a cluster that lives, until Ctrl-C",
    )
    parser.add_argument(
        "--port", type=int, default=0, metavar="N", help="of the page on 127.0.0.1 (a free one)"
    )
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="of the cluster's life (1)"
    )
    flags = parser.parse_flags(arguments)
    # Otherwise gRPC writes a line about each process that the demo starts.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    try:
        from demo.console_page import show_console  # noqa: PLC0415  # imports the simulator
        from demo.main import run_demo  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name not in {"demo", "demo.console_page", "demo.main"}:
            raise
        raise CommandLineError(
            "the demo is part of the source checkout, not of this installation: `make demo` runs it there"
        ) from error
    from telemetry.logs import configure_logs  # noqa: PLC0415

    configure_logs("error")
    if not flags.console:
        return _run(run_demo(flags.keep_logs))
    try:
        return _run(show_console(flags.keep_logs, seed=flags.seed, port=flags.port))
    except KeyboardInterrupt:
        return OK


def _run(demo: "Coroutine[Any, Any, int]") -> int:
    """Run a demo; SIGTERM and SIGHUP cancel it as Ctrl-C does: its server ends, and its folder is removed."""
    import uvloop  # noqa: PLC0415

    async def run() -> int:
        work = asyncio.current_task()
        assert work is not None
        for number in _ENDING:
            asyncio.get_running_loop().add_signal_handler(number, work.cancel)
        return await demo

    try:
        return uvloop.run(run())
    except asyncio.CancelledError:
        return FAILED
