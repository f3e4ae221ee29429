"""How a command reaches the registry of an image: its credentials, and whom it trusts."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, final

from cli.command_parser import PROGRAM, CommandParser
from oci.docker_config import DockerConfig, parse_docker_configs
from oci.registry_settings import RegistrySettings

if TYPE_CHECKING:
    import argparse

    from api.image_reference import ImageReference

_LOGIN_FILE: Final = "config.json"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryAccess:
    """What the flags of a command say."""

    registry_config: Path | None
    """Configuration file of `docker login`; without one, where it writes by default, if there is a file."""
    ca_file: Path | None
    is_plain_http: bool

    @classmethod
    def of(cls, options: "argparse.Namespace") -> Self:
        """Return what the flags of `add_registry_flags` say."""
        return cls(
            registry_config=options.registry_config,
            ca_file=options.ca_file,
            is_plain_http=options.plain_http,
        )

    def credentials(self) -> DockerConfig:
        """Read them.

        Raises:
            UnusableCredentials: the file is malformed, or has what is not supported.
            OSError: it cannot be read.
        """
        file = self.registry_config
        if file is None:
            directory = os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker"
            file = Path(directory) / _LOGIN_FILE
            if not file.exists():
                return DockerConfig()
        return parse_docker_configs([(str(file), file.read_bytes())])

    def settings(self, reference: "ImageReference") -> RegistrySettings:
        """Return the settings of connections to the registry of the image."""
        return RegistrySettings(
            user_agent=PROGRAM,
            ca_file=self.ca_file,
            plain_http_hosts=frozenset({reference.registry} if self.is_plain_http else ()),
        )


def add_registry_flags(parser: CommandParser) -> None:
    parser.add_argument(
        "--registry-config",
        type=Path,
        metavar="FILE",
        help="credentials, as docker login writes them ($DOCKER_CONFIG/config.json, ~/.docker/config.json)",
    )
    parser.add_argument(
        "--ca-file",
        type=Path,
        metavar="FILE",
        help="authorities of the registry, in place of the system's",
    )
    parser.add_argument(
        "--plain-http",
        action="store_true",
        help="the registry has no TLS; for tests on one machine",
    )
