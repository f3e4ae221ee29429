"""HTTP to registries, token servers and blob stores: one pool of connections, redirects, one tree of errors.

Knows requests and bytes, nothing of manifests and nothing of credentials but that they stay with the host they
were meant for. Bodies come as they are sent: digests are of the bytes on the wire.
"""

import ssl
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self, final

import aiohttp
import msgspec
import yarl
from aiohttp.helpers import is_ip_address

from api.field_errors import UNDECODABLE
from oci.errors import (
    AccessDenied,
    AddressRefused,
    ContentNotFound,
    ContentTooLarge,
    RateLimited,
    RegistryError,
    RegistryFailed,
    RegistryRefusal,
    RegistryTimedOut,
    RegistryUnreachable,
    RegistryUntrusted,
    UnexpectedAnswer,
)
from oci.public_addresses import PrivateAddressError, PublicResolver, is_public
from oci.retry_delays import parse_retry_after

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import AsyncIterator, Callable, Mapping
    from types import TracebackType

    from oci.registry_settings import RegistrySettings

_MAX_REDIRECTS: Final = 5
_MAX_ERROR_BYTES: Final = 64 * 1024
_READ_BUFFER_BYTES: Final = 256 * 1024
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_HTTP_PORT: Final = 80
_HTTPS_PORT: Final = 443


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryRequest:
    """One request; `name` is that of the content (registry, repository, tag or digest) in errors."""

    name: str
    method: str
    url: yarl.URL
    headers: "Mapping[str, str]" = field(default_factory=dict)
    body: "bytes | Callable[[], AsyncIterator[bytes]] | None" = None
    """Bytes, or what opens a new stream of them for each attempt; its length is in the headers."""


