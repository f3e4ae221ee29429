"""The address of an API server, the authorities to trust and the credentials to show.

`kube.config.service_account` gives a pod its connection, `kube.config.kubeconfig` reads one from files, and
`StaticConnection` is for processes that know their API server.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, final
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
        """The base URL, or `unix:` and the path of a socket on which plain HTTP is spoken."""

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
        """Whether the server's certificate is examined."""

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
        """Headers for the proxy."""

    async def get_api_key_with_prefix(
        self, identifier: str, alias: str | None = None
    ) -> str | None:
        """Return the value of the header Authorization for `BearerToken`, as it is to be sent now.

        It may read a file or run a program, and raise what that raises.
        """


@final
@dataclass(slots=True)
class StaticConnection:
    """An API server whose address and token are known and do not change."""

    host: str
    token: str | None = None
    ssl_ca_cert: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify_ssl: bool = True
    disable_strict_ssl_verification: bool = False
    tls_server_name: str | None = None
    proxy: str | None = None
    proxy_headers: "Mapping[str, str] | None" = None

    async def get_api_key_with_prefix(
        self, identifier: str, alias: str | None = None
    ) -> str | None:
        return None if self.token is None else f"Bearer {self.token}"


def with_token(connection: Connection, token: str) -> StaticConnection:
    """Return a connection to the same API server whose only credentials are this bearer token.

    A client certificate would come before the token: the API server would see its user.
    """
    return StaticConnection(
        host=connection.host or "",
        token=token,
        ssl_ca_cert=connection.ssl_ca_cert,
        verify_ssl=connection.verify_ssl,
        disable_strict_ssl_verification=connection.disable_strict_ssl_verification,
        tls_server_name=connection.tls_server_name,
        proxy=connection.proxy,
        proxy_headers=connection.proxy_headers,
    )


def proxy_for(url: str) -> str | None:
    """Return the environment's proxy for the URL; as in client-go, never for loopback."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host in {"localhost", "::1"} or host.startswith("127.") or proxy_bypass(host):
        return None
    return getproxies().get(parts.scheme)
