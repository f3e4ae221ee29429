"""The command `serve`: its flags, its help, and its exit status."""

import asyncio
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Final

import uvloop
import yaml

from cli.command_parser import CommandLineError, CommandParser, print_error
from cli.exit_status import FAILED, OK
from server.configuration.config_source import (
    INSTALLATION_FLAG,
    ConfigSource,
    installation_values,
)
from server.controllers.settings import check_images
from server.settings import BadSettingsError, Settings, load_settings, settings_fields
from telemetry.logs import configure_logs

if TYPE_CHECKING:
    from collections.abc import Sequence

_PRECEDENCE: Final = """\
Settings come from flags, environment variables, the settings file and defaults, in this order of precedence:
  --listen.port 9443  GPU_CONTROL_PLANE_LISTEN__PORT=9443  listen: {port: 9443}
In flags and variables, commas separate the items of a list, and key=value the pairs of a mapping.
"""
_INDENTED: Final = textwrap.TextWrapper(
    width=100, initial_indent=" " * 6, subsequent_indent=" " * 6, break_on_hyphens=False
)


def run_serve(arguments: "Sequence[str]") -> int:
    """Run the server until it is told to stop; return the process's exit status.

    Raises:
        CommandLineError: a setting cannot be used, or a file that one names.
    """
    parsed, flags = _parser().parse_known_args(arguments)
    try:
        if parsed.installation is None:
            settings, source = load_settings(flags, parsed.settings), None
        else:
            values = installation_values(parsed.installation)
            source = ConfigSource(installation=values, arguments=flags)
            settings = source.initial
        if parsed.show_settings:
            return _show(settings, source)
        check_images(settings)
        return _serve(settings, source)
    except BadSettingsError as error:
        raise CommandLineError(str(error)) from error


def _show(settings: Settings, source: ConfigSource | None) -> int:
    if source is not None:
        settings = asyncio.run(_read(settings, source))
    yaml.safe_dump(settings.model_dump(mode="json"), sys.stdout, sort_keys=False)
    return OK


async def _read(settings: Settings, source: ConfigSource) -> Settings:
    """Return the settings with those of objects."""
    from server.configuration.config_state import first_state  # noqa: PLC0415
    from server.configuration.config_store import read_config  # noqa: PLC0415
    from server.main import connected  # noqa: PLC0415

    async with await connected(settings) as client:
        return first_state(source, await read_config(client)).settings


def _serve(settings: Settings, source: ConfigSource | None) -> int:
    logs = configure_logs(settings.log_level, settings.log_format)
    # --show-settings and --help stay quick: the server's imports cost a second.
    from http_edge.listening_sockets import ListenError  # noqa: PLC0415
    from kube.config.connection import BadConfigurationError  # noqa: PLC0415
    from server.main import serve  # noqa: PLC0415

    try:
        uvloop.run(serve(settings, logs, source=source))
    except BadConfigurationError as error:
        raise CommandLineError(str(error)) from error
    except ListenError as error:
        print_error(error)
        return FAILED
    except ExceptionGroup:
        # Each failed task has logged itself.
        return FAILED
    return OK


def _parser() -> CommandParser:
    parser = CommandParser("serve", "Run the server.", epilog=settings_help())
    given = parser.add_mutually_exclusive_group()
    given.add_argument("--settings", type=Path, metavar="FILE", help="YAML file with settings")
    given.add_argument(
        INSTALLATION_FLAG,
        metavar="JSON",
        help="settings of the installation, which are written into the GPUControlPlaneConfig: that one is followed",
    )
    parser.add_argument(
        "--show-settings", action="store_true", help="print the settings in force and exit"
    )
    return parser


def settings_help() -> str:
    """Describe every setting as a flag, section by section."""
    lines = [_PRECEDENCE]
    for field in settings_fields():
        if field.is_section:
            lines.append(f"\n{field.name}: {field.description}")
        else:
            default = f" (default {field.default_text})" if field.default_text else ""
            lines.append(f"  {field.flag}  {field.expects}{default}")
            lines.append(_INDENTED.fill(field.description))
    return "\n".join(lines)
