"""HTTP client of the DCGM exporters: one GET, bounded in time and size.

The exporters are not trusted: no redirect is followed, no content is decompressed, no connection is kept.
"""

import ipaddress
from typing import TYPE_CHECKING, Final, Self, final

import aiohttp
from yarl import URL

from reconciler.dcgm.errors import ExporterUnavailableError

if TYPE_CHECKING:
    from types import TracebackType

MAX_BODY_BYTES: Final = 4 * 1024 * 1024
"""A page of 16 devices with every field of DCGM is about 500 KiB."""
TIMEOUT_S: Final = 3.0
"""An exporter answers within 100 ms; one that hangs must not hold a worker of all nodes for long."""
_CHUNK: Final = 64 * 1024


@final
class ExporterClient:
    """Reads metrics pages; an async context manager that owns the HTTP session."""

    def __init__(
        self, *, timeout_s: float = TIMEOUT_S, max_body_bytes: int = MAX_BODY_BYTES
    ) -> None:
        """Take the bounds; `__aenter__` opens the session.

        Args:
            timeout_s: from the start of a request to the last byte of its answer.
            max_body_bytes: a longer page is refused.
        """
        self._timeout_s = timeout_s
        self._max_body_bytes = max_body_bytes
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Open the session."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(force_close=True, limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=self._timeout_s),
            headers={"Accept": "text/plain", "Accept-Encoding": "identity"},
            auto_decompress=False,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: "TracebackType | None",
    ) -> None:
        """Close the session; requests in flight raise ExporterUnavailableError."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def page(self, ip: str, port: int) -> str:
        """Return the page `/metrics` of a pod.

        Raises:
            ExporterUnavailableError: the exporter did not answer with a page.
        """
        if self._session is None:
            raise ExporterUnavailableError("the client is closed")
        try:
            host = str(ipaddress.ip_address(ip))
        except ValueError as error:
            raise ExporterUnavailableError(f"{ip!r} is no IP address") from error
        url = URL.build(scheme="http", host=host, port=port, path="/metrics")
        try:
            async with self._session.get(url, allow_redirects=False) as response:
                if response.status != 200:
                    raise ExporterUnavailableError(f"{url} answered {response.status}")
                return await self._read(response, url)
        except TimeoutError as error:
            raise ExporterUnavailableError(
                f"{url} did not answer within {self._timeout_s:g} s"
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise ExporterUnavailableError(f"{url}: {type(error).__name__}: {error}") from error

    async def _read(self, response: aiohttp.ClientResponse, url: URL) -> str:
        body = bytearray()
        async for chunk in response.content.iter_chunked(_CHUNK):
            body += chunk
            if len(body) > self._max_body_bytes:
                raise ExporterUnavailableError(f"{url} has more than {self._max_body_bytes} bytes")
        return body.decode("utf-8", "replace")
