"""The command `simulate`: its flags, and which question they ask."""

# ruff: noqa: PLC0415  # what reads clusters is imported when it is needed: --help stays quick

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cli.command_parser import CommandLineError, CommandParser, complain
from cli.exit_status import FAILED, OK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cli.simulation.cluster_objects import ClusterObjects
    from pool.model import Instant

_EPILOG: Final = """\
The cluster is that of the kubeconfig, or of --cluster; it is read and never written to.
docs/placement.md explains the answers."""


def run_simulate(arguments: "Sequence[str]") -> int:
    """Answer what-if questions; return the process's exit status.

    Raises:
        CommandLineError: the flags, credentials or input files cannot be used.
    """
    known = _parser().parse_flags(arguments)
    if known.pod is None:
        raise CommandLineError("give --pod FILE")
    from cli.simulation.errors import BadInputError
    from telemetry.logs import configure_logs

    configure_logs("error")
    try:
        _answer(known)
    except BadInputError as error:
        complain(error)
        return FAILED
    return OK


def _parser() -> CommandParser:
    parser = CommandParser(
        "simulate",
        "Say what the control plane would do with a pod, and change nothing.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "--pod",
        type=Path,
        metavar="FILE",
        help="a Pod, or an object with a pod template such as a Job",
    )
    parser.add_argument(
        "--cluster",
        type=Path,
        action="append",
        metavar="PATH",
        help="file or directory with the cluster's objects, as kubectl get -o yaml writes them; repeatable",
    )
    parser.add_argument("--kubeconfig", metavar="FILE", help="credentials, as kubectl finds them")
    parser.add_argument("--context", help="context of the kubeconfig")
    parser.add_argument(
        "--namespace", metavar="NAME", help="of a pod whose file names none (default)"
    )
    parser.add_argument("--user", default="", metavar="NAME", help="user who would create the pod")
    parser.add_argument(
        "--group",
        action="append",
        metavar="NAME",
        help="group of that user, for spec.access.groups of pools; repeatable",
    )
    parser.add_argument(
        "--output", choices=("text", "json"), default="text", help="form of the answer (text)"
    )
    return parser


def _answer(known: argparse.Namespace) -> None:
    """Print the answer about one pod."""
    import msgspec

    from cli.simulation.answer_text import text_of
    from cli.simulation.decision import Caller
    from cli.simulation.pod_file import read_pod
    from cli.simulation.snapshot import take_snapshot
    from cli.simulation.what_if import answer_for

    asked = read_pod(known.pod, namespace=known.namespace)
    objects, now = _read_cluster(known)
    caller = Caller(known.user, tuple(known.group or ()))
    answer = answer_for(asked, take_snapshot(objects, now), caller)
    if known.output == "json":
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(answer)) + b"\n")
    else:
        sys.stdout.write(text_of(answer))


def _read_cluster(known: argparse.Namespace) -> "tuple[ClusterObjects, Instant]":
    from server.system_clock import SystemClock

    clock = SystemClock()
    if known.cluster:
        from cli.simulation.object_files import read_cluster

        return read_cluster(known.cluster), clock.instant()
    import asyncio

    from cli.simulation.live_cluster import read_live_cluster
    from kube.config.connection import BadConfigurationError

    try:
        objects = asyncio.run(
            read_live_cluster(clock, kubeconfig=known.kubeconfig, context=known.context)
        )
    except BadConfigurationError as error:
        raise CommandLineError(f"{error}; or give the objects as files with --cluster") from error
    return objects, clock.instant()
