"""The command `agent`: its flags and its exit status. `agent.main`, which imports gRPC, runs it."""

# ruff: noqa: PLC0415  # modules of one command are imported when it runs

import argparse
from dataclasses import MISSING, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from agent.settings import AgentRole, AgentSettings
from agent.validator.steps import OF_THE_NODE
from api.nodefiles.poolconfig import DeviceInjection
from api.quantity import parse_decimal
from cli.command_parser import CommandLineError, CommandParser, print_error
from cli.exit_status import FAILED, OK
from inventory.health.recovery import RecoveryAction
from manifests.constants import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent.driver.pci import PciDevice

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
        type=_hand_out,
        metavar="|".join(item.value for item in DeviceInjection),
        help="how containers receive their devices (CDI)",
    )
    agent.add_argument("--cdi-kind", metavar="KIND", help=f"of CDI names ({_default('cdi_kind')})")
    agent.add_argument("--pool", help="pool of the device list --config, for reports of problems")
    agent.add_argument(
        "--xid-actions",
        type=_xid_actions,
        metavar="CODE=ACTION,…",
        help="what a device needs after an Xid, such as 94=GPUReset,74=None, in place of the driver's recovery action and"
        " of NVIDIA's catalog",
    )
    agent.add_argument(
        "--driver-libraries",
        metavar="PATH",
        help="directory with the driver's libraries under its root, searched before the usual ones",
    )
    agent.add_argument(
        "--steps",
        type=_steps,
        metavar="STEP,…",
        help="steps that the validator keeps true (driver,toolkit,cuda)",
    )
    agent.add_argument(
        "--caches-quota",
        type=_bytes,
        metavar="QUANTITY",
        help="bytes that kernel caches may take of the node's disk, such as 100Gi (no limit)",
    )
    agent.add_argument(
        "--caches-grace",
        type=float,
        metavar="SECONDS",
        help="how long a kernel cache stays that nothing needs any more"
        f" ({_default('caches_grace')})",
    )
    agent.add_argument(
        "--registries-plain-http",
        type=_names,
        metavar="HOST:PORT,…",
        help="registries that are asked without TLS",
    )
    agent.add_argument(
        "--registries-private",
        type=_names,
        metavar="HOST:PORT,…",
        help="registries, token servers and blob stores whose addresses need not be public",
    )
    agent.add_argument(
        "--cache-pull-secrets",
        type=_names,
        metavar="NAME,…",
        help="Secrets of our namespace that ClusterGKMCaches may name",
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
        ("validations-directory", "the validator's files"),
        ("termination-log", "kubelet's file for the cause of the validator's failure"),
        ("caches-directory", "store of extracted kernel caches"),
        ("kubelet-directory", "kubelet's root, at its path on the node"),
        ("registries-ca-file", "authorities of registries, instead of the system's"),
        ("kubeconfig", "credentials; without it the pod's service account"),
    ):
        default = _default(name.replace("-", "_"))
        printed = f"{text} ({default})" if default else text
        agent.add_argument(f"--{name}", type=Path, metavar="PATH", help=printed)
    agent.add_argument("--host", help=f"address of probes and metrics ({_default('host')})")
    agent.add_argument("--port", type=int, help=f"port of probes and metrics ({_default('port')})")


def settings_of(flags: argparse.Namespace) -> AgentSettings:
    """Return the settings.

    Raises:
        ValueError: the flags do not go together; the text says why.
    """
    given: dict[str, Any] = {
        field.name: value
        for field in fields(AgentSettings)
        if (value := getattr(flags, field.name, None)) is not None
    }
    return AgentSettings(**given)


def run_agent_command(arguments: "Sequence[str]") -> int:
    """Run the agent until it is told to stop; return the process's exit status.

    Raises:
        CommandLineError: flags or configuration cannot be used.
    """
    parser = CommandParser("agent", "The agent of a GPU node.")
    add_arguments(parser)
    try:
        settings = settings_of(parser.parse_flags(arguments))
    except ValueError as error:
        raise CommandLineError(str(error)) from error
    return _run(settings)


def _run(settings: AgentSettings) -> int:
    # Imported late, so that --help is quick. Nothing of the other commands is: 18 MiB on every node.
    if settings.roles == {AgentRole.DETECT}:
        _run_detector(settings)
    import uvloop

    from agent.errors import AgentUnusableError
    from agent.main import run_agent  # imports gRPC
    from http_edge.listening_sockets import ListenError
    from http_edge.open_files import raise_limit
    from http_edge.system_clock import SystemClock
    from telemetry.logs import configure_logs

    configure_logs("info")
    raise_limit()
    try:
        uvloop.run(run_agent(settings, SystemClock()))
    except AgentUnusableError as error:
        raise CommandLineError(str(error)) from error
    except (ListenError, OSError, ExceptionGroup) as error:
        print_error(error)
        return FAILED
    return OK


def _run_detector(settings: AgentSettings) -> NoReturn:
    from agent.detection.detector import run_detector

    def report(devices: "tuple[PciDevice, ...]") -> bool:
        # In a child: 40 MiB that the detector itself does not need.
        from agent.detection.report import report_devices
        from http_edge.system_clock import SystemClock

        return report_devices(settings, devices, SystemClock())

    run_detector(settings.sysfs, report)


def _roles(text: str) -> frozenset[AgentRole]:
    try:
        return frozenset(AgentRole(part.strip()) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: choose among {_ROLES}") from None


def _steps(text: str) -> tuple[str, ...]:
    names = {step.value for step in OF_THE_NODE}
    steps = tuple(part.strip() for part in text.split(","))
    if unknown := sorted(set(steps) - names):
        raise argparse.ArgumentTypeError(f"{unknown[0]!r}: choose among {', '.join(sorted(names))}")
    return steps


def _hand_out(text: str) -> DeviceInjection:
    try:
        return DeviceInjection(text)
    except ValueError:
        ways = ", ".join(item.value for item in DeviceInjection)
        raise argparse.ArgumentTypeError(f"{text!r}: choose among {ways}") from None


def _xid_actions(text: str) -> dict[int, RecoveryAction]:
    try:
        named = (item.split("=") for item in text.split(","))
        return {int(code): RecoveryAction(action.strip()) for code, action in named}
    except ValueError:
        names = ", ".join(action.value for action in RecoveryAction)
        raise argparse.ArgumentTypeError(
            f"{text!r}: actions of Xids are such as 94=GPUReset; choose among {names}"
        ) from None


def _names(text: str) -> frozenset[str]:
    return frozenset(part for item in text.split(",") if (part := item.strip()))


def _bytes(text: str) -> int:
    try:
        return int(parse_decimal(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _default(name: str) -> object:
    value = next(field.default for field in fields(AgentSettings) if field.name == name)
    return "" if value is MISSING or value is None else value
