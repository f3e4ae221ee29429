"""HTTP to the API server: one connection pool, credentials, time-outs, one tree of errors.

Knows requests and bytes, nothing of verbs and objects; those are `kube.client`'s.
A write is sent once. aiohttp would send a PUT or DELETE a second time when a kept-alive connection
breaks, and the answer to the second (a conflict with our own first) would look like a definite no.
"""

import asyncio
import ssl
from contextlib import ExitStack, aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, final
from urllib.parse import urlencode

import aiohttp
import yarl

from kube.errors import ApiError, TimedOut, Undecodable, Unreachable, from_status
from telemetry.metrics import API_REQUEST_DURATION

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
    from contextlib import AbstractAsyncContextManager

    from api.clock import Clock
    from kube.config.connection import Connection

JSON: Final = "application/json"
UNIX: Final = "unix:"

MAX_EVENT_LINE: Final = 16 * 1024 * 1024
"""etcd takes requests up to 1.5 MiB by default; ten times that is no event."""
_MAX_ERROR_BODY = 64 * 1024
"""A Status is a few hundred bytes; of a proxy's page the beginning says enough."""
_ERROR_BODY_TIMEOUT_S = 5.0
_READ_BUFFER = 512 * 1024
_LINES_A_TURN: Final = 50
"""Lines handed on before others get their turn: an event costs some 40 us, so this is 2 ms; one read
may hold a thousand."""
_KEEPALIVE_S = 30.0
"""The API server closes idle connections at 90 s, balancers often at 60; we close first, since a
write on a connection that is just being closed ends in doubt."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """One request; parameters of `query` that are None are left out."""

    method: str
    path: str
    label: str
    """What metrics call it: the resource, with the subresource."""
    query: "Mapping[str, str | None]" = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = JSON


class RequestTransport(Protocol):
    """The way to the API server; `Transport` says what each method does."""

    async def open(self) -> None: ...
    async def close(self) -> None: ...
    async def call(self, request: ApiRequest, *, timeout_s: float | None = None) -> bytes: ...
    def stream(
        self, request: ApiRequest, *, idle_timeout_s: float
    ) -> "AbstractAsyncContextManager[AsyncIterator[bytes]]": ...


class TransportFactory(Protocol):
    """Makes the transport of one client."""

    def __call__(
        self, configuration: "Connection", clock: "Clock", *, user_agent: str, timeout_s: float
    ) -> RequestTransport: ...


@final
class Transport:
    """The connection pool; opened and closed by its owner.

    Raises Unreachable and ApiError. Cancellation passes through.
    """

    def __init__(
        self, configuration: "Connection", clock: "Clock", *, user_agent: str, timeout_s: float
    ) -> None:
        self._configuration = configuration
        self._clock = clock
        self._user_agent = user_agent
        self._timeout_s = timeout_s
        host = configuration.host or ""
        self._socket = host.removeprefix(UNIX) if host.startswith(UNIX) else None
        self._base_url = host.rstrip("/") if self._socket is None else "http://localhost"
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Read the certificates and create the pool; connections are made as they are needed.

        Raises:
            OSError: a certificate file is missing or unusable.
        """
        self._session = aiohttp.ClientSession(
            connector=self._connector(),
            read_bufsize=_READ_BUFFER,
            cookie_jar=aiohttp.DummyCookieJar(),
            # Decompressing lists takes the loop more time than the network saves.
            headers={"User-Agent": self._user_agent, "Accept": JSON, "Accept-Encoding": "identity"},
        )

    def _connector(self) -> aiohttp.BaseConnector:
        # Each informer holds a connection; a bound would only make requests wait unseen.
        if self._socket is not None:
            return aiohttp.UnixConnector(self._socket, limit=0, keepalive_timeout=_KEEPALIVE_S)
        tls = _tls(self._configuration) if self._base_url.startswith("https") else False
        return aiohttp.TCPConnector(ssl=tls, limit=0, keepalive_timeout=_KEEPALIVE_S)

    async def close(self) -> None:
        """Close all connections; requests under way end as Unreachable."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def call(self, request: ApiRequest, *, timeout_s: float | None = None) -> bytes:
        """Return the body of a 2xx answer; bounded from the start to its last byte."""
        timeout = aiohttp.ClientTimeout(total=timeout_s or self._timeout_s)
        with measured(self._clock, request.method, request.label) as outcome:
            async with await self._send(request, timeout) as response:
                await _check(response)
                try:
                    body = await response.read()
                except (aiohttp.ClientError, OSError) as error:
                    raise _unreachable(error) from error
                outcome.code = str(response.status)
                return body

    @asynccontextmanager
    async def stream(
        self, request: ApiRequest, *, idle_timeout_s: float
    ) -> "AsyncIterator[AsyncIterator[bytes]]":
        """Open an answer without end; the context's value iterates over its lines.

        The iteration ends when the server ends the stream properly, and raises where it breaks or
        says nothing, not a byte, for `idle_timeout_s`. The loop gets its turn after every read, and
        between every few lines of a large one.
        What is measured, as method WATCH, is the time until the answer begins.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_read=idle_timeout_s)
        with measured(self._clock, "WATCH", request.label) as outcome:
            # The API server sends the head of a watch at once; only its body may be quiet.
            try:
                async with asyncio.timeout(self._timeout_s):
                    response = await self._send(request, timeout)
            except TimeoutError as error:
                raise _unreachable(error) from error
            with ExitStack() as on_failure:
                on_failure.callback(response.close)
                await _check(response)
                on_failure.pop_all()
            outcome.code = str(response.status)
        try:
            async with aclosing(lines_of(response.content.iter_any())) as lines:
                yield lines
        finally:
            response.close()

    async def _send(
        self, request: ApiRequest, timeout: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            raise RuntimeError("the transport is not open")
        query = urlencode({key: value for key, value in request.query.items() if value is not None})
        url = f"{self._base_url}{request.path}{'?' if query else ''}{query}"
        headers = await self._authorization()
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        try:
            return await self._session.request(
                request.method,
                yarl.URL(url, encoded=True),
                data=request.body,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
                server_hostname=self._configuration.tls_server_name,
                proxy=self._configuration.proxy,
                proxy_headers=self._configuration.proxy_headers,
                middlewares=() if request.method == "GET" else (_sent_once,),
            )
        except (aiohttp.ClientError, OSError) as error:
            raise _unreachable(error) from error

    async def _authorization(self) -> dict[str, str]:
        """Return the header with the current token; the configuration's hook may read it again."""
        try:
            token = await self._configuration.get_api_key_with_prefix("BearerToken")
        except Exception as error:  # the hook is the library's and raises what it likes
            raise Unreachable(f"no credentials: {error!r}", request_sent=False) from error
        # A projected token's file may end in a newline, which no header may hold.
        return {"Authorization": token.strip()} if token else {}


@final
@dataclass(slots=True)
class _Outcome:
    code: str = ""


@contextmanager
def measured(clock: "Clock", method: str, label: str) -> "Iterator[_Outcome]":
    """Observe how long the block takes, with the status that it notes or the error that ends it."""
    outcome = _Outcome()
    started = clock.monotonic()
    try:
        yield outcome
    except BaseException as error:
        outcome.code = str(error.status) if isinstance(error, ApiError) else type(error).__name__
        raise
    finally:
        API_REQUEST_DURATION.labels(method, label, outcome.code).observe(
            clock.monotonic() - started
        )


async def _sent_once(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Turn the errors after which aiohttp would send again into one that it passes through."""
    try:
        return await handler(request)
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _unreachable(error) from error


def _unreachable(error: Exception) -> Unreachable:
    never_left = isinstance(
        error,
        aiohttp.ClientConnectorError  # refused, unroutable, TLS handshake, DNS
        | aiohttp.ClientConnectorCertificateError
        | aiohttp.ConnectionTimeoutError
        | aiohttp.InvalidURL,
    )
    kind = TimedOut if isinstance(error, TimeoutError) else Unreachable
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return kind(text, request_sent=not never_left)


async def _check(response: aiohttp.ClientResponse) -> None:
    if not 200 <= response.status <= 299:
        body = await _beginning_of(response)
        raise from_status(response.status, body, response.headers.get("Retry-After"))


async def _beginning_of(response: aiohttp.ClientResponse) -> bytes:
    body = b""
    # The status is the answer, the text only explains it: an error here is not reported.
    with suppress(aiohttp.ClientError, OSError):
        async with asyncio.timeout(_ERROR_BODY_TIMEOUT_S):
            while len(body) < _MAX_ERROR_BODY and (chunk := await response.content.readany()):
                body += chunk
    return body


@final
class LineSplitter:
    """Cuts a stream into lines of any length up to `MAX_EVENT_LINE`.

    aiohttp's own readline refuses lines longer than its buffer, and an object may be large.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    @property
    def is_inside_line(self) -> bool:
        return bool(self._parts)

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that this chunk completes, without their ends and without empty ones."""
        *complete, remaining = chunk.split(b"\n")
        if complete:
            complete[0] = b"".join([*self._parts, complete[0]])
            self._parts.clear()
            self._size = 0
        if remaining:
            self._parts.append(remaining)
            self._size += len(remaining)
        if self._size > MAX_EVENT_LINE:
            raise Undecodable(f"a line of the watch is longer than {MAX_EVENT_LINE} bytes")
        return [line for line in complete if line]


async def lines_of(chunks: "AsyncIterator[bytes]") -> "AsyncGenerator[bytes, None]":
    """Yield the lines of a stream; an error of the connection is raised as Unreachable."""
    splitter = LineSplitter()
    try:
        async for chunk in chunks:
            for number, line in enumerate(splitter.feed(chunk), start=1):
                yield line
                await _let_others(number)
            await asyncio.sleep(0)
    except (aiohttp.ClientError, OSError) as error:
        raise _unreachable(error) from error
    if splitter.is_inside_line:
        raise Unreachable("the watch ended inside an event", request_sent=True)


async def _let_others(number: int) -> None:
    if number % _LINES_A_TURN == 0:
        await asyncio.sleep(0)


def _tls(configuration: "Connection") -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.disable_strict_ssl_verification:
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
