"""`operands plan`: its flags, and its exit status."""

# ruff: noqa: PLC0415  # what builds states is imported when it is needed: --help stays quick

import argparse
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from api.text import printable_json, printable_lines
from cli.command_parser import HELP, PROGRAM, CommandLineError, CommandParser, no_such, print_error
from cli.exit_status import FAILED, OK, UNREADABLE
from manifests.constants import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from operands.nvidia.operands_plan import OperandPlan

_PLAN: Final = "plan"
_ADOPT: Final = "adopt"
_FORMS: Final = ("table", "wide", "json", "yaml")
_VARIABLE: Final = re.compile(r"[A-Z][A-Z0-9_]*_IMAGE")
_EPILOG: Final = f"""\
No cluster is asked. Images that a ClusterPolicy does not name are those of --image, or of this process's environment,
where the server's setting node_software.images has them in a cluster.

  kubectl get clusterpolicies,nvidiadrivers -o yaml > software.yaml
  kubectl get nodes -o yaml > nodes.yaml
  {PROGRAM} operands plan -f software.yaml --nodes nodes.yaml

Exit status: 0 all states can be built; 1 one cannot, or NVIDIADrivers contradict each other; 2 the command line cannot be
used; 3 a file cannot be read, or has an object that the API server would refuse.
docs/node-software.md explains states and reasons. `{PROGRAM} operands adopt` takes over from NVIDIA's GPU Operator."""


def run_operands(arguments: "Sequence[str]") -> int:
    """Run the command; return the process's exit status.

    Raises:
        CommandLineError: the command line cannot be used.
    """
    action, *remaining = arguments or [""]
    if action in {"", *HELP}:
        _parser().print_help()
        if not action:
            raise CommandLineError(f"say what to do: `{PROGRAM} operands {_PLAN}` or `{_ADOPT}`")
        return OK
    if action == _ADOPT:
        from cli.operands.adopt_command import run_adopt

        return run_adopt(remaining)
    if action != _PLAN:
        names = (_PLAN, _ADOPT)
        raise no_such("action of operands", action, names, listed_by=f"{PROGRAM} operands -h")
    return _run_plan(_parser().parse_flags(remaining))


def _parser() -> CommandParser:
    parser = CommandParser(
        f"operands {_PLAN}",
        "Say what a ClusterPolicy and NVIDIADrivers bring to each node, and why not more; change nothing.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "-f",
        "--filename",
        type=Path,
        action="append",
        required=True,
        metavar="FILE",
        help="ClusterPolicy, NVIDIADrivers, and ConfigMaps that they name; - is standard input; repeatable",
    )
    parser.add_argument(
        "--nodes",
        type=Path,
        required=True,
        metavar="FILE",
        help="nodes, as `kubectl get nodes -o yaml` shows them; - is standard input",
    )
    parser.add_argument(
        "-o",
        "--output",
        choices=_FORMS,
        default=_FORMS[0],
        help="form of the plan; a table has nodes that get the same together, and wide each by itself (table)",
    )
    parser.add_argument(
        "--image",
        type=_image,
        action="append",
        default=[],
        metavar="VARIABLE=IMAGE",
        help="image of an operand for which no object names one, such as DRIVER_IMAGE=…; repeatable",
    )
    parser.add_argument(
        "--namespace",
        default=DEFAULT_NAMESPACE,
        metavar="NAME",
        help=f"of the operands ({DEFAULT_NAMESPACE})",
    )
    return parser


def _run_plan(flags: argparse.Namespace) -> int:
    from cli.simulation.errors import BadInputError

    try:
        plan = _plan(flags, environment={**_images_of(os.environ), **dict(flags.image)})
    except BadInputError as error:
        print_error(error)
        return UNREADABLE
    _write(plan, flags.output)
    return FAILED if plan.faults else OK


def _plan(flags: argparse.Namespace, *, environment: "Mapping[str, str]") -> "OperandPlan":
    from cli.operands.policy_files import STANDARD_INPUT, read_nodes, read_policies
    from operands.nvidia.operands_plan import OperandSources, plan_operands

    files = [
        STANDARD_INPUT if str(item) == "-" else item for item in (*flags.filename, flags.nodes)
    ]
    if files.count(STANDARD_INPUT) > 1:
        raise CommandLineError("only one of the files can be standard input")
    found = read_policies(files[:-1])
    return plan_operands(
        OperandSources(
            policies=found.policies,
            drivers=found.drivers,
            nodes=read_nodes(files[-1]),
            namespace=flags.namespace,
            environment=environment,
            config_keys=found.config_keys,
        )
    )


def _images_of(environment: "Mapping[str, str]") -> dict[str, str]:
    return {name: value for name, value in environment.items() if _VARIABLE.fullmatch(name)}


def _write(plan: "OperandPlan", form: str) -> None:
    from cli.operands.plan_text import data_of, text_of

    if form in {"table", "wide"}:
        text = text_of(plan, is_wide=form == "wide")
    elif form == "json":
        import msgspec

        text = (
            printable_json(msgspec.json.format(msgspec.json.encode(data_of(plan))).decode()) + "\n"
        )
    else:
        import yaml

        text = yaml.safe_dump(data_of(plan), sort_keys=False, width=100)
    print(printable_lines(text), end="")  # noqa: T201  # the command line


def _image(text: str) -> tuple[str, str]:
    name, separator, image = text.partition("=")
    if not (separator and image and _VARIABLE.fullmatch(name)):
        raise argparse.ArgumentTypeError(
            f"{text!r}: a variable and an image, such as DRIVER_IMAGE=…"
        )
    return name, image
