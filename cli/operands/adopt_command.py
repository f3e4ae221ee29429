"""`operands adopt`: its flags, what it says, and its exit status."""

# ruff: noqa: PLC0415  # what reads the cluster is imported when it is needed: --help stays quick

import argparse
from typing import TYPE_CHECKING, Final

from api.text import printable_lines
from cli.command_parser import PROGRAM, CommandLineError, CommandParser, print_error
from cli.exit_status import FAILED, OK, UNREADABLE
from manifests.constants import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cli.operands.operator_objects import OperatorInstallation
    from kube.client import KubeClient

_EPILOG: Final = """\
No pod restarts by it. The operator must not run meanwhile: while it does the command prints how to take it away and
keep the ClusterPolicy, and changes nothing.

Exit status: 0 all is handed over, or can be; 1 the operator runs, or DaemonSets of another namespace keep states from
starting; 2 the command line or the credentials cannot be used; 3 the cluster cannot be read or written.
docs/node-software.md explains each step."""
_HELD: Final = "its pods stay until the drivers of their nodes are upgraded"
_OFF: Final = "goes with its pods, since the ClusterPolicy switches {} off"
_DRIVER_HELD: Final = "it keeps name, selector and template, and its pods, until the driver changes"


def run_adopt(arguments: "Sequence[str]") -> int:
    """Run the command; return the process's exit status.

    Raises:
        CommandLineError: the command line or the credentials cannot be used.
    """
    flags = parser().parse_flags(arguments)
    import asyncio

    from kube.config.connection import BadConfigurationError
    from kube.errors import KubeError

    try:
        return asyncio.run(_adopt(flags))
    except BadConfigurationError as error:
        raise CommandLineError(str(error)) from error
    except KubeError as error:
        print_error(f"{error}. What is handed over already stays so: run the command again")
        return UNREADABLE


def parser() -> CommandParser:
    parser = CommandParser(
        "operands adopt",
        "Hand the DaemonSets and labels of NVIDIA's GPU Operator over to this control plane.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="say what becomes of each DaemonSet, and change nothing",
    )
    parser.add_argument(
        "--namespace",
        default=DEFAULT_NAMESPACE,
        metavar="NAME",
        help=f"of this control plane ({DEFAULT_NAMESPACE})",
    )
    parser.add_argument("--kubeconfig", metavar="FILE", help="credentials, as kubectl finds them")
    parser.add_argument("--context", help="context of the kubeconfig")
    return parser


async def _adopt(flags: argparse.Namespace) -> int:
    from http_edge.system_clock import SystemClock
    from kube.client import KubeClient
    from kube.config.discovery import load_configuration
    from telemetry.logs import configure_logs

    clock = SystemClock()
    configuration = await load_configuration(
        clock, kubeconfig=flags.kubeconfig, context=flags.context
    )
    configure_logs("error")
    async with KubeClient(configuration, clock, user_agent="gpu-control-plane-adopt") as client:
        return await adopt(client, flags.namespace, is_dry_run=flags.dry_run)


async def adopt(client: "KubeClient", namespace: str, *, is_dry_run: bool) -> int:
    """Say what becomes of what the operator made, and hand it over; return the process's exit status.

    Raises:
        KubeError: the cluster cannot be read or written.
    """
    from cli.operands.operator_objects import find_operator, hand_over

    found = await find_operator(client, namespace)
    if found is None:
        print_error("there is no ClusterPolicy: nothing says what the operator made")
        return FAILED
    print(printable_lines("\n".join(_report(found, is_dry_run=is_dry_run))))  # noqa: T201  # the command line
    if not (found.operators or is_dry_run):
        await hand_over(client, found)
    return FAILED if found.operators or found.elsewhere else OK


def _report(found: "OperatorInstallation", *, is_dry_run: bool) -> "Iterator[str]":
    """Yield the lines that the command prints."""
    from operands.nvidia.states.driver import NAME

    will = "would be " if is_dry_run or found.operators else ""
    sets = [item for item in found.objects if item.resource.kind == "DaemonSet"]
    for item in sets:
        text = _DRIVER_HELD if item.state == NAME else _HELD
        what = f"{will}taken over in place for {item.state}; {text}"
        yield f"{item.ref}: {_OFF.format(item.state) if item.is_off else what}"
    for item in found.elsewhere:
        yield (
            f"{item.ref}: {item.state} is not started beside it. Install the control plane into its namespace, or"
            " delete it: its pods end, and those of the state start"
        )
    yield (
        f"{len(found.objects) - len(sets)} other objects and the labels of {len(found.nodes)} nodes"
        f" {will or 'are '}handed over"
    )
    for namespace, name, release in found.operators:
        yield from (
            "",
            f"Deployment {namespace}/{name} runs, and puts back what another program changes. Take it away first:",
            f"  kubectl -n {namespace} scale deployment {name} --replicas=0",
            *_release_steps(namespace, release),
            f"  kubectl -n {namespace} delete deployment {name}",
            f"  {PROGRAM} operands adopt --namespace {namespace}",
        )


def _release_steps(namespace: str, release: str) -> "Iterator[str]":
    if not release:
        return
    yield f"  helm -n {namespace} get values {release} --all > gpu-operator-values.yaml"
    yield f"  kubectl -n {namespace} delete secrets -l owner=helm,name={release}"
    yield (
        "    # Helm forgets the release. `helm uninstall` would delete the ClusterPolicy, and with it every driver: it reads"
        " helm.sh/resource-policy from its record, not from the object"
    )
