"""The port of the agent's pod: liveness, readiness, metrics. None of them is secret.

It is open to every pod, and kubelet's liveness probe must be answered under any load: a connection ends with its answer,
and of too many the oldest is closed first, which has had the most time for its request.
"""

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, Protocol, final

from prometheus_client import CONTENT_TYPE_LATEST

from http_edge.exposition import Exposition
from http_edge.limits import Limits
from http_edge.listener import Port
from http_edge.replies import TEXT, Reply, error_reply
from http_edge.routes import Routes
from manifests import constants

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from api.clock import Clock
    from http_edge.listener import Address
    from http_edge.routes import Headers, Render

LIMITS: Final = Limits(
    connections=32,
    body_bytes=0,
    first_request_s=2.5,
    head_s=2.5,
    head_bytes=2 * 1024,
    head_fields=32,
    linger_s=0.0,
    pipelined=1,
    answer_s=5.0,
    finish_s=0.0,
    evicts_idle_first=False,
)
"""kubelet's requests have 130 bytes, Prometheus' have 300; kubelet waits for 5 s."""


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

    async def page(self) -> bytes:
        """Return the page, once it is made."""


@asynccontextmanager
async def serving_probes(
    health: ProcessHealth,
    listen: "Address",
    clock: "Clock",
    *,
    device_metrics: DevicePages | None = None,
    limits: Limits = LIMITS,
) -> "AsyncIterator[None]":
    """Serve inside the context; open connections are closed at its end.

    Raises:
        ListenError: the port cannot be opened.
    """
    pages: dict[str, Render] = {
        constants.LIVENESS_PATH: lambda *_: Reply(200 if health.is_alive else 503, b"", TEXT),
        constants.READINESS_PATH: lambda *_: _readiness(health.missing),
        constants.METRICS_PATH: Exposition().render,
    }
    if device_metrics is not None:
        pages[constants.DEVICE_METRICS_PATH] = _DevicePage(device_metrics, limits).render
    async with Port(Routes(pages=pages), listen, None, clock=clock, limits=limits) as port:
        port.send_away()
        yield


def _readiness(missing: "Sequence[str]") -> Reply:
    text = "\n".join(missing) or "ready"
    return Reply(503 if missing else 200, f"{text}\n".encode(), TEXT)


@final
class _DevicePage:
    """As many wait for it as may be connected; who has left waits until the page is there."""

    def __init__(self, metrics: DevicePages, limits: Limits) -> None:
        self._metrics = metrics
        self._limits = limits
        self._waiting = 0

    async def render(
        self, _transport: "asyncio.BaseTransport | None", _headers: "Headers"
    ) -> Reply:
        if self._waiting >= self._limits.connections:
            return error_reply(503)
        self._waiting += 1
        try:
            async with asyncio.timeout(self._limits.answer_s):
                return Reply(200, await self._metrics.page(), CONTENT_TYPE_LATEST)
        except TimeoutError:
            return error_reply(503)
        finally:
            self._waiting -= 1
