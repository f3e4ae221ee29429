"""Flags that verbs share, and the cluster that they name."""

import argparse
from typing import TYPE_CHECKING, Final

from cli.command_parser import CommandLineError, CommandParser
from kubectl_gpu.kubectl import KubectlProxy
from kubectl_gpu.terminal import PROGRAM
from kubectl_gpu.watching import show, show_changes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kubectl_gpu.cluster_lists import ClusterLists
    from kubectl_gpu.dumped.dump_source import DumpSource
    from kubectl_gpu.terminal import Terminal
    from kubectl_gpu.watching import Entries

FORMS: Final = ("table", "wide", "json", "yaml", "name")
_OF_KUBECTL: Final = (
    ("--context", "NAME", "context of the kubeconfig"),
    ("--kubeconfig", "FILE", "credentials, as kubectl finds them"),
    ("--cluster", "NAME", "cluster of the kubeconfig"),
    ("--user", "NAME", "user of the kubeconfig"),
    ("--as", "NAME", "read as this user, who has other rights"),
    ("--as-uid", "UID", "uid of that user"),
    ("--token", "TOKEN", "bearer token for the API server"),
    ("--certificate-authority", "FILE", "CA of the API server"),
    ("--tls-server-name", "NAME", "name in the certificate of the API server"),
)


def verb_parser(verb: str, description: str, *, epilog: str = "") -> CommandParser:
    """Return a parser with the flags that every verb has."""
    parser = CommandParser(verb, description, epilog=epilog, program=PROGRAM)
    parser.add_argument("-o", "--output", choices=FORMS, default="table", help="form of the answer")
    parser.add_argument(
        "--no-headers", action="store_true", help="without the line of column names"
    )
    add_dump_flag(parser)
    add_cluster_flags(parser)
    return parser


def add_dump_flag(parser: CommandParser) -> None:
    parser.add_argument(
        "--from",
        dest="from_dump",
        metavar="DUMP",
        help="read this file of `kubectl gpu dump`, and no cluster",
    )


def add_cluster_flags(parser: CommandParser) -> None:
    group = "flags of kubectl"
    parser.add_argument("-s", "--server", metavar="URL", help=f"{group}: address of the API server")
    for flag, value, text in _OF_KUBECTL:
        parser.add_argument(flag, metavar=value, help=f"{group}: {text}", dest=_dest(flag))
    parser.add_argument(
        "--as-group", action="append", metavar="NAME", help=f"{group}: group of that user"
    )
    parser.add_argument(
        "--insecure-skip-tls-verify",
        action="store_true",
        help=f"{group}: take any certificate of the API server",
    )


def add_namespace_flags(parser: CommandParser) -> None:
    parser.add_argument("-n", "--namespace", metavar="NAME", help="in place of the context's")
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="of all namespaces")


def add_selector_flag(parser: CommandParser, subject: str) -> None:
    parser.add_argument(
        "-l", "--selector", default="", metavar="SELECTOR", help=f"only {subject} with these labels"
    )


def add_watch_flag(parser: CommandParser) -> None:
    parser.add_argument("-w", "--watch", action="store_true", help="show it again when it changes")


def parse_verb(parser: CommandParser, arguments: "Sequence[str]") -> argparse.Namespace:
    """Return what all arguments say.

    Raises:
        CommandLineError: they cannot be used.
    """
    given = parser.parse_flags(arguments)
    if getattr(given, "watch", False) and given.output not in {"table", "wide"}:
        raise CommandLineError(
            f"--watch shows tables, and no {given.output}: leave out one of both"
        )
    if getattr(given, "watch", False) and given.from_dump is not None:
        raise CommandLineError("--watch goes with a cluster: a dump does not change")
    if getattr(given, "namespace", None) and getattr(given, "all_namespaces", False):
        raise CommandLineError("--namespace and --all-namespaces exclude each other")
    return given


def open_source(given: argparse.Namespace) -> "KubectlProxy | DumpSource":
    """Return the dump that is named, or else the cluster.

    Raises:
        UnreadableError: there is no such dump.
    """
    if given.from_dump is None:
        return open_cluster(given)
    # An archive is read by few runs of few verbs.
    from pathlib import Path  # noqa: PLC0415

    from kubectl_gpu.dumped.dump_archive import read_dump  # noqa: PLC0415
    from kubectl_gpu.dumped.dump_source import DumpSource  # noqa: PLC0415

    namespace = getattr(given, "namespace", None)
    return DumpSource(read_dump(Path(given.from_dump)), given.from_dump, namespace=namespace)


def open_cluster(given: argparse.Namespace) -> KubectlProxy:
    """Return the cluster that the flags name; nothing is read yet."""
    return KubectlProxy(list(flags_of_kubectl(given)), namespace=getattr(given, "namespace", None))


def flags_of_kubectl(given: argparse.Namespace) -> "list[str]":
    flags = ["--server", *(flag for flag, _, _ in _OF_KUBECTL)]
    found = [
        f"{flag}={value}" for flag in flags if (value := getattr(given, _dest(flag))) is not None
    ]
    found += [f"--as-group={group}" for group in given.as_group or ()]
    if given.insecure_skip_tls_verify:
        found.append("--insecure-skip-tls-verify")
    return found


def _dest(flag: str) -> str:
    return "of_kubectl_" + flag.strip("-").replace("-", "_") if flag != "--server" else "server"


def run_on_cluster(
    given: argparse.Namespace, terminal: "Terminal", draw: "Callable[[ClusterLists], Entries]"
) -> int:
    """Show an answer about the cluster that the flags name; return its exit code."""
    with open_source(given) as cluster:
        if isinstance(cluster, KubectlProxy) and getattr(given, "watch", False):
            return show_changes(cluster, terminal, draw)
        return show(cluster, terminal, draw, has_gaps=given.output in {"table", "wide"})
