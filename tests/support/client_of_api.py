"""An API server in memory and our client of it, with what a test needs to be there."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from api.clock import Clock
from kube.client import KubeClient
from kube.config.connection import StaticConnection
from kube.resources import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES
from simulator.apiserver.server import InMemoryApiServer
from tests.support.loop_clock import LoopClock


def a_client(
    api: InMemoryApiServer,
    clock: Clock,
    *,
    token: str | None = None,
    user_agent: str = "gpu-control-plane",
    timeout_s: float = 10.0,
    list_timeout_s: float = 60.0,
) -> KubeClient:
    """Return a client, not yet open, whose requests are calls; only where HTTP is the subject are they more."""
    return KubeClient(
        StaticConnection(api.url, token=token),
        clock,
        user_agent=user_agent,
        timeout_s=timeout_s,
        list_timeout_s=list_timeout_s,
        make_transport=api.in_process,
    )


@asynccontextmanager
async def an_api_with_client(
    *, namespace: str | None = None, definitions: Iterable[Mapping[str, Any]] = ()
) -> AsyncIterator[tuple[InMemoryApiServer, KubeClient]]:
    """Yield both, once the namespace and the CRDs are there."""
    clock = LoopClock()
    async with (
        InMemoryApiServer(clock) as api,
        a_client(api, clock) as client,
    ):
        for definition in definitions:
            await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
        if namespace is not None:
            metadata = {"name": namespace}
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
            await client.create(NAMESPACES, body)
        yield api, client
