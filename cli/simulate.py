"""The command `simulate`: its flags, and the question that they ask."""

# ruff: noqa: PLC0415  # what reads clusters is imported when it is needed: --help stays quick

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from api.text import printable_json, printable_lines
from cli.command_parser import CommandLineError, CommandParser, print_error
from cli.exit_status import FAILED, OK

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cli.simulation.cluster_objects import ClusterObjects
    from cli.simulation.snapshot import Snapshot
    from cli.simulation.workload.run import Scenario

_DEFAULT_INFLATE: Final = 1.3
_DEFAULT_SEED: Final = 42
_FORMS: Final = ("table", "json", "svg", "html")
_PICTURES: Final = frozenset({"svg", "html"})
_EPILOG: Final = """\
The cluster is that of the kubeconfig, or of --cluster. It is read and never written to.
docs/placement.md explains the answers, and the format of a workload."""


def run_simulate(arguments: "Sequence[str]") -> int:
    """Answer what-if questions; return the process's exit status.

    Raises:
        CommandLineError: the flags or credentials cannot be used.
    """
    flags = _parser().parse_flags(arguments)
    _check(flags)
    from cli.simulation.errors import BadInputError
    from telemetry.logs import configure_logs

    configure_logs("error")
    try:
        _write(_answer(flags) if flags.pod is not None else _simulated(flags), flags.file)
    except BadInputError as error:
        print_error(error)
        return FAILED
    return OK


def _parser() -> CommandParser:
    parser = CommandParser(
        "simulate",
        "Say what would become of a pod, or of a workload with several strategies; change nothing.",
        epilog=_EPILOG,
    )
    for flag, text in (
        ("--pod", "question: this Pod, or the pod template of an object such as a Job"),
        ("--workload", "question: pods in time (YAML), or the pod list of the openb trace (*.csv)"),
        (
            "--demand",
            "settings file of the server: its `demand` says which pods a pool without any expects",
        ),
        ("--file", "write the result there instead of to standard output"),
    ):
        parser.add_argument(flag, type=Path, metavar="FILE", help=text)
    parser.add_argument(
        "--cluster",
        type=Path,
        action="append",
        metavar="PATH",
        help="cluster: file or directory of objects as `kubectl get -o yaml` shows them; repeatable",
    )
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="cluster: credentials, as kubectl finds them"
    )
    parser.add_argument("--context", help="context of the kubeconfig")
    parser.add_argument(
        "--output", choices=_FORMS, default="table", help="form of the result (table)"
    )
    _add_flags_of_pods(parser)
    _add_flags_of_workloads(parser)
    return parser


def _add_flags_of_pods(parser: CommandParser) -> None:
    parser.add_argument(
        "--namespace", metavar="NAME", help="with --pod: where its file names none (default)"
    )
    parser.add_argument("--user", default="", metavar="NAME", help="creator of the pods")
    parser.add_argument(
        "--group",
        action="append",
        metavar="NAME",
        help="group of the pods' creator, for spec.access.groups; repeatable",
    )


def _add_flags_of_workloads(parser: CommandParser) -> None:
    parser.add_argument(
        "--strategy",
        action="append",
        metavar="NAME",
        help="with --workload: PoolSpec (default: each pool's own), LeastFragmentation, BinPack or Spread;"
        " repeat it to compare",
    )
    parser.add_argument(
        "--pool",
        metavar="NAME",
        help="with the openb trace: the pool that its pods ask (the only one)",
    )
    parser.add_argument(
        "--inflate",
        type=_share,
        metavar="SHARE",
        help="with the openb trace: draw pods until they ask for this share of the devices"
        f" ({_DEFAULT_INFLATE:g})",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=_DEFAULT_SEED,
        help=f"with --workload: of everything random ({_DEFAULT_SEED})",
    )
    parser.add_argument(
        "--trace-times",
        action="store_true",
        help="with the openb trace: pods arrive and end as they did, instead of in random order",
    )


def _check(flags: argparse.Namespace) -> None:
    """Refuse flags that contradict each other, or that the question has no use for.

    Raises:
        CommandLineError: they do.
    """
    if (flags.pod is None) == (flags.workload is None):
        raise CommandLineError("give either --pod FILE or --workload FILE")
    if flags.pod is not None:
        for flag in ("strategy", "inflate", "trace_times", "pool"):
            if getattr(flags, flag):
                raise CommandLineError(
                    f"--{flag.replace('_', '-')} goes with --workload, not --pod"
                )
        if flags.output in _PICTURES:
            raise CommandLineError(f"--output {flags.output} goes with --workload, not --pod")
        return
    if flags.trace_times and flags.inflate is not None:
        raise CommandLineError("--trace-times and --inflate contradict each other")
    if flags.pool and flags.workload.suffix != ".csv":
        raise CommandLineError("--pool goes with the openb trace")


