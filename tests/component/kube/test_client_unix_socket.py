"""The client through a unix socket, as `kubectl proxy` has one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from kube.client import KubeClient
from kube.config.connection import StaticConnection
from kube.errors import Unreachable
from kube.resources import NODES
from tests.support.loop_clock import LoopClock


@asynccontextmanager
async def serving(socket: Path) -> AsyncIterator[list[str]]:
    """Serve an empty list of anything on a socket; yields the requests as they come."""
    seen: list[str] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        seen.append(f"{request.method} {request.headers['Host']}{request.rel_url.raw_path}")
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})

    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.01)
    await runner.setup()
    await web.UnixSite(runner, str(socket)).start()
    yield seen
    await runner.cleanup()


async def test_requests_go_through_the_socket_to_localhost(tmp_path: Path) -> None:
    socket = tmp_path / "api"
    async with (
        serving(socket) as seen,
        KubeClient(StaticConnection(f"unix:{socket}"), LoopClock()) as client,
    ):
        found = await client.list_(NODES, dict)
    assert found.items == []
    assert seen == ["GET localhost/api/v1/nodes"]


async def test_a_socket_that_is_not_there_gets_no_request(tmp_path: Path) -> None:
    async with KubeClient(StaticConnection(f"unix:{tmp_path}/none"), LoopClock()) as client:
        with pytest.raises(Unreachable) as caught:
            await client.delete(NODES, "n")
    assert caught.value.is_definite
