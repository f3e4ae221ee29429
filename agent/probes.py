"""HTTP endpoints of the agent's pod: liveness, readiness, metrics. None of them is secret.

HTTP/1.1 as far as kubelet and Prometheus need it: GET, one request a connection. A whole web server is 2 MiB on every
node. The port is open to every pod, and kubelet's liveness probe must be answered under any load: of too many
connections the oldest is closed first, which has had the most time for its request.
"""

import asyncio
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, cast, final

import structlog
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from manifests.constants import (
    DEVICE_METRICS_PATH,
    LIVENESS_PATH,
    METRICS_PATH,
    READINESS_PATH,
)
from telemetry.metrics import REGISTRY, TASK_FAILURES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

WITHIN_S: Final = 5.0
"""Maximum duration of a connection; kubelet's time-out is the same."""
MAX_HEAD_BYTES: Final = 2 * 1024
"""kubelet's requests have 130 bytes, Prometheus' have 300."""
MAX_CONNECTIONS: Final = 32
TASK: Final = "probes"
_END: Final = b"\r\n\r\n"
_DEVICES: Final = DEVICE_METRICS_PATH.encode("ascii")
_TEXT: Final = "text/plain; charset=utf-8"

_log = structlog.get_logger()


class ProcessHealth(Protocol):
    """State behind the answers."""

    @property
    def is_alive(self) -> bool:
        """Whether the process works; a restart would cure it where it does not."""

    @property
    def missing(self) -> "Sequence[str]":
        """Conditions that readiness still waits for."""


class DevicePages(Protocol):
    """Pages of the devices' metrics, which take time; `agent.device_metrics.source.DeviceMetrics`."""

    def ask(self, answer: "Callable[[bytearray], None]") -> None:
        """Have it called once with the page."""

    def forget(self, answer: "Callable[[bytearray], None]") -> None:
        """Undo `ask`."""


class ProbeResponse(NamedTuple):
    status: HTTPStatus
    content: bytes | bytearray = b""
    content_type: str = _TEXT

    def head(self) -> bytes:
        head = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}\r\n"
            f"Content-Type: {self.content_type}\r\n"
            f"Content-Length: {len(self.content)}\r\n"
            "Connection: close\r\n\r\n"
        )
        return head.encode("ascii")


def answer_to(head: bytes, health: ProcessHealth) -> ProbeResponse:
    """Return the answer to a request; only its first line matters."""
    words = head.partition(b"\r\n")[0].split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        return ProbeResponse(HTTPStatus.BAD_REQUEST)
    method, target, _ = words
    if method != b"GET":
        return ProbeResponse(HTTPStatus.METHOD_NOT_ALLOWED)
    match target.partition(b"?")[0].decode("latin-1"):
        case path if path == LIVENESS_PATH:
            return ProbeResponse(
                HTTPStatus.OK if health.is_alive else HTTPStatus.SERVICE_UNAVAILABLE
            )
        case path if path == READINESS_PATH:
            missing = health.missing
            text = "\n".join(missing) or "ready"
            status = HTTPStatus.SERVICE_UNAVAILABLE if missing else HTTPStatus.OK
            return ProbeResponse(status, f"{text}\n".encode())
        case path if path == METRICS_PATH:
            return ProbeResponse(HTTPStatus.OK, generate_latest(REGISTRY), CONTENT_TYPE_LATEST)
    return ProbeResponse(HTTPStatus.NOT_FOUND)


def _asks_for_devices(head: bytes) -> bool:
    words = head.partition(b"\r\n")[0].split(b" ")
    return len(words) == 3 and words[0] == b"GET" and words[1].partition(b"?")[0] == _DEVICES


@asynccontextmanager
async def serving_probes(
    health: ProcessHealth,
    host: str,
    port: int,
    *,
    device_metrics: DevicePages | None = None,
    within_s: float = WITHIN_S,
) -> "AsyncIterator[None]":
    """Serve inside the context; open connections are closed at its end.

    Raises:
        OSError: the port cannot be opened.
    """
    loop = asyncio.get_running_loop()
    TASK_FAILURES.labels(TASK)
    open_: dict[_Connection, None] = {}
    # the oldest first
    server = await loop.create_server(
        lambda: _Connection(health, device_metrics, open_, within_s=within_s), host, port
    )
    try:
        yield
    finally:
        server.close()
        for connection in tuple(open_):
            connection.abort()
        # The loop calls `connection_lost` of each in its next turn.
        await asyncio.sleep(0)


@final
class _Connection(asyncio.Protocol):
    """One request, one answer, within the callbacks of the transport."""

    def __init__(
        self,
        health: ProcessHealth,
        device_metrics: DevicePages | None,
        open_: "dict[_Connection, None]",
        *,
        within_s: float,
    ) -> None:
        self._health = health
        self._device_metrics = device_metrics
        self._within_s = within_s
        self._open = open_
        self._head = b""
        self._is_answered = False
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have these methods without asyncio's base class.
        self._transport = cast("asyncio.Transport", transport)
        while len(self._open) >= MAX_CONNECTIONS:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.abort()
        self._open[self] = None
        self._deadline = asyncio.get_running_loop().call_later(self._within_s, self.abort)

    def data_received(self, data: bytes) -> None:
        if self._is_answered:
            return
        self._head += data
        if len(self._head) > MAX_HEAD_BYTES:
            self._answer(ProbeResponse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))
        elif _END not in self._head:
            return
        elif self._device_metrics is not None and _asks_for_devices(self._head):
            self._is_answered = True
            self._device_metrics.ask(self._answer_page)
        else:
            self._answer(self._response())

    def connection_lost(self, exc: Exception | None) -> None:
        self._open.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
        if self._device_metrics is not None:
            self._device_metrics.forget(self._answer_page)

    def abort(self) -> None:
        """Close the connection without an answer."""
        if self._transport is not None:
            self._transport.abort()

    def _response(self) -> ProbeResponse:
        try:
            return answer_to(self._head, self._health)
        except Exception as error:  # noqa: BLE001  # the boundary of a request
            TASK_FAILURES.labels(TASK).inc()
            _log.error("probe not answered", exc_info=error)
            return ProbeResponse(HTTPStatus.INTERNAL_SERVER_ERROR)

    def _answer_page(self, content: bytearray) -> None:
        self._answer(ProbeResponse(HTTPStatus.OK, content, CONTENT_TYPE_LATEST))

    def _answer(self, answer: ProbeResponse) -> None:
        self._is_answered = True
        if self._transport is not None:
            self._transport.writelines((answer.head(), answer.content))
            self._transport.close()
