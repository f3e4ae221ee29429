"""`kubectl gpu dump`: objects, Events and metrics in a file, without anything secret; every verb reads it with --from."""

from pathlib import Path
from typing import TYPE_CHECKING

from api.text import printable
from cli.command_parser import CommandParser
from kubectl_gpu.answer_forms import wrapped
from kubectl_gpu.dump.dumped_lists import collect
from kubectl_gpu.dumped.dump_archive import write_dump
from kubectl_gpu.errors import UnreadableError
from kubectl_gpu.exit_codes import ANSWERED
from kubectl_gpu.terminal import PROGRAM
from kubectl_gpu.verb_flags import add_cluster_flags, open_cluster
from manifests.constants import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kubectl_gpu.dumped.dump_archive import DumpedCluster
    from kubectl_gpu.terminal import Terminal

_EPILOG = """\
It has the pools' objects, pods of pools, nodes with devices, the control plane's own objects and
Events, and the metrics of its leader. It has no Secret, environment, argument, command, content of
a volume, or annotation of others. Every verb reads it: kubectl gpu pools --from FILE"""


def run_dump(arguments: "Sequence[str]", terminal: "Terminal") -> int:
    """Write a dump.

    Raises:
        UnreadableError: the pools cannot be read, or the file cannot be written.
    """
    parser = CommandParser(
        "dump", "Write what the verbs read into a file.", epilog=_EPILOG, program=PROGRAM
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="the file (gpu-dump-TIME.tgz in this directory)"
    )
    parser.add_argument(
        "--install-namespace",
        default=DEFAULT_NAMESPACE,
        metavar="NAME",
        help=f"namespace of the control plane ({DEFAULT_NAMESPACE})",
    )
    add_cluster_flags(parser)
    given = parser.parse_flags(arguments)
    with open_cluster(given) as cluster:
        dump = collect(cluster, namespace=given.install_namespace)
    path = Path(given.output or f"gpu-dump-{dump.created_at:%Y%m%d-%H%M%S}.tgz")
    try:
        size = write_dump(path, dump)
    except OSError as error:
        raise UnreadableError(
            f"dump {path} cannot be written: {error.strerror}; name another file with -o"
        ) from error
    terminal.write(_text(path, size, dump, terminal=terminal))
    return ANSWERED


def _text(path: Path, size: int, dump: "DumpedCluster", *, terminal: "Terminal") -> str:
    lines = [f"{printable(str(path))}: {len(dump.files)} lists, {size / 1000:.0f} kB", ""]
    for name, why in sorted(dump.missing.items()):
        lines += wrapped(f"without {name}: {why}", terminal, hang="  ")
    lines += wrapped(
        f"It has names of nodes, namespaces and pods, and nothing secret. `kubectl gpu pools --from {path}` reads it.",
        terminal,
    )
    return "".join(f"{line}\n" for line in lines if line)
