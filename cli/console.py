"""The command `console`: its flags and its exit status. `console.processes.cluster_console` runs it."""

# ruff: noqa: PLC0415  # modules of the console are imported when it runs

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cli.command_parser import CommandLineError, CommandParser, print_error
from cli.exit_status import FAILED, OK
from console.processes.console_settings import (
    DEFAULT_LISTEN,
    CertificateFiles,
    ConsoleSettings,
    ListenAddress,
    listen_address,
)
from manifests.constants import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Sequence

_DESCRIPTION: Final = """\
Serve the page that shows pools, devices and pods that wait, for viewers with tokens of this cluster.

Each viewer sees what the API server says that its token may see; the console's own account writes nothing."""


def run_console_command(arguments: "Sequence[str]") -> int:
    """Serve until told to stop; return the process's exit status.

    Raises:
        CommandLineError: flags, files or configuration cannot be used.
    """
    parser = CommandParser("console", _DESCRIPTION)
    add_arguments(parser)
    try:
        settings = settings_of(parser.parse_flags(arguments))
    except ValueError as error:
        raise CommandLineError(str(error)) from error
    return _run(settings)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--listen",
        type=_listen,
        default=listen_address(DEFAULT_LISTEN),
        metavar="ADDRESS:PORT",
        help=f"address of the page, the probes and the metrics ({DEFAULT_LISTEN})",
    )
    parser.add_argument(
        "--tls-certificate",
        type=Path,
        metavar="FILE",
        help="certificate of the port, with its chain, in PEM; read again when it changes",
    )
    parser.add_argument("--tls-key", type=Path, metavar="FILE", help="its key, in PEM")
    parser.add_argument(
        "--plain-http",
        action="store_true",
        help="serve without TLS beyond this machine, where something in front of the console ends TLS",
    )
    parser.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="NAME",
        help="host name that requests may be for; may be given several times (any)",
    )
    parser.add_argument(
        "--namespace",
        default=DEFAULT_NAMESPACE,
        metavar="NAME",
        help=f"namespace of the control plane ({DEFAULT_NAMESPACE})",
    )
    parser.add_argument(
        "--decisions",
        action="store_true",
        help="let viewers approve and release devices, each with the rights of the own token",
    )
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="credentials; without it the pod's service account"
    )
    parser.add_argument("--context", metavar="NAME", help="context of the kubeconfig")
    parser.add_argument(
        "--log-level", choices=("debug", "info", "warning", "error"), default="info"
    )
    parser.add_argument("--log-format", choices=("Auto", "JSON", "Console"), default="Auto")


def settings_of(flags: argparse.Namespace) -> ConsoleSettings:
    """Return the settings.

    Raises:
        ValueError: the flags do not go together; the text says why.
    """
    if (flags.tls_certificate is None) != (flags.tls_key is None):
        raise ValueError("--tls-certificate and --tls-key go together")
    certificate = None
    if flags.tls_certificate is not None:
        certificate = CertificateFiles(certificate=flags.tls_certificate, key=flags.tls_key)
    return ConsoleSettings(
        listen=flags.listen,
        certificate=certificate,
        is_plain=flags.plain_http,
        hosts=tuple(flags.host),
        namespace=flags.namespace,
        decisions=flags.decisions,
        kubeconfig=flags.kubeconfig,
        context=flags.context,
        log_level=flags.log_level,
        log_format=flags.log_format,
    )


def _run(settings: ConsoleSettings) -> int:
    import uvloop

    from console.edge.static_files import PageMissingError
    from console.processes.cluster_console import run_cluster_console
    from console.processes.page_certificate import UnusableCertificateError
    from http_edge.listening_sockets import ListenError
    from http_edge.system_clock import SystemClock
    from kube.config.connection import BadConfigurationError
    from telemetry.logs import configure_logs

    logs = configure_logs(settings.log_level, settings.log_format)
    try:
        uvloop.run(run_cluster_console(settings, SystemClock(), logs))
    except (BadConfigurationError, UnusableCertificateError) as error:
        raise CommandLineError(str(error)) from error
    except (ListenError, PageMissingError) as error:
        print_error(error)
        return FAILED
    except ExceptionGroup:
        # Each failed task has logged itself.
        return FAILED
    return OK


def _listen(text: str) -> ListenAddress:
    try:
        return listen_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