def _answer(flags: argparse.Namespace) -> str:
    """Return the answer about one pod."""
    import msgspec

    from cli.simulation.answer_text import text_of
    from cli.simulation.pod_answer import answer_for
    from cli.simulation.pod_file import read_pod
    from cli.simulation.pod_scheduling import PodCreator

    asked = read_pod(flags.pod, namespace=flags.namespace)
    caller = PodCreator.of(asked, username=flags.user, groups=flags.group or ())
    answer = answer_for(asked, _snapshot_function(flags)(_objects(flags)), caller)
    if flags.output == "json":
        return printable_json(msgspec.json.format(msgspec.json.encode(answer)).decode()) + "\n"
    return text_of(answer)


def _simulated(flags: argparse.Namespace) -> str:
    """Return the report about a workload."""
    import msgspec

    from cli.simulation.workload import run, run_text
    from cli.simulation.workload.pool_run import POOL_STRATEGIES

    strategies = flags.strategy or POOL_STRATEGIES[:1]
    run.check_strategies(strategies, POOL_STRATEGIES)
    scenario = _scenario(flags)
    progress = _Progress() if sys.stderr.isatty() else None
    report = run.run(scenario, strategies, seed=flags.seed, progress=progress)
    forms: dict[str, Callable[[], str]] = {
        "table": lambda: run_text.text_of(report),
        "json": lambda: (
            printable_json(msgspec.json.format(msgspec.json.encode(report)).decode()) + "\n"
        ),
        "svg": lambda: run_text.svg_of(report),
        "html": lambda: run_text.html_of(report),
    }
    return forms[flags.output]()


def _scenario(flags: argparse.Namespace) -> "Scenario":
    from cli.simulation.workload import pool_run

    cluster = pool_run.PoolCluster(
        objects=_objects(flags),
        snapshot_of=_snapshot_function(flags),
        username=flags.user,
        groups=tuple(flags.group or ()),
    )
    if flags.workload.suffix != ".csv":
        return pool_run.workload_on_pools(cluster, flags.workload)
    return pool_run.trace_on_pools(
        cluster,
        flags.workload,
        pool=flags.pool,
        inflate=None if flags.trace_times else flags.inflate or _DEFAULT_INFLATE,
        seed=flags.seed,
    )


def _snapshot_function(flags: argparse.Namespace) -> "Callable[[ClusterObjects], Snapshot]":
    from cli.simulation.errors import BadInputError
    from cli.simulation.snapshot import take_snapshot
    from http_edge.system_clock import SystemClock
    from server.settings import BadSettingsError, DemandSettings, load_settings
    from server.usual_demand import recent_demands

    demand = DemandSettings()
    if flags.demand is not None:
        try:
            demand = load_settings((), flags.demand).demand
        except BadSettingsError as error:
            raise BadInputError(str(error)) from error
    return lambda objects: take_snapshot(
        objects, SystemClock().instant(), demands=recent_demands(demand)
    )


def _objects(flags: argparse.Namespace) -> "ClusterObjects":
    """Return the cluster's objects: from files, or by LISTs."""
    if flags.cluster:
        from cli.simulation.object_files import read_cluster

        return read_cluster(flags.cluster)
    import asyncio

    from cli.simulation.live_cluster import read_live_cluster
    from http_edge.system_clock import SystemClock
    from kube.config.connection import BadConfigurationError

    try:
        return asyncio.run(
            read_live_cluster(SystemClock(), kubeconfig=flags.kubeconfig, context=flags.context)
        )
    except BadConfigurationError as error:
        raise CommandLineError(f"{error}; or give the cluster's objects with --cluster") from error


class _Progress:
    """Shows on one line of the terminal how far a run is."""

    def __call__(self, strategy: str, arrived: int, total: int) -> None:
        end = "\n" if arrived == total else ""
        sys.stderr.write(f"\r{strategy}: {arrived} of {total} pods{end}")
        sys.stderr.flush()


def _write(result: str, file: Path | None) -> None:
    """Raises BadInputError where the file cannot be written."""
    if file is None:
        sys.stdout.write(printable_lines(result))
        return
    from cli.simulation.errors import BadInputError

    try:
        file.write_text(result, encoding="utf-8")
    except OSError as error:
        raise BadInputError(f"{file} cannot be written: {error.strerror}") from error


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share <= 100:
        raise argparse.ArgumentTypeError(f"{text!r}: a share of the devices, such as 1.3")
    return share
