"""Settings of the console in a cluster. They come as flags (`cli.console`)."""

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from manifests.constants import CONTAINER_PORT, DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from pathlib import Path

    from telemetry.logs import LogFormat, LogLevel

DEFAULT_LISTEN: Final = f"127.0.0.1:{CONTAINER_PORT}"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ListenAddress:
    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFiles:
    """PEM files: a certificate with its chain, and its key."""

    certificate: "Path"
    key: "Path"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """Raises ValueError where they do not go together; the text is a sentence."""

    listen: ListenAddress
    certificate: CertificateFiles | None = None
    """Without it the port speaks plain HTTP."""
    is_plain: bool = False
    """Whether plain HTTP is meant, which an address beyond this machine needs: tokens pass in the clear."""
    hosts: tuple[str, ...] = ()
    """Names that requests may be for; any where there are none."""
    namespace: str = DEFAULT_NAMESPACE
    """Namespace of the control plane, whose Leases say who leads."""
    decisions: bool = False
    """Whether viewers decide on devices by the page, each with the own token."""
    kubeconfig: str | None = None
    context: str | None = None
    log_level: "LogLevel" = "info"
    log_format: "LogFormat" = "Auto"

    def __post_init__(self) -> None:
        if self.certificate is not None and self.is_plain:
            raise ValueError("--plain-http goes without a certificate: leave out one of both")
        if self.certificate is None and not self.is_plain and not self.listen.is_loopback:
            raise ValueError(
                f"viewers' tokens would pass in the clear to {self.listen.host}: name --tls-certificate and"
                " --tls-key, or --plain-http where something in front of the console ends TLS"
            )


def listen_address(text: str) -> ListenAddress:
    """Return what `ADDRESS:PORT` or `[ADDRESS]:PORT` means.

    Raises:
        ValueError: it means nothing.
    """
    host, separator, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        separator = ""
    if not separator or not host or not port.isdecimal() or int(port) > 65_535:
        raise ValueError(f"{text!r}: give an address and a port, such as 0.0.0.0:{CONTAINER_PORT}")
    return ListenAddress(host=host, port=int(port))
