"""An API server in memory and our client of it, with what a test needs to be there."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from kube.client import KubeClient
from kube.config.connection import StaticConnection
from kube.resources import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES
from simulator.apiserver.server import InMemoryApiServer
from tests.support.loop_clock import LoopClock


@asynccontextmanager
async def an_api_with_client(
    *, namespace: str | None = None, definitions: Iterable[Mapping[str, Any]] = ()
) -> AsyncIterator[tuple[InMemoryApiServer, KubeClient]]:
    """Yield both, once the namespace and the CRDs are there."""
    clock = LoopClock()
    async with (
        InMemoryApiServer(clock) as api,
        KubeClient(StaticConnection(api.url), clock) as client,
    ):
        for definition in definitions:
            await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
        if namespace is not None:
            metadata = {"name": namespace}
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
            await client.create(NAMESPACES, body)
        yield api, client
