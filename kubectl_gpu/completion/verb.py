"""`kubectl gpu __complete`: lines of words, and as the last one the directive of cobra.

kubectl 1.26 or newer runs `kubectl_complete-gpu` with the words behind `kubectl gpu`, and prints what that prints.
Whatever is wrong, nothing but the directive is printed: a shell shows complaints in the middle of the line.
"""

import contextlib
import io
from typing import TYPE_CHECKING, Final

from api.foreign.core import Pod
from api.meta import PartialObjectMetadata
from api.names import POOL_LABEL
from api.text import printable
from cli.command_parser import CommandLineError, CommandParser
from kube.resources import GPU_DEVICES, GPU_NODE_INVENTORIES, GPU_POOLS, NAMESPACES, PODS
from kubectl_gpu import verb_flags
from kubectl_gpu.cluster_lists import read_list
from kubectl_gpu.cluster_source import ListQuery
from kubectl_gpu.completion.completed_words import Words, complete, flags_in
from kubectl_gpu.errors import UnreadableError
from kubectl_gpu.exit_codes import ANSWERED
from kubectl_gpu.terminal import PROGRAM, Terminal

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence

    from kubectl_gpu.cluster_source import ReadableSource
    from kubectl_gpu.completion.completed_words import FlagWords

    RunVerb = Callable[[Sequence[str], Terminal], int]

_NO_FILES: Final = ":4"
_FILES: Final = ":0"
_RESOURCES: Final = {
    Words.POOLS: GPU_POOLS,
    Words.DEVICES: GPU_DEVICES,
    # It has the name of its node, and is there for nodes with devices alone.
    Words.NODES: GPU_NODE_INVENTORIES,
    Words.NAMESPACES: NAMESPACES,
}


def run_completion(
    words: "Sequence[str]",
    terminal: Terminal,
    *,
    texts: "Mapping[str, str]",
    load: "Callable[[str], RunVerb]",
) -> int:
    """Print what may stand in place of the last word.

    Args:
        words: behind `kubectl gpu`.
        terminal: where it is printed.
        texts: verb -> description.
        load: returns a verb's function.
    """
    verb = next((word for word in words[:-1] if word in texts), None)
    flags = {} if verb is None else {verb: _flags_of(load(verb), terminal)}
    found = complete(words, texts, flags)
    last = words[-1] if words else ""
    lines = [f"{word}\t{text}" if text else word for word, text in sorted(found.words.items())]
    if found.ask not in {Words.NONE, Words.FILES}:
        lines += [name for name in _names(found.ask, words[:-1]) if name.startswith(last)]
    directive = _FILES if found.ask is Words.FILES else _NO_FILES
    terminal.write("".join(f"{line}\n" for line in (*map(_one_line, lines), directive)))
    return ANSWERED


def _flags_of(run: "RunVerb", terminal: Terminal) -> "tuple[FlagWords, ...]":
    """Return the flags of a verb: those that its help shows."""
    printed = io.StringIO()
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(printed):
        run(["--help"], Terminal(printed, terminal.err))
    return flags_in(printed.getvalue())


def _names(kind: Words, before: "Sequence[str]") -> "list[str]":
    """Return names of the cluster that the words name; none where it cannot be read."""
    parser = CommandParser("__complete", "", program=PROGRAM)
    verb_flags.add_dump_flag(parser)
    verb_flags.add_cluster_flags(parser)
    verb_flags.add_namespace_flags(parser)
    try:
        given = _parsed(parser, before)
        with verb_flags.open_source(given) as source:
            return sorted(_listed(kind, source, given))
    except (CommandLineError, UnreadableError):
        return []


def _parsed(parser: CommandParser, words: "Sequence[str]") -> "argparse.Namespace":
    """Parse the words; without the last one where that is a flag that lacks its value, which is being written."""
    try:
        return parser.parse_known_args(list(words))[0]
    except CommandLineError:
        return parser.parse_known_args(list(words[:-1]))[0]


def _listed(kind: Words, source: "ReadableSource", given: "argparse.Namespace") -> "Sequence[str]":
    if kind is Words.PODS:
        namespace = None if given.all_namespaces else source.namespace()
        query = ListQuery(PODS, namespace, POOL_LABEL)
        return read_list(
            source, query, Pod, keep=lambda pod: None if pod.has_ended else pod.metadata.name
        ).items
    query = ListQuery(_RESOURCES[kind])
    return read_list(
        source, query, PartialObjectMetadata, keep=lambda item: item.metadata.name
    ).items


def _one_line(line: str) -> str:
    return "\t".join(map(printable, line.split("\t")))
