"""A registry on a free port of this machine, without TLS and users."""

from typing import TYPE_CHECKING, Self, final

from aiohttp import web

from simulator.registry.content import ReceivedRequest, RegistryContent

if TYPE_CHECKING:
    from types import TracebackType


@final
class InMemoryRegistry:
    """The registry; `requests` has every request in order of arrival."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        self._address = address
        self.content = RegistryContent()
        self.requests: list[ReceivedRequest] = []
        self.host = ""
        """`host:port`, once it is entered."""

    async def __aenter__(self) -> Self:
        self._runner = web.ServerRunner(web.Server(self._handle), shutdown_timeout=0.01)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._address, 0).start()
        self.host = f"{self._address}:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: "TracebackType | None",
    ) -> None:
        await self._runner.cleanup()

    def pulls_of(self, digest: str) -> int:
        """Return how often a blob was read."""
        return sum(
            request.method == "GET" and request.path.endswith(f"/blobs/{digest}")
            for request in self.requests
        )

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        received = await received_request(request)
        self.requests.append(received)
        return self.content.answer(received)


async def received_request(request: web.BaseRequest) -> ReceivedRequest:
    """Read a request to its end."""
    return ReceivedRequest(
        method=request.method,
        path=request.rel_url.raw_path,
        query=dict(request.query),
        headers=dict(request.headers),
        # Not by `read`, which takes 1 MiB at most.
        body=await request.content.read(),
    )