@final
class RegistryConnections:
    """The pool of a process; an async context. Raises errors of `oci.errors`; cancellation passes through."""

    def __init__(self, settings: "RegistrySettings") -> None:
        self.settings = settings
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Read the authorities and make the pool; connections are made as they are needed.

        Raises:
            OSError: the file of authorities is missing or unusable.
        """
        settings = self.settings
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=settings.tls(), resolver=self._resolver()),
            timeout=aiohttp.ClientTimeout(
                total=None,
                sock_connect=settings.connect_timeout_s,
                sock_read=settings.read_timeout_s,
            ),
            headers={"User-Agent": settings.user_agent, "Accept-Encoding": "identity"},
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            read_bufsize=_READ_BUFFER_BYTES,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: "TracebackType | None",
    ) -> None:
        """Close all connections; requests under way end as RegistryUnreachable."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def registry_url(self, registry: str) -> yarl.URL:
        """Return where the API of a registry begins."""
        host = "registry-1.docker.io" if registry == "docker.io" else registry
        scheme = "http" if registry in self.settings.plain_http_hosts else "https"
        return yarl.URL(f"{scheme}://{host}/v2/")

    async def send(
        self, request: RegistryRequest, authorization: str | None = None
    ) -> aiohttp.ClientResponse:
        """Send once, and follow redirects of reading requests; the caller releases the answer.

        The authorization goes to the host of the request alone, and not even there after a redirect elsewhere.
        """
        url, header = request.url, authorization
        for _ in range(_MAX_REDIRECTS + 1):
            response = await self._send_to(url, request, header)
            is_reading = request.method in {"GET", "HEAD"}
            if response.status not in _REDIRECTS or not is_reading:
                return response
            location = response.headers.get("Location", "")
            response.release()
            target = follow_location(request.name, url, location)
            if not is_same_host(target, url):
                header = None
            url = target
        raise AddressRefused(
            request.name,
            f"it redirects more than {_MAX_REDIRECTS} times",
            "correct the registry's redirects",
        )

    def check_address(self, name: str, url: yarl.URL) -> None:
        """Refuse what must not be asked.

        Raises:
            AddressRefused: it is plain HTTP and not in the setting, an IP address that is not public and not in the
                setting, or no address of a server.
        """
        if url.scheme not in {"http", "https"} or not url.host:
            raise AddressRefused(
                name, f"{url} is no address of a server", "correct the registry's configuration"
            )
        # A name is judged by its addresses, as a connection is made; an IP address is not resolved.
        may_be_private = self._may_be_private(url.host_subcomponent or "", url.port)
        if is_ip_address(url.host) and not is_public(url.host) and not may_be_private:
            raise _private(name, url)
        if url.scheme == "http" and not self._may_be_plain(url):
            raise AddressRefused(
                name,
                f"{host_and_port(url)} would be asked without TLS",
                "serve it with TLS, or add it to the hosts that may be asked by plain HTTP",
            )

    async def _send_to(
        self, url: yarl.URL, request: RegistryRequest, authorization: str | None
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            raise RuntimeError("the connections are not open")
        self.check_address(request.name, url)
        headers = dict(request.headers)
        if authorization is not None:
            headers["Authorization"] = authorization
        body: Any = request.body
        try:
            return await self._session.request(
                request.method,
                url,
                headers=headers,
                data=body() if callable(body) else body,
                allow_redirects=False,
                middlewares=(_sent_once,),
            )
        except PrivateAddressError as error:
            raise _private(request.name, url) from error
        except _BrokenError as broken:
            raise unreachable(request.name, url, broken.error) from broken.error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise unreachable(request.name, url, error) from error

    def _may_be_plain(self, url: yarl.URL) -> bool:
        hosts = self.settings.plain_http_hosts
        return host_and_port(url) in hosts or (url.port == _HTTP_PORT and url.host in hosts)

    def _resolver(self) -> PublicResolver | None:
        return None if self.settings.private_hosts is None else PublicResolver(self._may_be_private)

    def _may_be_private(self, host: str, port: int | None) -> bool:
        hosts = self.settings.private_hosts
        is_default = port in {_HTTP_PORT, _HTTPS_PORT}
        return hosts is None or f"{host}:{port}" in hosts or (is_default and host in hosts)


@final
class _BrokenError(Exception):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


async def _sent_once(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Turn the errors after which aiohttp would send again into one that it passes through.

    Attempts are counted by the caller, and the stream of an upload is used up.
    """
    try:
        return await handler(request)
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _BrokenError(error) from error


def _private(name: str, url: yarl.URL) -> AddressRefused:
    """Return the refusal, without the address: it would tell what names mean inside the cluster."""
    return AddressRefused(
        name,
        f"{host_and_port(url)} has an address that is not public",
        f"list {host_and_port(url)} in the setting kernel_caches.registries.private, if it may be asked",
    )


def host_and_port(url: yarl.URL) -> str:
    return f"{url.host_subcomponent}:{url.port}"


def is_same_host(first: yarl.URL, second: yarl.URL) -> bool:
    """Say whether both are the same scheme, host and port: who may see the other's credentials."""
    return (first.scheme, first.host, first.port) == (second.scheme, second.host, second.port)


def follow_location(name: str, url: yarl.URL, location: str) -> yarl.URL:
    """Return where an answer of this address leads.

    Raises:
        AddressRefused: to no address, to one with credentials, or from TLS to plain HTTP.
    """
    try:
        # Signed addresses of blob stores are good only as they are.
        target = url.join(yarl.URL(location, encoded=True))
    except ValueError:
        target = yarl.URL()
    if not location or not target.host or target.user or target.password:
        raise AddressRefused(
            name, f"it leads to no address: {location}", "correct the registry's redirects"
        )
    if url.scheme == "https" and target.scheme != "https":
        raise AddressRefused(
            name,
            f"it leads from TLS to {target.scheme}://{host_and_port(target)}",
            "let the registry lead to https only",
        )
    return target


async def read_bounded(response: aiohttp.ClientResponse, name: str, limit: int) -> bytes:
    """Return the body, which must not be larger than the limit."""
    body = bytearray()
    try:
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > limit:
                raise ContentTooLarge(
                    name, f"it has more than {limit} bytes", "check that this is the image meant"
                )
    except (aiohttp.ClientError, OSError) as error:
        raise unreachable(name, response.url, error) from error
    return bytes(body)


class _ErrorOfList(msgspec.Struct, frozen=True):
    code: str = ""


class _Errors(msgspec.Struct, frozen=True):
    errors: list[_ErrorOfList] = []


_CODES: Final = frozenset(
    {
        "BLOB_UNKNOWN",
        "BLOB_UPLOAD_INVALID",
        "BLOB_UPLOAD_UNKNOWN",
        "DIGEST_INVALID",
        "MANIFEST_BLOB_UNKNOWN",
        "MANIFEST_INVALID",
        "MANIFEST_UNKNOWN",
        "NAME_INVALID",
        "NAME_UNKNOWN",
        "SIZE_INVALID",
        "UNAUTHORIZED",
        "DENIED",
        "UNSUPPORTED",
        "TOOMANYREQUESTS",
        "UNKNOWN",
    }
)
"""Error codes of the distribution specification, and UNKNOWN of its reference implementation."""

_CURES: Final[dict[int, tuple[type[RegistryRefusal], str]]] = {
    401: (
        AccessDenied,
        "give a pull secret of a user who has the right, or correct the present one",
    ),
    403: (
        AccessDenied,
        "give a pull secret of a user who has the right, or correct the present one",
    ),
    404: (ContentNotFound, "check the name, and whether a pull secret is needed to see it"),
    429: (RateLimited, "wait, or give a pull secret whose user has a higher limit"),
}


async def refusal_of(
    response: aiohttp.ClientResponse, name: str, now: "dt.datetime"
) -> RegistryRefusal:
    """Return the error for an answer that is no success, and release the answer."""
    body = b""
    try:
        # The status is the answer, the codes only explain it: a fault while they are read is not reported.
        with suppress(aiohttp.ClientError, OSError):
            while len(body) < _MAX_ERROR_BYTES and (chunk := await response.content.readany()):
                body += chunk
    finally:
        response.close()
    status = response.status
    kind, cure = _CURES.get(status, (UnexpectedAnswer, "check that this is an OCI registry"))
    if 500 <= status <= 599:
        kind, cure = RegistryFailed, "look into the registry's log"
    codes = _codes_of(body)
    fact = f"{host_and_port(response.url)} answers {status} to {response.method}"
    return kind(
        name,
        f"{fact}: {codes}" if codes else fact,
        cure,
        status=status,
        retry_after_s=parse_retry_after(response.headers.get("Retry-After"), now),
    )


def _codes_of(body: bytes) -> str:
    """Return the protocol's codes that the body has, and nothing else of it.

    Errors are told to users who name the registry, and who may have no access to what answers there.
    """
    with suppress(*UNDECODABLE):
        errors = msgspec.json.decode(body, type=_Errors).errors
        return ", ".join(error.code for error in errors[:3] if error.code in _CODES)
    return ""


def unreachable(name: str, url: yarl.URL, error: Exception) -> RegistryError:
    """Return the error for an answer that did not come, or broke off."""
    host = host_and_port(url)
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, TimeoutError):
        return RegistryTimedOut(
            name, f"{host} does not answer in time ({type(error).__name__})", "check the network"
        )
    if isinstance(error, aiohttp.ClientConnectorCertificateError | ssl.SSLCertVerificationError):
        return RegistryUntrusted(
            name,
            f"the certificate of {host} is not trusted: {text}",
            "give the file of the authority that signed it",
        )
    return RegistryUnreachable(name, f"{host} cannot be reached: {text}", "check name and network")
