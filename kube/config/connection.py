"""What a client must know of its API server: where it is, whom to trust, who we are.

Two modules give it: `kube.config.service_account` to a pod, `kube.config.kubeconfig` to everything else, with a library
that takes 65 MiB. Nothing here or in what asks the API server imports that library.
"""

from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

if TYPE_CHECKING:
    from collections.abc import Mapping


class BadConfigurationError(Exception):
    """No usable configuration; the text says where it was looked for."""


class Connection(Protocol):
    """As kubernetes-asyncio's `Configuration` has it, which is one.

    All but the token is read when a connection is opened.
    """

    @property
    def host(self) -> str | None:
        """The base URL."""

    @property
    def ssl_ca_cert(self) -> str | None:
        """A file with the authorities to be trusted; the system's where None."""

    @property
    def cert_file(self) -> str | None:
        """A file with the client's certificate."""

    @property
    def key_file(self) -> str | None:
        """A file with its key."""

    @property
    def verify_ssl(self) -> bool:
        """Whether the server's certificate is looked at."""

    @property
    def disable_strict_ssl_verification(self) -> bool:
        """Whether certificates may break rules of RFC 5280."""

    @property
    def tls_server_name(self) -> str | None:
        """The name that the server's certificate must have; the URL's where None."""

    @property
    def proxy(self) -> str | None:
        """The URL of a proxy."""

    @property
    def proxy_headers(self) -> "Mapping[str, str] | None":
        """What the proxy is told."""

    async def get_api_key_with_prefix(
        self, identifier: str, alias: str | None = None
    ) -> str | None:
        """Return the value of the header Authorization for `BearerToken`, as it is to be sent now.

        It may read a file or run a program, and raise what that raises.
        """


def proxy_for(url: str) -> str | None:
    """Return the environment's proxy for the URL; as in client-go, never for loopback."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host in {"localhost", "::1"} or host.startswith("127.") or proxy_bypass(host):
        return None
    return getproxies().get(parts.scheme)
