"""`kubectl gpu whatif`: whether pods would be placed now, and where; nothing is written."""

import argparse
import dataclasses
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from api.clock import Instant
from api.names import RESOURCE_PREFIX
from api.text import listed, units
from cli.command_parser import CommandLineError, CommandParser
from cli.simulation.answer_text import text_of
from cli.simulation.answers import Answer
from cli.simulation.cluster_objects import LISTED, ClusterObjects
from cli.simulation.errors import BadInputError
from cli.simulation.object_files import read_objects
from cli.simulation.pod_file import pod_of_object, pods_of_object
from cli.simulation.pod_scheduling import PodCreator
from cli.simulation.snapshot import take_snapshot
from kubectl_gpu import answer_forms
from kubectl_gpu.cluster_lists import read_list
from kubectl_gpu.cluster_source import ListQuery
from kubectl_gpu.dumped.dump_source import DumpSource
from kubectl_gpu.errors import ForbiddenError, NotFoundError, UnreadableError
from kubectl_gpu.exit_codes import ANSWERED, NO
from kubectl_gpu.verb_flags import open_source, parse_verb, verb_parser
from kubectl_gpu.waiting.pool_reading import ONLY_POOLS
from kubectl_gpu.what_if.trial_pods import try_pods
from pool.demand import demand_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from cli.simulation.cluster_objects import ListedKind
    from cli.simulation.object_files import Object
    from cli.simulation.pod_file import NewPod
    from cli.simulation.snapshot import Snapshot
    from kubectl_gpu.cluster_source import ReadableSource
    from kubectl_gpu.terminal import Terminal
    from kubectl_gpu.what_if.trial_pods import TrialPlacements


def copy_of(source: "ReadableSource", *, cordoned: "Collection[str]" = ()) -> "Snapshot":
    """Read a cluster, and return its copy as if further nodes were cordoned.

    Raises:
        UnreadableError: pools or devices cannot be read, or there is no node of a name.
    """
    found = ClusterObjects(origin=source.origin)
    for kind in LISTED:
        _read(source, kind, found)
    if isinstance(source, DumpSource):
        found.are_pods_whole = False
        found.gaps.append(ONLY_POOLS)
    _cordon(found, cordoned)
    return take_snapshot(found, Instant(0.0, source.now()))


def _read(source: "ReadableSource", kind: "ListedKind", found: ClusterObjects) -> None:
    def keep(item: Any) -> object | None:  # noqa: ANN401  # of the kind's own type
        return kind.project(item)

    plural = kind.resource.plural
    try:
        listed = read_list(source, ListQuery(kind.resource), kind.item_type, keep=keep)
    except (ForbiddenError, NotFoundError) as error:
        if kind.is_needed:
            raise
        if kind.is_optional and isinstance(error, NotFoundError):
            return
        found.gaps.append(f"{error}: {kind.without}")
        return
    found.of(kind).extend(listed.items)
    if listed.undecodable:
        found.gaps.append(f"{listed.undecodable} {plural} cannot be decoded and are left out")


def _cordon(found: ClusterObjects, names: "Collection[str]") -> None:
    """Cordon nodes of the copy.

    Raises:
        UnreadableError: a node is not among those that were read.
    """
    missing = set(names) - {node.name for node in found.nodes}
    if missing:
        raise UnreadableError(
            f"there is no node {', '.join(sorted(missing))}, or nodes may not be listed;"
            " `kubectl gpu nodes` shows their names"
        )
    found.nodes = [
        dataclasses.replace(node, is_cordoned=True) if node.name in names else node
        for node in found.nodes
    ]


_MOST_PODS: Final = 10_000
_EPILOG: Final = """\
Pods are placed one after the other on a copy of the cluster, by the code that places them in the
server. --as and --as-group say who creates them, where a pool asks for that. Exit code 1 says that
a pod would not be placed."""
_COLUMNS: Final = (
    answer_forms.TableColumn("NODE"),
    answer_forms.TableColumn("PODS", is_number=True),
    answer_forms.TableColumn("UNITS", is_number=True),
)


@final
class PlacedTrial(answer_forms.Entry, frozen=True, kw_only=True):
    """A pod that would be placed."""

    pod: str
    node: str
    units: int
    devices: tuple[str, ...]


@final
class WhatIf(answer_forms.Document, frozen=True, kw_only=True):
    """Document of the verb `whatif`."""

    fits: bool
    """Whether every pod would be placed."""
    pods: int
    """How many were asked about."""
    placed: tuple[PlacedTrial, ...]
    answer: Answer | None = None
    """Answer about the first pod that would not be placed, or the last of all; as `gpu-control-plane simulate`
    answers."""


def run_what_if(arguments: "Sequence[str]", terminal: "Terminal") -> int:
    """Try pods; return NO where not all of them are placed.

    Raises:
        CommandLineError: flags or file cannot be used.
        UnreadableError: the cluster cannot be read.
    """
    given = _flags(arguments)
    items = _objects_of(given.filename) if given.filename is not None else None
    with open_source(given) as source:
        namespace = given.namespace or source.namespace()
        snapshot = copy_of(source, cordoned=given.cordon or ())
    if items is None:
        items = [_pod_of_pool(given, snapshot)]
    asked, count = _pods_of(items, where=given.filename or "the pod", namespace=namespace)
    caller = PodCreator.of(asked, username=given.of_kubectl_as or "", groups=given.as_group or ())
    count = given.times if given.times is not None else count
    if not count:
        raise CommandLineError("the object keeps no pod running: say how many with --times")
    try:
        trial = try_pods(asked, count, snapshot, caller=caller)
    except BadInputError as error:
        raise UnreadableError(str(error)) from error
    names = (f"pod/{item.ref}" for item in trial.placed)
    text = answer_forms.structured(_document(trial), names, form=given.output)
    terminal.write(text if text is not None else _text(trial, terminal))
    return ANSWERED if trial.fits else NO


