"""The command `agent`: its flags and its exit status. `agent.main`, which imports gRPC, runs it."""

import argparse
import sys
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import uvloop

from agent.settings import AgentRole, AgentSettings
from api.nodefiles.poolconfig import HandOut
from manifests.constants import DEFAULT_NAMESPACE
from server.open_files import raise_limit
from telemetry.logs import configure_logs

if TYPE_CHECKING:
    from collections.abc import Sequence

OK, FAILED, MISUSED = 0, 1, 2

_ROLES: Final = ",".join(role.value for role in AgentRole)


def add_arguments(agent: argparse.ArgumentParser) -> None:
    """Add the flags; one that is left out has the default of `AgentSettings`."""
    agent.add_argument("--node", required=True, help="name of the node of this process")
    agent.add_argument(
        "--roles", type=_roles, required=True, help=f"roles, separated by commas: {_ROLES}"
    )
    agent.add_argument(
        "--namespace",
        default=DEFAULT_NAMESPACE,
        help=f"namespace of the control plane ({DEFAULT_NAMESPACE})",
    )
    agent.add_argument(
        "--hand-out",
        type=HandOut,
        choices=tuple(HandOut),
        metavar="|".join(one.value for one in HandOut),
        help="how containers receive their devices (CDI)",
    )
    agent.add_argument("--cdi-kind", metavar="KIND", help=f"of CDI names ({_default('cdi_kind')})")
    agent.add_argument("--pool", help="pool of the device list --config, for reports of problems")
    agent.add_argument(
        "--ignored-xids",
        type=_xids,
        metavar="CODE,…",
        help="Xids that are no fault of a device, in place of the default ones; empty: all are faults",
    )
    for name, text in (
        ("config", "device list of one pool; without it the agent serves all pools of the node"),
        ("plugins-directory", "kubelet's directory of device plugins"),
        ("pod-resources-directory", "kubelet's directory with the socket of PodResources"),
        ("run-directory", "files that the agents of a node share"),
        ("cdi-directory", "the runtime's directory of CDI specifications"),
        ("driver-root", "mount point of the node's root, for the driver's libraries"),
        ("dev-root", "directory of the node's device files"),
        ("sysfs", "the kernel's sysfs, for the PCI bus"),
        ("procfs", "the kernel's procfs, for the driver's capabilities"),
        ("nvml-library", "libnvidia-ml.so.1; without it the one under the driver's root"),
        ("kubeconfig", "credentials; without it the pod's service account"),
    ):
        default = _default(name.replace("-", "_"))
        shown = f"{text} ({default})" if default else text
        agent.add_argument(f"--{name}", type=Path, metavar="PATH", help=shown)
    agent.add_argument("--host", help=f"address of probes and metrics ({_default('host')})")
    agent.add_argument("--port", type=int, help=f"port of probes and metrics ({_default('port')})")


def settings_of(known: argparse.Namespace) -> AgentSettings:
    """Return the settings.

    Raises:
        ValueError: the flags do not go together; the text says why.
    """
    given: dict[str, Any] = {
        one.name: value
        for one in fields(AgentSettings)
        if (value := getattr(known, one.name, None)) is not None
    }
    return AgentSettings(**given)


def run_alone(arguments: "Sequence[str]") -> int:
    """Run the command as `cli.main` does, without the imports of the other commands: 18 MiB on every node."""
    parser = argparse.ArgumentParser(prog="gpu-control-plane agent", allow_abbrev=False)
    add_arguments(parser)
    try:
        return run(parser.parse_args(arguments))
    except KeyboardInterrupt:
        return FAILED


def run(known: argparse.Namespace) -> int:
    """Run the agent until it is told to stop; return the process's exit status."""
    try:
        settings = settings_of(known)
    except ValueError as error:
        _complain(error)
        return MISUSED
    configure_logs("info")
    from agent.errors import AgentUnusableError  # noqa: PLC0415
    from agent.main import run_agent  # noqa: PLC0415  # imports gRPC
    from server.system_clock import SystemClock  # noqa: PLC0415

    raise_limit()
    try:
        uvloop.run(run_agent(settings, SystemClock()))
    except AgentUnusableError as error:
        _complain(error)
        return MISUSED
    except (OSError, ExceptionGroup) as error:
        _complain(error)
        return FAILED
    return OK


def _complain(error: Exception) -> None:
    print(f"gpu-control-plane: {error}", file=sys.stderr)  # noqa: T201  # the command line


def _roles(text: str) -> frozenset[AgentRole]:
    try:
        return frozenset(AgentRole(part.strip()) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: choose among {_ROLES}") from None


def _xids(text: str) -> frozenset[int]:
    try:
        return frozenset(int(part) for part in text.split(",")) if text.strip() else frozenset()
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: Xids are numbers, such as 13,31") from None


def _default(name: str) -> object:
    value = next(one.default for one in fields(AgentSettings) if one.name == name)
    return "" if value is MISSING or value is None else value
