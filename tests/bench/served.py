"""A server process to be measured: the real application on the real port, its books filled without an
API server; and the echo.

    python -m tests.bench.served --port P --certificates DIR --nodes N --pods M
    python -m tests.bench.served --port P --certificates DIR --echo

The echo reads the request and answers with as many bytes as the last part of the path says: plain
aiohttp, same TLS settings, same loop, nothing decided.
Prints `ready` when it listens.
"""

import argparse
import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import uvloop
from aiohttp import web

from api.core import Node, Pod
from api.gpudevice import GPUDevice
from api.gpupool import GPUPool
from certs.bundle import KeyPair, ServingBundle
from certs.tls import ServingContext
from kube.client import KubeClient
from kube.configuration import configuration_for
from pool.facts import node_facts, pod_facts
from reconciler.devices import observe_device
from reconciler.expiry import Expiry
from reconciler.namespaces import NamespaceFeed
from reconciler.nodes import NodeFeed
from reconciler.pods import PodFeed
from reconciler.pools import PoolFeed
from server.clock import SystemClock
from server.collector import calm_collector
from server.listening import Port
from server.settings import Leadership, Listen, Settings
from server.wiring import ControlPlane
from telemetry.logs import configure_logs
from tests.bench.world import World

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable

T = TypeVar("T")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--certificates", type=Path, required=True)
    parser.add_argument("--nodes", type=int, default=0)
    parser.add_argument("--pods", type=int, default=0)
    parser.add_argument("--pool-count", type=int, default=2)
    parser.add_argument("--slices", type=int, default=4)
    parser.add_argument("--echo", action="store_true")
    uvloop.run(serve(parser.parse_args()))


async def serve(options: argparse.Namespace) -> None:
    logs = configure_logs("info")
    context = tls_context(options.certificates)
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        if options.echo:
            runner = web.AppRunner(echo_app(), access_log=None)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", options.port, ssl_context=context).start()
        else:
            plane = filled_plane(options)
            listen = Listen(host="127.0.0.1", port=options.port)
            await stack.enter_async_context(Port(plane.build_app(), listen, context))
            group.create_task(Expiry(plane.books, plane.clock.instant).run())
        calm_collector()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        group.create_task(logs.flush_regularly())
        await asyncio.Event().wait()


def filled_plane(options: argparse.Namespace) -> ControlPlane:
    """Feed the books as the informers do."""
    clock = SystemClock()
    client = KubeClient(configuration_for("http://127.0.0.1:9"), clock)
    settings = Settings(leadership=Leadership(enabled=False))
    plane = ControlPlane(settings, client, clock)
    plane.readiness.checks.clear()
    plane.seal._key = bytes(32)
    index = plane.books.index
    world = World(
        nodes=options.nodes,
        pods=options.pods,
        slices=options.slices,
        pool_count=options.pool_count,
    )
    PoolFeed(index, plane.catalog).replace_all(list(_as(GPUPool, world.pools())))
    devices = _as(GPUDevice, world.devices())
    plane.stock.device_feed.replace_all([observe_device(one) for one in devices])
    nodes = _as(Node, world.node_objects())
    NodeFeed(index).replace_all([node_facts(one) for one in nodes])
    pods = (pod_facts(one) for one in _as(Pod, world.bound_pods()))
    PodFeed(plane.books, clock.instant).replace_all([one for one in pods if one is not None])
    NamespaceFeed(plane.catalog).replace_all([])
    return plane


def _as(kind: type[T], objects: "Iterable[dict[str, Any]]") -> "Iterable[T]":
    return (msgspec.convert(one, kind) for one in objects)


def echo_app() -> web.Application:
    app = web.Application(client_max_size=16 * 2**20)

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(
            body=b" " * int(request.match_info["size"]), content_type="application/json"
        )

    app.router.add_post("/echo/{size}", answer)
    return app


def tls_context(directory: Path) -> "ssl.SSLContext":
    serving = ServingContext()
    pair = KeyPair(
        certificate_pem=(directory / "tls.crt").read_bytes(),
        key_pem=(directory / "tls.key").read_bytes(),
    )
    serving.load(ServingBundle(trust_pem=(directory / "ca.crt").read_bytes(), pair=pair))
    return serving.context


if __name__ == "__main__":
    main()
