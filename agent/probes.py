"""What kubelet and Prometheus ask an agent's pod: alive, ready, metrics. Nothing here is secret."""

from typing import TYPE_CHECKING, Protocol

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from manifests.constants import LIVENESS_PATH, METRICS_PATH, READINESS_PATH
from telemetry.metrics import REGISTRY

if TYPE_CHECKING:
    from collections.abc import Sequence


class Health(Protocol):
    """What the answers are made of."""

    @property
    def is_alive(self) -> bool:
        """Say whether a restart would help nothing."""

    @property
    def missing(self) -> "Sequence[str]":
        """Return what is missing before it is ready, in words; nothing where it is."""


def build_probes(health: Health) -> web.Application:
    """Return the application."""

    async def live(_request: web.Request) -> web.Response:
        return web.Response(status=200 if health.is_alive else 503)

    async def ready(_request: web.Request) -> web.Response:
        missing = health.missing
        text = "\n".join(missing) or "ready"
        return web.Response(status=503 if missing else 200, text=text + "\n")

    async def metrics(_request: web.Request) -> web.Response:
        content = generate_latest(REGISTRY)
        return web.Response(body=content, headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.router.add_get(LIVENESS_PATH, live)
    app.router.add_get(READINESS_PATH, ready)
    app.router.add_get(METRICS_PATH, metrics)
    return app