def _flags(arguments: "Sequence[str]") -> argparse.Namespace:
    parser = verb_parser(
        "whatif", "Say whether pods would be placed now, and where.", epilog=_EPILOG
    )
    _add_flags(parser)
    given = parse_verb(parser, arguments)
    if (given.filename is None) == (given.pool is None):
        raise CommandLineError("give either -f FILE, or --pool POOL with --units N")
    if (given.pool is None) != (given.units is None):
        raise CommandLineError("--pool POOL and --units N go together")
    return given


def _add_flags(parser: CommandParser) -> None:
    parser.add_argument(
        "-f",
        "--filename",
        metavar="FILE",
        help="a Pod, or an object with a pod template, such as a Job, with as many pods as that"
        " runs at once; - is the standard input",
    )
    parser.add_argument("--pool", metavar="POOL", help="a pod with one container of this pool")
    parser.add_argument("--units", type=_count, metavar="N", help="units of the pool")
    parser.add_argument("--times", type=_count, metavar="K", help="that many equal pods")
    parser.add_argument(
        "--cordon", action="append", metavar="NODE", help="as if NODE were cordoned; repeatable"
    )
    parser.add_argument("-n", "--namespace", metavar="NAME", help="in place of the context's")


def _count(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= _MOST_PODS:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to {_MOST_PODS}")
    return int(text)


def _objects_of(filename: str) -> "list[Object]":
    """Return the objects of a file.

    Raises:
        CommandLineError: it cannot be read.
    """
    try:
        return list(read_objects(Path("/dev/stdin" if filename == "-" else filename)))
    except BadInputError as error:
        raise CommandLineError(str(error)) from error


def _pods_of(items: "list[Object]", *, where: str, namespace: str) -> "tuple[NewPod, int]":
    """Return the pod of the one object that has pods, and how many of it run at once.

    Raises:
        CommandLineError: there is no such object, there are several, or its pod asks for no pool.
    """
    found: list[tuple[NewPod, int]] = []
    try:
        for item in items:
            asked = pod_of_object(item, where=where, namespace=namespace)
            if asked is not None:
                found.append((asked, min(pods_of_object(item), _MOST_PODS)))
    except (AttributeError, BadInputError) as error:
        raise CommandLineError(str(error)) from error
    if len(found) != 1:
        objects = "no object" if not found else f"{len(found)} objects"
        raise CommandLineError(
            f"{where} has {objects} with pods; give one Pod, or one object with a pod template, such as a Job"
        )
    asked, count = found[0]
    if demand_of(asked.pod.spec, asked.namespace) is None:
        raise CommandLineError(
            f"pod {asked.ref} asks for no pool; a limit such as {RESOURCE_PREFIX}POOL: 1 does"
        )
    return asked, count


def _pod_of_pool(given: argparse.Namespace, snapshot: "Snapshot") -> "Object":
    """Return a pod with one container that asks for units of a pool.

    Raises:
        NotFoundError: there is no such pool.
        CommandLineError: the pool has several MIG profiles.
    """
    pool = snapshot.index.pool(given.pool)
    if pool is None:
        raise NotFoundError(f"there is no pool {given.pool}; `kubectl gpu pools` lists them")
    if pool.parts:
        names = listed(part.name for part in pool.parts)
        raise CommandLineError(f"pool {pool.name} has several MIG profiles: name one, as {names}")
    limits = {pool.resource: str(given.units)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "what-if"},
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]},
    }


def _document(trial: "TrialPlacements") -> WhatIf:
    return WhatIf(
        fits=trial.fits,
        pods=trial.requested,
        placed=tuple(
            PlacedTrial(
                pod=item.ref,
                node=item.placement.node,
                units=item.units,
                devices=tuple(device.name for device in item.placement.devices),
            )
            for item in trial.placed
        ),
        answer=trial.last_answer,
    )


def _text(trial: "TrialPlacements", terminal: "Terminal") -> str:
    answer = "" if trial.last_answer is None else _wrapped(text_of(trial.last_answer), terminal)
    if trial.requested == 1:
        return answer
    lines = [f"{len(trial.placed)} of {trial.requested} pods would be placed now"]
    if trial.placed:
        lines[0] += f", each with {units(trial.placed[0].units)}"
    pods = Counter(item.placement.node for item in trial.placed)
    table = answer_forms.Table(_COLUMNS)
    for node, count in sorted(pods.items()):
        table.rows.append((node, str(count), str(count * trial.placed[0].units)))
    printed = (
        answer_forms.table_text(table, terminal, answer_forms.TableLayout(indent="  "))
        if trial.placed
        else ""
    )
    if trial.fits and trial.last_answer is not None:
        gaps = "".join(f"partial: {gap}\n" for gap in trial.last_answer.partial)
        answer = _wrapped(gaps, terminal)
    return f"{lines[0]}\n{printed}{answer}"


def _wrapped(text: str, terminal: "Terminal") -> str:
    lines: list[str] = []
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip()))
        lines += answer_forms.wrapped(line.lstrip(), terminal, indent=indent, hang="  ")
    return "".join(f"{line}\n" for line in lines)
