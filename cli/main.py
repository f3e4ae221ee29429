"""The command line: one module for each command, imported when the command is given.

gpu-control-plane serve [--settings FILE] [--show-settings] [--SECTION.SETTING VALUE ...]
gpu-control-plane render TARGET [...]
gpu-control-plane console [--listen ADDRESS:PORT] [--tls-certificate FILE --tls-key FILE | --plain-http] [...]
gpu-control-plane demo
gpu-control-plane agent --node NODE --roles inventory,health,mig,device-plugin [...]
gpu-control-plane validate STEP [--wait] [...]
gpu-control-plane simulate --pod FILE | --workload FILE [--cluster PATH ...] [...]
gpu-control-plane operands plan -f FILE --nodes FILE [-o table|wide|json|yaml] [...]
gpu-control-plane operands adopt [--dry-run] [...]
gpu-control-plane cache pack DIR --image REF [--sign-key FILE] [--output PATH] [...]
gpu-control-plane cache sign REF --key FILE [...]
gpu-control-plane cache verify REF --key FILE | --identity SUBJECT ISSUER --trust-root FILE [...]
gpu-control-plane cache example REGISTRY [--sign-key FILE] [...]
gpu-control-plane uninstall [--force] [--delete-crds] [--dry-run] [...]

Flags have one style: words joined by hyphens, as `--hand-out`, behind the section of a setting, as
`--device-plugin.image`. `serve` also accepts a setting as files spell it, `--device_plugin.image`.
"""

# ruff: noqa: PLC0415  # modules of one command are imported when it runs

from typing import TYPE_CHECKING, Final

from api.version import REVISION, VERSION
from cli.command_parser import HELP, PROGRAM, CommandLineError, no_such, print_error
from cli.exit_status import FAILED, MISUSED, OK

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS: Final = {
    "serve": "run the server; every setting is also a flag, e.g. --device-plugin.image IMAGE",
    "render": "print manifests as YAML",
    "console": "serve the page that shows pools, devices and pods that wait",
    "demo": "show the main job on an in-memory cluster",
    "agent": "on a GPU node: discover devices, watch their health, partition them, offer them to kubelet",
    "validate": "on a GPU node: check a part of its software (driver, toolkit, CUDA), or wait for it",
    "simulate": "say what would become of a pod or a workload, and change nothing",
    "operands": "say what a ClusterPolicy would bring to each node, or take over from the GPU Operator",
    "cache": "pack a directory of compiled kernels into an image, sign it, verify it",
    "uninstall": "remove the control plane from a cluster",
}
"""Command -> what it does."""
_VERSION: Final = "--version"


def run(arguments: "Sequence[str]") -> int:
    """Run a command; return the process's exit status."""
    command, *remaining = arguments or [""]
    if command in HELP:
        _print(_overview())
        return OK
    if command == _VERSION:
        _print(f"{PROGRAM} {VERSION} ({REVISION})\n")
        return OK
    if not command:
        _print(_overview())
        return MISUSED
    try:
        return _run_command(command, remaining)
    except CommandLineError as error:
        print_error(error)
        return MISUSED
    except KeyboardInterrupt:
        return FAILED


def _run_command(command: str, arguments: "Sequence[str]") -> int:  # noqa: C901, PLR0912  # a case for each command
    """Run a command, whose module is imported here: --help and --version stay quick, and agents small."""
    match command:
        case "serve":
            from cli.serve import run_serve as run_it
        case "render":
            from cli.render import run_render as run_it
        case "console":
            from cli.console import run_console_command as run_it
        case "demo":
            from cli.demonstration import run_demonstration as run_it
        case "agent":
            from cli.agent import run_agent_command as run_it
        case "validate":
            from cli.node_validation import run_validate as run_it
        case "simulate":
            from cli.simulate import run_simulate as run_it
        case "operands":
            from cli.operands.plan_command import run_operands as run_it
        case "cache":
            from cli.cache import run_cache as run_it
        case "uninstall":
            from cli.uninstall.uninstall_command import run_uninstall as run_it
        case _:
            kind = "flag" if command.startswith("-") else "command"
            names = (*COMMANDS, *HELP, _VERSION)
            raise no_such(kind, command, names, listed_by=f"{PROGRAM} --help")
    return run_it(arguments)


def _overview() -> str:
    width = max(map(len, COMMANDS)) + 2
    lines = "".join(f"  {name:<{width}}{text}\n" for name, text in COMMANDS.items())
    return (
        f"usage: {PROGRAM} COMMAND [...]\n\nGPU pools for Kubernetes.\n\n{lines}\n"
        f"  -h, --help  show this text, or that of a command: {PROGRAM} COMMAND --help\n"
        f"  --version   show version and revision\n"
    )


def _print(text: str) -> None:
    print(text, end="")  # noqa: T201  # the command line
