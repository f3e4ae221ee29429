"""The command line: serve, render, demo and agent.

gpu-control-plane serve [--settings FILE] [--show-settings] [--SECTION.SETTING VALUE ...]
gpu-control-plane render crds|webhooks|rbac|policy|scheduler-config|alerts|examples [...]
gpu-control-plane demo
gpu-control-plane agent --node NODE --roles inventory,health,mig,device-plugin [...]

Flags have one style: words joined by hyphens, as `--hand-out`, behind the section of a setting, as
`--device-plugin.image`. `serve` also accepts a setting as files spell it, `--device_plugin.image`.
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop
import yaml

from cli import agent as agent_command
from cli.render import RenderTarget, render_target
from server.controllers.settings import check_images
from server.settings import BadSettingsError, load_settings
from telemetry.logs import configure_logs

if TYPE_CHECKING:
    from collections.abc import Sequence

OK, FAILED, MISUSED = 0, 1, 2


def run(arguments: "Sequence[str]") -> int:
    parser = _build_parser()
    known, rest = parser.parse_known_args(arguments)
    if known.command != "serve" and rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    try:
        match known.command:
            case "serve":
                return _serve(known, rest)
            case "render":
                return _render(known)
            case "demo":
                return _demo(known)
            case "agent":
                return agent_command.run(known)
            case _:
                parser.print_help()
                return MISUSED
    except BadSettingsError as error:
        _complain(error)
        return MISUSED
    except KeyboardInterrupt:
        return FAILED


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpu-control-plane", description="GPU pools for Kubernetes.", allow_abbrev=False
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    serve = commands.add_parser(
        "serve",
        help="run the server; every setting is also a flag, e.g. --device-plugin.image IMAGE",
        epilog="Every setting that --show-settings prints is also a flag (--device-plugin.image IMAGE) and "
        "an environment variable (GPU_CONTROL_PLANE_DEVICE_PLUGIN__IMAGE=IMAGE).",
        allow_abbrev=False,
    )
    serve.add_argument("--settings", type=Path, metavar="FILE", help="YAML file with settings")
    serve.add_argument(
        "--show-settings", action="store_true", help="print the settings in force and exit"
    )
    render = commands.add_parser("render", help="print manifests as YAML", allow_abbrev=False)
    render.add_argument("target", choices=[target.value for target in RenderTarget])
    render.add_argument(
        "--settings",
        type=Path,
        metavar="FILE",
        help="the server's settings: names, and images that the policy holds its DaemonSets to",
    )
    render.add_argument("--namespace", help="namespace of the server (gpu-control-plane)")
    render.add_argument(
        "--url", help="webhooks and extender at this base URL instead of the Service"
    )
    render.add_argument(
        "--ca-file", type=Path, help="CA of the server, put in as caBundle or caData"
    )
    render.add_argument(
        "--client-cert", type=Path, help="scheduler-config: client certificate file"
    )
    render.add_argument("--client-key", type=Path, help="scheduler-config: its key file")
    render.add_argument(
        "--kubeconfig", type=Path, help="scheduler-config: kubeconfig of the scheduler"
    )
    render.add_argument(
        "--resource",
        action="append",
        help="scheduler-config: print the extender for the cluster's own scheduler instead, for the"
        " resource of each pool, e.g. gpu.deckhouse.io/train",
    )
    render.add_argument(
        "--user",
        action="append",
        help="policy: user that may write our annotations (the server's service account)",
    )
    render.add_argument("--lease", help="policy: the server's Lease (gpu-control-plane)")
    demo = commands.add_parser(
        "demo", help="show the main job on an in-memory cluster", allow_abbrev=False
    )
    demo.add_argument("--keep-logs", type=Path, metavar="FILE", help="write the server's log there")
    agent = commands.add_parser(
        "agent",
        help="on a GPU node: discover devices, watch their health, partition them, offer them to kubelet",
        allow_abbrev=False,
    )
    agent_command.add_arguments(agent)
    return parser


def _serve(known: argparse.Namespace, flags: "Sequence[str]") -> int:
    settings = load_settings([_as_setting(flag) for flag in flags], known.settings)
    if known.show_settings:
        yaml.safe_dump(settings.model_dump(mode="json"), sys.stdout, sort_keys=False)
        return OK
    check_images(settings)
    logs = configure_logs(settings.log_level)
    # --show-settings and render stay quick: the server's imports cost a second.
    from kube.config.connection import BadConfigurationError  # noqa: PLC0415
    from server.http.listener import ListenError  # noqa: PLC0415
    from server.process import serve  # noqa: PLC0415

    try:
        uvloop.run(serve(settings, logs))
    except BadConfigurationError as error:
        raise BadSettingsError(str(error)) from error
    except ListenError as error:
        _complain(error)
        return FAILED
    except ExceptionGroup:
        # Each failed task has logged itself.
        return FAILED
    return OK


def _complain(error: Exception | str) -> None:
    print(f"gpu-control-plane: {error}", file=sys.stderr)  # noqa: T201  # the command line


def _as_setting(argument: str) -> str:
    """Spell a flag as its setting: `--device-plugin.image=x-y` is `--device_plugin.image=x-y`."""
    if not argument.startswith("--"):
        return argument
    name, equals, value = argument.removeprefix("--").partition("=")
    return f"--{name.replace('-', '_')}{equals}{value}"


def _render(known: argparse.Namespace) -> int:
    sys.stdout.write(render_target(RenderTarget(known.target), known))
    return OK


def _demo(known: argparse.Namespace) -> int:
    try:
        from demo.main import run_demo  # noqa: PLC0415  # imports the simulator
    except ModuleNotFoundError as error:
        if error.name not in {"demo", "demo.main"}:
            raise
        _complain(
            "the demo is part of the source checkout, not of this installation: `make demo` runs it there"
        )
        return MISUSED
    configure_logs("error")
    return uvloop.run(run_demo(known.keep_logs))
