"""The command `uninstall`: its flags. `cli.uninstall.removal` does the work."""

# ruff: noqa: PLC0415  # what reads the cluster is imported when it is needed: --help stays quick

import argparse
import re
from typing import TYPE_CHECKING, Final

from api.text import printable
from cli.command_parser import CommandLineError, CommandParser, print_error
from cli.exit_status import FAILED, OK
from manifests.constants import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cli.uninstall.own_kinds import RemovalOptions

_DEFAULT_TIMEOUT_S: Final = 120.0
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def run_uninstall(arguments: "Sequence[str]") -> int:
    """Remove the control plane from a cluster; return the process's exit status.

    Raises:
        CommandLineError: flags or credentials cannot be used.
    """
    flags = _parser().parse_flags(arguments)
    if flags.keep_crds and flags.delete_crds:
        raise CommandLineError("--keep-crds and --delete-crds contradict each other")
    import asyncio

    from cli.uninstall.removal import RemovalError
    from kube.config.connection import BadConfigurationError
    from telemetry.logs import configure_logs

    configure_logs("error")
    try:
        asyncio.run(_remove(flags))
    except BadConfigurationError as error:
        raise CommandLineError(str(error)) from error
    except RemovalError as error:
        print_error(error)
        return FAILED
    return OK


def _parser() -> CommandParser:
    parser = CommandParser(
        "uninstall",
        "Remove the control plane from a cluster, in an order that blocks no pod.",
        epilog="Without --force nothing is removed while pods use units of pools or mount kernel caches.",
    )
    for flag, text in (
        ("--force", "although pods use units or mount caches: they run on and keep them"),
        (
            "--keep-crds",
            "keep the definitions of GPUPool and the other kinds, and their objects (default)",
        ),
        ("--delete-crds", "delete the definitions and all objects, too"),
        (
            "--keep-applied",
            "leave Deployments, Services, roles and the namespace to the tool that applied them",
        ),
        ("--dry-run", "print the steps and change nothing"),
    ):
        parser.add_argument(flag, action="store_true", help=text)
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=_DEFAULT_TIMEOUT_S,
        metavar="SECONDS",
        help=f"for the whole removal ({_DEFAULT_TIMEOUT_S:g})",
    )
    parser.add_argument(
        "--namespace",
        type=_name,
        default=DEFAULT_NAMESPACE,
        metavar="NAME",
        help=f"namespace of the control plane ({DEFAULT_NAMESPACE})",
    )
    parser.add_argument("--kubeconfig", metavar="FILE", help="credentials, as kubectl finds them")
    parser.add_argument("--context", help="context of the kubeconfig")
    return parser


async def _remove(flags: argparse.Namespace) -> None:
    from cli.uninstall.removal import Removal
    from http_edge.system_clock import SystemClock
    from kube.client import KubeClient
    from kube.config.discovery import load_configuration

    clock = SystemClock()
    configuration = await load_configuration(
        clock, kubeconfig=flags.kubeconfig, context=flags.context
    )
    async with KubeClient(configuration, clock, user_agent="gpu-control-plane-uninstall") as client:
        await Removal(client, clock, _options_of(flags), report=_report).run()


def _options_of(flags: argparse.Namespace) -> "RemovalOptions":
    from cli.uninstall.own_kinds import RemovalOptions
    from manifests.install.server_policy import OwnObjects

    return RemovalOptions(
        own=OwnObjects(
            namespace=flags.namespace,
            runs_node_software=True,
        ),
        with_applied=not flags.keep_applied,
        with_crds=flags.delete_crds,
        is_forced=flags.force,
        is_dry_run=flags.dry_run,
        timeout_s=flags.timeout,
    )


def _report(line: str) -> None:
    print(printable(line), flush=True)  # noqa: T201  # the command line


def _name(text: str) -> str:
    if _NAME.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no name of an object")
    return text


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r}: seconds, such as 120")
    return seconds
